"""Jars are used only as they are pinned: whatever is in the cache, whatever a download brings."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.artifacts import maven
from penstock.artifacts.maven import cache_directory, fetch
from penstock.artifacts.pinned import SHA256
from penstock.errors import ConfigError
from penstock.sinks.jars import LOCAL_FILES
from penstock.sinks.lake.iceberg import registration
from penstock.sinks.registry import OWN
from penstock.testing import servers

SMALL = LOCAL_FILES
"""The smallest jar: 9 kB."""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own, that holds the small jar."""
    [jar] = fetch(SMALL)
    group, name, version = SMALL.split(":")
    folder = tmp_path / "cache" / "artifacts" / group / f"{name}-{version}"
    folder.mkdir(parents=True)
    shutil.copy(jar, folder)
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    assert cache_directory() == tmp_path / "cache"
    yield folder


def test_every_jar_that_is_fetched_is_pinned() -> None:
    fetched = [LOCAL_FILES, *[jar for kind in OWN for jar in kind.jars]]
    assert len(fetched) > 2, "Iceberg and Delta have some"
    fetched += [*registration._BUNDLES.values(), *registration._DRIVERS.values()]
    fetched += [kind.artifact for kind in servers.FLAVORS.values() if hasattr(kind, "artifact")]
    fetched += map(servers.PostgreSqlServer.artifact, servers.PostgreSqlServer.RELEASES)
    for coordinates in fetched:
        _, name, version = coordinates.split(":")
        assert f"{name}-{version}.jar" in SHA256


def test_an_artifact_with_a_classifier_has_a_place_of_its_own(cache: Path) -> None:
    folder = cache.parents[1] / "org.other" / "server-1.0-runner"
    folder.mkdir(parents=True)
    jar = folder / "server-1.0-runner.jar"
    jar.write_bytes(b"jar")
    assert fetch("org.other:server:1.0:runner", pins={jar.name: maven.sha256(jar)}) == [jar]


def test_a_jar_that_was_changed_in_the_cache_is_not_used(cache: Path) -> None:
    [jar] = fetch(SMALL)
    with jar.open("r+b") as file:
        file.seek(100)
        file.write(b"\0")
    for _ in range(2):  # it is not used the next time either
        with pytest.raises(ConfigError, match="not the file that Penstock expects") as refused:
            fetch(SMALL)
        assert str(jar) in refused.value.message and str(cache) in refused.value.hint


def test_a_jar_of_the_same_size_and_time_is_told_apart_by_the_next_process(cache: Path) -> None:
    [jar] = fetch(SMALL)
    status = jar.stat()
    changed = bytearray(jar.read_bytes())
    changed[-1] ^= 1
    jar.write_bytes(changed)
    os.utime(jar, ns=(status.st_atime_ns, status.st_mtime_ns))
    maven._sha256.cache_clear()
    with pytest.raises(ConfigError, match="not the file that Penstock expects"):
        fetch(SMALL)


def test_a_jar_that_was_added_in_the_cache_is_not_used(cache: Path) -> None:
    (cache / "evil.jar").write_bytes(b"PK")
    with pytest.raises(ConfigError, match=r"evil\.jar.*none is pinned"):
        fetch(SMALL)


def test_an_empty_folder_in_the_cache_is_named_with_the_cure(cache: Path) -> None:
    for jar in cache.iterdir():
        jar.unlink()
    with pytest.raises(ConfigError, match="does not hold") as refused:
        fetch(SMALL)
    assert f"Remove {cache}" in refused.value.hint


def mirror(folder: Path, content: bytes) -> Path:
    """Ivy settings of a mirror on this machine that has other bytes under the small jar's name."""
    group, name, version = SMALL.split(":")
    place = folder / "mirror" / group / name / version
    place.mkdir(parents=True)
    (place / f"{name}-{version}.jar").write_bytes(content)
    settings = folder / "ivysettings.xml"
    pattern = f"{folder}/mirror/[organisation]/[module]/[revision]/[artifact]-[revision].[ext]"
    settings.write_text(
        '<ivysettings><settings defaultResolver="here"/><resolvers><filesystem name="here">'
        f'<artifact pattern="{pattern}"/></filesystem></resolvers></ivysettings>'
    )
    return settings


def test_a_download_that_was_changed_on_its_way_is_thrown_away(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    good = fetch(SMALL)[0].read_bytes()
    shutil.rmtree(cache)
    monkeypatch.setenv("PENSTOCK_IVY_SETTINGS", str(mirror(tmp_path, good[:-1] + b"x")))
    with pytest.raises(ConfigError, match="It was deleted") as refused:
        fetch(SMALL)
    assert SMALL in refused.value.message and SHA256[f"{SMALL.split(':')[1]}-0.1.0.jar"] in str(refused.value)
    assert [path.name for path in cache.parent.iterdir()] == [f"{cache.name}.lock"]
    shutil.rmtree(tmp_path / "mirror")
    monkeypatch.setenv("PENSTOCK_IVY_SETTINGS", str(mirror(tmp_path, good)))
    assert fetch(SMALL)[0].read_bytes() == good


def test_a_cache_that_cannot_be_made_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(ConfigError, match="cannot be created") as refused:
        fetch(SMALL)
    assert "PENSTOCK_CACHE" in refused.value.hint
    assert stat.S_ISREG((tmp_path / "file").stat().st_mode)
