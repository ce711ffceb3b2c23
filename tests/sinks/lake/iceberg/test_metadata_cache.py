"""The FileIO that remembers metadata files, over files on a disk that are changed behind its back."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from penstock.sinks.lake.iceberg.catalog_options import METADATA_CACHE
from penstock.sinks.lake.iceberg.registration import METADATA_CACHE_JAR

KEPT_BYTES_MAX = 8 << 20


class Files:
    """Written and read by the FileIO, as Iceberg does it."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        jars = spark.sparkContext._gateway.new_array(jvm.java.net.URL, 1)  # type: ignore[union-attr]
        jars[0] = jvm.java.io.File(str(METADATA_CACHE_JAR)).toURI().toURL()
        parent = jvm.org.apache.iceberg.CatalogUtil._java_lang_class.getClassLoader()
        kind = jvm.java.net.URLClassLoader(jars, parent).loadClass(METADATA_CACHE)
        self.io = kind.getDeclaredConstructors()[0].newInstance(None)
        self.io.setConf(spark.sparkContext._jsc.hadoopConfiguration())
        self.io.initialize(jvm.java.util.HashMap())

    def write(self, path: Path, content: bytes) -> None:
        out = self.io.newOutputFile(path.as_uri()).createOrOverwrite()
        out.write(content)
        assert out.getPos() == out.storedLength() == len(content)
        out.close()

    def read(self, path: Path) -> bytes:
        file = self.io.newInputFile(path.as_uri())
        stream = file.newStream()
        try:
            found = bytes(stream.readAllBytes())
        finally:
            stream.close()
        assert file.getLength() == len(found) and file.exists()
        return found


@pytest.fixture(scope="module")  # py4j knows one class of a name
def files(spark: SparkSession) -> Files:
    return Files(spark)


def metadata(folder: Path) -> list[Path]:
    """One of each kind, with the names that Iceberg gives."""
    number = uuid.uuid4()
    names = (f"00012-{number}.metadata.json", f"00012-{number}.gz.metadata.json",
             f"{number}-m0.avro", f"snap-4711-1-{number}.avro")  # fmt: skip
    return [folder / name for name in names]


def replace(path: Path, content: bytes) -> None:
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # Hadoop's checksum of what was there
    path.write_bytes(content)


def test_a_metadata_file_that_was_written_is_not_read_from_the_store(files: Files, tmp_path: Path) -> None:
    paths = metadata(tmp_path)
    for path in paths:
        files.write(path, b"first")
    for path in paths:
        assert path.read_bytes() == b"first", "the store has it, too"
        path.unlink()
        assert files.read(path) == b"first"


def test_a_metadata_file_is_read_from_the_store_once(files: Files, tmp_path: Path) -> None:
    for path in metadata(tmp_path):
        replace(path, b"first")
        assert files.read(path) == b"first"
        path.unlink()
        assert files.read(path) == b"first"


def test_a_metadata_file_that_was_removed_is_gone(files: Files, tmp_path: Path) -> None:
    one, other, *_ = metadata(tmp_path)
    files.write(one, b"first")
    files.write(other, b"first")
    files.io.deleteFile(one.as_uri())
    files.io.deleteFiles([other.as_uri()])
    for path in (one, other):
        with pytest.raises(Py4JJavaError, match="NotFoundException"):
            files.read(path)


@pytest.mark.parametrize("name", ["part.parquet", "v3.metadata.json", "snap-1.avro", "rows.avro"])
def test_other_files_are_read_each_time(files: Files, tmp_path: Path, name: str) -> None:
    files.write(tmp_path / name, b"first")
    replace(tmp_path / name, b"second")
    assert files.read(tmp_path / name) == b"second"


def test_large_metadata_files_are_read_each_time(files: Files, tmp_path: Path) -> None:
    path = metadata(tmp_path)[0]
    for content in (b"1" * (KEPT_BYTES_MAX + 1), b"2" * (KEPT_BYTES_MAX + 2)):
        replace(path, content)
        assert files.read(path) == content
    files.write(path, b"3" * (KEPT_BYTES_MAX + 1))
    replace(path, b"4")
    assert files.read(path) == b"4"


def test_what_was_not_used_for_longest_is_forgotten_first(files: Files, tmp_path: Path) -> None:
    used, unused, *_ = metadata(tmp_path)
    files.write(used, b"used")
    files.write(unused, b"unused")
    for _ in range(10):  # more than is remembered
        files.write(metadata(tmp_path)[0], bytes(KEPT_BYTES_MAX))
        replace(used, b"changed")
        assert files.read(used) == b"used"
    replace(unused, b"changed")
    assert files.read(unused) == b"changed"
