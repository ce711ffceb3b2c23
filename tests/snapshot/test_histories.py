"""Snapshots, partial snapshots and signals under writers, against a real server: see `histories.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.snapshot.histories import History
from tests.sources.mysql.receiving import Receiving, receiving

from penstock.signals import work
from penstock.sources import chunk_bounds
from penstock.testing.servers import Database, MySqlServer

QUICK, SLOW = range(3), range(100, 160)


@pytest.fixture(scope="module")
def receiver(mysql_server: MySqlServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiving]:
    folder = tmp_path_factory.mktemp("histories")
    options = {"segment_size": 60_000, "span_size": 3_000}
    with receiving(mysql_server, folder, start="latest", **options) as found:
        found.wait_until_level()
        yield found


@pytest.mark.parametrize("seed", [*QUICK, *(pytest.param(seed, marks=pytest.mark.slow) for seed in SLOW)])
def test_the_target_is_what_the_server_says_whenever_it_is_asked(
    seed: int, mysql: Database, receiver: Receiving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(chunk_bounds, "CHUNK_KEYS", 2)
    History(seed, mysql, receiver, tmp_path).play()
