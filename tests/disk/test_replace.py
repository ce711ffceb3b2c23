"""A file is replaced as a whole, and durably where that is asked for."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from penstock.disk.replace import PUBLIC, replace_by, replace_file, sync


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "report.json"
    path.write_text("old")
    return path


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bytes]]:
    """What was made durable: the path, and what the file at `report.json` held then."""
    found: list[tuple[str, bytes]] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        place = Path(f"/proc/self/fd/{descriptor}").readlink()
        folder = place if place.is_dir() else place.parent
        found.append((place.name, (folder / "report.json").read_bytes()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    return found


def test_a_durable_content_is_on_disk_before_it_has_the_name_and_the_name_before_the_return(
    path: Path, synced: list[tuple[str, bytes]]
) -> None:
    replace_file(path, b"new", durable=True)
    draft = f"{path.name}.{os.getpid()}.tmp"
    assert synced == [(draft, b"old"), (path.parent.name, b"new")]
    assert path.read_bytes() == b"new" and [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_report_costs_no_fsync(path: Path, synced: list[tuple[str, bytes]]) -> None:
    replace_file(path, b"new", durable=False)
    assert path.read_bytes() == b"new" and synced == []


@pytest.mark.parametrize("durable", [True, False])
def test_an_error_leaves_the_old_content_and_no_draft(
    path: Path, durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"new", durable=durable)
    assert path.read_bytes() == b"old" and [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_readers_see_the_old_content_or_the_new_and_never_a_part(path: Path) -> None:
    contents = [bytes([letter]) * 100_000 for letter in b"ab"]
    replace_file(path, contents[0], durable=False)
    stopping = threading.Event()
    seen: set[bytes] = set()

    def look() -> None:
        while not stopping.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(200):
        replace_file(path, contents[number % 2], durable=False)
    stopping.set()
    reader.join()
    assert seen <= set(contents)


def test_the_file_is_for_this_account_alone(path: Path) -> None:
    old = os.umask(0)
    try:
        replace_file(path, b"new", durable=False)
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_draft_of_ones_own_takes_the_name(path: Path) -> None:
    replace_file(path, b"new", durable=False, draft=path.with_suffix(".alive"))
    assert path.read_bytes() == b"new" and [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_directories_are_synced_too(tmp_path: Path) -> None:
    sync(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync(tmp_path / "none")


def test_a_draft_is_durable_before_it_has_the_name_and_the_name_before_the_return(
    path: Path, synced: list[tuple[str, bytes]]
) -> None:
    draft = path.with_name("draft")
    draft.write_text("new")
    replace_by(path, draft)
    assert synced == [("draft", b"old"), (path.parent.name, b"new")] and not draft.exists()


def test_only_this_account_reads_a_file_unless_the_caller_says_otherwise(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        replace_file(tmp_path / "private", b"", durable=False)
        replace_file(tmp_path / "public", b"", durable=False, mode=PUBLIC)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"private": 0o600, "public": 0o640}
