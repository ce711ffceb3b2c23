"""Fixtures: the scripted source is installed, as a package of its own would be."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.scripted import registration


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site-packages")
    registration.install(folder)
    return folder


@pytest.fixture(autouse=True)
def _importable(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(installed))
