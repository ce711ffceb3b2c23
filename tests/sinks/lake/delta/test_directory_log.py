"""The log store for tables in a directory. The judge is the file that a version has in the end."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Log:
    """A `_delta_log`, as one process sees it: with a log store and file systems of its own."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        jvm: Any = spark._jvm
        self.jvm = jvm
        self.folder = folder
        self.conf = jvm.org.apache.hadoop.conf.Configuration(spark.sparkContext._jsc.hadoopConfiguration())
        self.store = self.jvm.penstock.delta.DirectoryLogStore(self.conf)

    def write(self, name: str, *lines: str, overwrite: bool = False) -> None:
        path = self.jvm.org.apache.hadoop.fs.Path(f"file:{self.folder / name}")
        found = self.jvm.java.util.ArrayList()
        for line in lines:
            found.add(line)
        self.store.write(path, found.iterator(), overwrite, self.conf)


def refused(error: Py4JJavaError) -> bool:
    return str(error.java_exception.getClass().getName()) == "java.nio.file.FileAlreadyExistsException"


def test_of_many_writers_of_a_version_exactly_one_succeeds(spark: SparkSession, tmp_path: Path) -> None:
    logs = [Log(spark, tmp_path) for _ in range(6)]
    for version in range(20):
        name, together = f"{version:020}.json", threading.Barrier(len(logs))

        def attempt(number: int, name: str = name, together: threading.Barrier = together) -> int | None:
            together.wait()
            try:
                logs[number].write(name, f"writer {number}", "ü" * 10_000)
            except Py4JJavaError as error:
                assert refused(error), error
                return None
            return number

        with ThreadPoolExecutor(len(logs)) as threads:
            won = [one for one in threads.map(attempt, range(len(logs))) if one is not None]
        assert len(won) == 1
        assert (tmp_path / name).read_text("utf-8") == f"writer {won[0]}\n{'ü' * 10_000}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{one:020}.json" for one in range(20)]


def test_what_is_no_commit_is_replaced(spark: SparkSession, tmp_path: Path) -> None:
    log = Log(spark, tmp_path)
    log.write("_last_checkpoint", "one", overwrite=True)
    log.write("_last_checkpoint", "two", "three", overwrite=True)
    assert (tmp_path / "_last_checkpoint").read_text() == "two\nthree\n"


def test_names_with_characters_of_urls_are_those_of_the_directory(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "a b%20ü#"
    folder.mkdir()
    Log(spark, folder).write("1.json", "one")
    assert (folder / "1.json").read_text() == "one\n"


def test_a_directory_that_is_not_there_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Py4JJavaError) as caught:
        Log(spark, tmp_path / "gone").write("1.json", "one")
    assert str(tmp_path / "gone") in str(caught.value.java_exception)
