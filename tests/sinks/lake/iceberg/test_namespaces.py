"""Namespaces of a catalog, which targets that are created at the same time share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from tests.sinks.conftest import Place
from tests.sinks.lake.iceberg.test_small_commit import iceberg

MEETING_SECONDS = 0.2
"""So long the first thread waits for a second one, which must not come."""


def test_targets_that_are_created_at_once_create_their_namespace_once(
    place: Callable[..., Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = iceberg(place("iceberg"))._catalog
    made: list[str] = []
    met = threading.Event()

    def sql(statement: str) -> None:
        made.append(statement)
        if len(made) == 2:
            met.set()
        met.wait(MEETING_SECONDS)

    monkeypatch.setattr(catalog, "_spark", SimpleNamespace(sql=sql))
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(catalog._namespace, [("new_one",)] * 2)
    assert len(made) == 1 and list(first) == list(second) == ["new_one"]
