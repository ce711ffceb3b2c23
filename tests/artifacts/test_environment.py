"""The archive of Python packages for workers has what tasks import, and nothing decides its content but the
packages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import pyspark
import pytest

from penstock.artifacts import environment
from penstock.artifacts.maven import cache_directory
from penstock.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, and an environment of one small package beside Penstock."""
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(environment, "PACKAGES", ("typing_extensions",))
    return cache_directory() / "environments"


def test_each_dependency_is_for_tasks_or_for_the_driver() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {re.split(r"[^\w.-]", one)[0] for one in project["dependencies"]}
    assert {*environment.PACKAGES, *environment.DRIVER_ONLY} == named


def test_a_python_without_packages_imports_what_tasks_need_from_the_archive(tmp_path: Path) -> None:
    with tarfile.open(environment.archive()) as tar:
        tar.extractall(tmp_path, filter="data") if hasattr(tarfile, "data_filter") else tar.extractall(
            tmp_path
        )
    spark = sorted((Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip"))
    code = (
        "import penstock.epochs.tasks as tasks; list(tasks.first_imports(()));"
        "import penstock.spark.stage_chunk,"
        "penstock.sinks.lake.lookup, penstock.sources.mysql.source, penstock.store.objects, obstore.store,"
        "cryptography.x509, pymysql, sys; print(tasks.__file__, 'pandas' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": ":".join([str(tmp_path), *map(str, spark)])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == [str(tmp_path / "penstock/epochs/tasks.py"), "False"], done.stderr


def test_the_archive_is_made_once_and_has_the_same_bytes_on_every_machine(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = environment.archive()
    assert first.parent == small and [one.name for one in small.glob("*.gz")] == [first.name]
    written = first.stat()
    again = environment.archive()
    assert again == first and again.stat().st_ino == written.st_ino
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "other"))
    assert environment.archive().read_bytes() == first.read_bytes()


def test_two_processes_make_one_archive(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed, pack = [], environment._pack

    def counted(files: environment.Files, target: Path) -> None:
        packed.append(target)
        pack(files, target)

    monkeypatch.setattr(environment, "_pack", counted)
    threads = [threading.Thread(target=environment.archive) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(packed) == 1


def test_what_a_killed_process_began_is_removed_and_never_used(small: Path) -> None:
    path = environment.archive()
    path.unlink()
    left = path.with_name(f".{path.name}-abc")
    left.write_bytes(b"half")
    with tarfile.open(environment.archive()) as tar:
        assert "penstock/__init__.py" in tar.getnames()
    assert not left.exists()


def test_a_changed_source_makes_another_archive(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = _package(tmp_path, "penstock_test_sink", editable=True)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.syspath_prepend(str(tmp_path / "source"))
    assert environment.plugins() == ["penstock-test-sink"]
    before = environment.archive()
    with tarfile.open(before) as tar:
        names = tar.getnames()
    assert "penstock_test_sink/__init__.py" in names, "an editable installation is packed from its folder"
    assert "penstock_test_sink-1.0.dist-info/entry_points.txt" in names, "workers find the sink by it"
    module.write_text("VALUE = 2  # as long as before".ljust(60))
    assert environment.archive() != before


def test_a_package_without_a_list_of_files_is_refused(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _package(tmp_path, "penstock_test_sink", editable=True)
    (tmp_path / "site" / "penstock_test_sink-1.0.dist-info" / "RECORD").unlink()
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    with pytest.raises(ConfigError, match="penstock-test-sink has no list of its files") as error:
        environment.archive()
    assert "`spark.environment: none`" in error.value.hint


def test_the_archives_used_last_are_kept(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "ARCHIVES_MAX", 1)
    path = environment.archive()
    old = path.with_name("penstock-py3.9-old.tar.gz")
    old.write_bytes(b"")
    os.utime(old, (1, 1))
    environment.archive()
    assert path.exists() and not old.exists()


def _package(folder: Path, name: str, *, editable: bool) -> Path:
    """An installed package that registers a sink. Its module."""
    info = folder / "site" / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[penstock.sinks]\nprobe = {name}:SINK\n")
    record = [f"{info.name}/METADATA,,", f"{info.name}/entry_points.txt,,", f"{name}.pth,,"]
    (info / "RECORD").write_text("\n".join(record))
    (folder / "site" / f"{name}.pth").write_text(str(folder / "source"))
    module = folder / "source" / name / "__init__.py"
    module.parent.mkdir(parents=True)
    module.write_text("VALUE = 1".ljust(60))
    return module
