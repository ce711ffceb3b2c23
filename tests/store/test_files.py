"""Files of tables, on a disk and in an object store: the same promises."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.store.conftest import options

from penstock.errors import PenstockError
from penstock.store.files import Folder, LocalFiles, ObjectFiles, is_object, local_path
from penstock.testing.faulty_proxy import Fault, FaultyProxy, get, put
from penstock.testing.servers.s3 import S3Server

PART = 5 << 20
"""The smallest part that S3 takes."""


@pytest.fixture(params=["local", "moto"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, s3_server: Callable[[str], S3Server]) -> Folder:
    if request.param == "local":
        return Folder.local(tmp_path / "data")
    reach = replace(options(s3_server("moto").url), part_bytes=PART)
    return Folder(ObjectFiles(reach), f"s3://lake/files/{tmp_path.name}")


def write(folder: Folder, content: bytes, *, piece: int = 1 << 20) -> str:
    location = folder.new(".bin")
    with folder.files.create(location) as file:
        for start in range(0, len(content), piece):
            file.write(memoryview(content)[start : start + piece])
        assert file.tell() == len(content)
    return location


@pytest.mark.parametrize("size", [0, 1, 70_000, PART + 1, 2 * PART, 2 * PART + 1, 3 * PART + 12345])
def test_what_was_written_is_read_back(folder: Folder, size: int) -> None:
    content = bytes(number % 251 for number in range(1000)) * (size // 1000 + 1)
    content = content[:size]
    location = write(folder, content)
    assert folder.files.read(location, 0, size) == content
    assert folder.files.read(location, size // 2, size - size // 2) == content[size // 2 :]
    source = folder.files.source(location, size)
    with pa.OSFile(source) if isinstance(source, str) else pa.PythonFile(source, mode="r") as file:
        assert file.size() == size
        assert file.read() == content


def test_pyarrow_reads_and_writes_parquet(folder: Folder) -> None:
    table = pa.table({"id": range(300_000), "text": [f"value {number * 7919}" for number in range(300_000)]})
    location = folder.new(".parquet")
    with folder.files.create(location) as file:
        pq.write_table(table, file, row_group_size=50_000, compression="none")
        size = file.tell()
    for known in (size, None):
        source = folder.files.source(location, known)
        with pq.ParquetFile(source, pre_buffer=not isinstance(source, str)) as found:
            assert found.read(columns=["id"])["id"].to_pylist() == list(range(300_000))
            assert pa.Table.from_batches(found.iter_batches()) == table


def test_an_error_in_the_middle_leaves_no_file(folder: Folder) -> None:
    for size in (10, 3 * PART):
        location = folder.new(".bin")
        with pytest.raises(RuntimeError, match="in the middle"), folder.files.create(location) as file:
            file.write(bytes(size))
            raise RuntimeError("in the middle")
        with pytest.raises((OSError, PenstockError)):
            folder.files.read(location, 0, 1)


def test_files_can_be_removed_twice(folder: Folder) -> None:
    locations = [write(folder, b"x") for _ in range(3)]
    folder.files.remove(locations[:2])
    folder.files.remove(locations)
    for location in locations:
        with pytest.raises((OSError, PenstockError)):
            folder.files.read(location, 0, 1)


def test_another_process_can_use_it_without_a_secret_in_what_is_sent(folder: Folder) -> None:
    location = write(folder, b"content")
    if isinstance(folder.files, ObjectFiles):
        with pytest.raises(PenstockError, match="pickled"):
            pickle.dumps(folder)  # these options hold keys in memory
        return
    there: Folder = pickle.loads(pickle.dumps(folder))
    assert there.files.read(location, 0, 7) == b"content"


@pytest.mark.parametrize("size", [1000, 4 * PART])
def test_faults_of_the_network_are_lived_through(proxy: FaultyProxy, url: str, size: int) -> None:
    folder = Folder(ObjectFiles(options(proxy.url, request=5)), url)
    for fault in (Fault("answer"), Fault("lost answer"), Fault("reset in the middle")):
        proxy.plan(fault, when=put, times=1)
        location = write(folder, b"y" * size)
        proxy.plan(fault, when=get, times=1)
        assert folder.files.read(location, 0, size) == b"y" * size


def test_a_small_file_costs_one_request_each_way(proxy: FaultyProxy, url: str) -> None:
    folder = Folder(ObjectFiles(options(proxy.url)), url)
    location = write(folder, b"z" * 100_000)
    assert folder.files.source(location, 100_000).read() == b"z" * 100_000
    assert [request.method for request in proxy.requests] == ["PUT", "GET"]


def test_which_locations_are_objects() -> None:
    for location in ("s3://b/k", "s3a://b/a/b.parquet", "gs://b/k", "s3://b/%41 é"):
        assert is_object(location), location
    for location in ("/a", "file:/a", "file:///a", "hdfs://h:1/a", "s3://b", "s3://b/a//b", "s3://b/a?b",
                     "s3://b/a#b", "s3://b/../x", "s3://b/a\nb", "b/k"):  # fmt: skip
        assert not is_object(location), location


def test_a_local_location_is_not_read_as_a_url() -> None:
    assert local_path("file:///a/%2Fb?c#d") == local_path("file:/a/%2Fb?c#d") == Path("/a/%2Fb?c#d")
    assert local_path("/a/file:b") == Path("/a/file:b")
    assert LocalFiles().travels
