"""What the Python daemon changes, and what it leaves."""

from __future__ import annotations

import importlib
import sys
import zipfile
from importlib.machinery import FileFinder
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.spark.daemon import invalidate_directory_caches, without_archive


def test_a_module_written_after_its_directory_was_listed_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("penstock_test_late")
    finder = sys.path_importer_cache[str(tmp_path)]
    assert isinstance(finder, FileFinder)
    (tmp_path / "penstock_test_late.py").write_text("VALUE = 1")
    finder._path_mtime = tmp_path.stat().st_mtime  # type: ignore[attr-defined]  # as on a coarse clock
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("penstock_test_late")
    invalidate_directory_caches()
    assert importlib.import_module("penstock_test_late").VALUE == 1


def test_archives_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "some.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("penstock_test_zipped.py", "VALUE = 2")
    monkeypatch.syspath_prepend(str(archive))
    assert importlib.import_module("penstock_test_zipped").VALUE == 2
    finder = sys.path_importer_cache[str(archive)]
    forgotten: list[bool] = []
    monkeypatch.setattr(finder, "invalidate_caches", lambda: forgotten.append(True))
    invalidate_directory_caches()
    assert sys.path_importer_cache[str(archive)] is finder
    assert not forgotten


def test_an_archive_of_sources_gives_way_only_to_the_package_it_was_made_from(tmp_path: Path) -> None:
    def installed(folder: Path) -> str:
        (folder / "pyspark" / "python" / "lib").mkdir(parents=True)
        (folder / "pyspark" / "__init__.py").write_text("")
        (folder / "pyspark" / "python" / "lib" / "pyspark.zip").write_bytes(b"")
        return str(folder / "pyspark" / "python" / "lib" / "pyspark.zip")

    own, other = installed(tmp_path / "own"), installed(tmp_path / "other")
    packages = [str(tmp_path / "some.zip"), str(tmp_path / "own")]
    assert without_archive([own, *packages]) == packages
    linked = tmp_path / "linked"
    linked.symlink_to(tmp_path / "own")
    assert without_archive([str(linked / Path(own).relative_to(tmp_path / "own")), *packages]) == packages
    assert without_archive([other, *packages]) == [other, *packages]
    assert without_archive([own, packages[0]]) == [own, packages[0]]
    assert without_archive(packages) == packages


def test_one_daemon_forks_the_workers_of_all_tasks_and_none_compiles_pyspark(spark: SparkSession) -> None:
    def look() -> tuple[int, str]:
        import os

        import pyspark

        return os.getppid(), pyspark.__file__

    def rows(batches):  # type: ignore[no-untyped-def]
        import pyarrow as pa

        for _ in batches:
            daemon, package = look()
            yield pa.RecordBatch.from_pydict({"daemon": [daemon], "package": [package]})

    [row] = spark.range(0, 1, 1, 1).mapInArrow(rows, "daemon bigint, package string").collect()
    assert spark.sparkContext.parallelize([0], 1).map(lambda _: look()).collect() == [tuple(row)]
    assert ".zip" not in row["package"]


def test_workers_run_under_the_daemon_and_user_code_keeps_importlib(spark: SparkSession) -> None:
    def look(batches):  # type: ignore[no-untyped-def]
        import importlib

        import pyarrow as pa
        from pyspark import worker_util

        for _ in batches:
            yield pa.RecordBatch.from_pydict(
                {
                    "patched": [vars(worker_util)["importlib"].invalidate_caches.__name__],
                    "own": [importlib.invalidate_caches.__name__],
                    "interpreter": [sys.executable],
                }
            )

    frame = spark.range(0, 1, 1, 1).mapInArrow(look, "patched string, own string, interpreter string")
    assert tuple(frame.collect()[0]) == (
        "invalidate_directory_caches",
        "invalidate_caches",
        sys.executable,
    )


def test_modules_that_all_workers_share_are_not_searched_for_garbage_after_each_task(
    spark: SparkSession,
) -> None:
    def look(batches):  # type: ignore[no-untyped-def]
        import gc

        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pydict(
                {"apart": [gc.get_freeze_count()], "others": [len(gc.get_objects())]}
            )

    [row] = spark.range(0, 1, 1, 1).mapInArrow(look, "apart bigint, others bigint").collect()
    assert row["apart"] > 10 * row["others"]
