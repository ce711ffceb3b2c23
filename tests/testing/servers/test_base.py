"""What the cache keeps of a server's release."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.testing.servers.base import DatabaseServer


class Server(DatabaseServer):
    release = "some-1.0"

    @classmethod
    def unpack(cls, target: Path) -> None:
        (target / "program").write_text(f"of files {cls.files}")

    @classmethod
    def initialise(cls, target: Path) -> None:
        (target / "data").write_text(f"by the program {(cls.home() / 'program').read_text()}")


def test_another_version_of_the_files_is_unpacked_beside_the_first_and_makes_its_own_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    first = Server.prepare()
    monkeypatch.setattr(Server, "files", 2)
    second = Server.prepare()
    assert (first / "data").read_text() == "by the program of files 1"
    assert (second / "data").read_text() == "by the program of files 2"
    monkeypatch.undo()
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    assert Server.prepare() == first != second
