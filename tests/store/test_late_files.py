"""Files that become durable while whoever writes them goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.store.conftest import options

from penstock.store.errors import StoreRefused
from penstock.store.files import Folder, LocalFiles, NewFile, ObjectFiles
from penstock.store.late_files import LateFiles
from penstock.testing.faulty_proxy import Fault, FaultyProxy, put

WAIT_S = 30


class Slow(LocalFiles):
    """A file is finished once `let_go` is set, and fails if its location is in `failing`."""

    let_go = threading.Event()
    failing: frozenset[str] = frozenset()

    @contextmanager
    def create(self, location: str) -> Iterator[NewFile]:
        with super().create(location) as file:
            yield file
            assert self.let_go.wait(WAIT_S)
            if location in self.failing:
                raise OSError("the disk is full")


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[tuple[type[Slow], Folder]]:
    class Own(Slow):
        let_go = threading.Event()

    yield Own, Folder(Own(), str(tmp_path / "data"))
    Own.let_go.set()


def write(folder: Folder, content: bytes = b"content") -> str:
    location = folder.new(".bin")
    with folder.files.create(location) as file:
        file.write(content)
        assert file.tell() == len(content)
    return location


def names(folder: Folder) -> list[str]:
    return [str(path) for path in Path(folder.location).iterdir()]


def test_the_writer_goes_on_and_settle_waits(slow: tuple[type[Slow], Folder]) -> None:
    kind, folder = slow
    with LateFiles(folder.files) as late:
        found = [write(late.in_folder(folder)) for _ in range(3)]
        waiter = threading.Thread(target=late.settle)
        waiter.start()
        waiter.join(0.05)
        assert waiter.is_alive()
        kind.let_go.set()
        waiter.join(WAIT_S)
        late.settle()
        assert [folder.files.read(one, 0, 10) for one in found] == [b"content"] * 3


def test_if_one_fails_none_is_left_and_nobody_can_overlook_it(slow: tuple[type[Slow], Folder]) -> None:
    kind, folder = slow
    with LateFiles(folder.files) as late:
        inside = late.in_folder(folder)
        found = [write(inside) for _ in range(3)]
        kind.failing = frozenset(found[1:2])
        kind.let_go.set()
        late.remove(found[2:])
        for _ in range(2):
            with pytest.raises(OSError, match="disk is full"):
                late.settle()
        assert names(folder) == []
        with pytest.raises(OSError, match="disk is full"):
            late.read(found[0], 0, 1)


def test_nothing_is_on_its_way_when_the_block_ends(slow: tuple[type[Slow], Folder]) -> None:
    kind, folder = slow
    release = threading.Timer(0.05, kind.let_go.set)
    with pytest.raises(RuntimeError, match="refused"), LateFiles(folder.files) as late:
        location = write(late.in_folder(folder))
        release.start()
        raise RuntimeError("refused")
    assert names(folder) == [location], "so it can be removed now"


def test_an_error_of_the_writer_leaves_no_file(slow: tuple[type[Slow], Folder]) -> None:
    kind, folder = slow
    kind.let_go.set()
    with LateFiles(folder.files) as late:
        with pytest.raises(RuntimeError, match="in the middle"), late.create(folder.new(".bin")) as file:
            file.write(b"content")
            raise RuntimeError("in the middle")
        late.settle()
    assert names(folder) == []


def test_a_store_that_refuses_a_file_is_heard_before_the_commit(proxy: FaultyProxy, url: str) -> None:
    folder = Folder(ObjectFiles(options(proxy.url, request=5)), url)
    proxy.plan(Fault("answer", status=403, code="AccessDenied"), when=put, times=1)
    with LateFiles(folder.files) as late:
        write(late.in_folder(folder), b"x" * 1000)
        with pytest.raises(StoreRefused):
            late.settle()


def test_a_large_file_takes_no_request_for_its_version(proxy: FaultyProxy, url: str) -> None:
    part, size = 5 << 20, (10 << 20) + 1
    folder = Folder(ObjectFiles(replace(options(proxy.url), part_bytes=part)), url)
    write(folder, bytes(size))
    assert sorted(one.method for one in proxy.requests) == ["POST", "POST", "PUT", "PUT", "PUT"]
    proxy.plan(
        Fault("lost answer"), when=lambda request: request.method == "POST" and "uploadId" in request.path
    )
    location = write(folder, bytes(size))
    assert len(folder.files.read(location, 0, size)) == size, "the answer was lost, so it was asked"
