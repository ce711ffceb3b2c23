"""Read views whose place in the log is known. The judge is the server's own list of its log's events."""

from __future__ import annotations

import itertools
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.sources.mysql.receiving import receiving
from tests.sources.mysql.test_watermarks_by_place import ends_of_updates

from penstock.model.offset import LogRange, Offset
from penstock.model.schema import TableId
from penstock.relaylog.files import LogPlace
from penstock.snapshot.single_view import SingleView
from penstock.sources.mysql.snapshot.reader import prepare_session
from penstock.sources.mysql.snapshot.watermark import watermarks_of
from penstock.testing import servers
from penstock.testing.meanwhile import meanwhile
from penstock.testing.servers import DatabaseServer

SCHEMA = (
    "CREATE DATABASE d",
    "CREATE TABLE d.counted (id INT PRIMARY KEY, n INT) ENGINE = InnoDB",
    "CREATE TABLE d.other (id INT PRIMARY KEY, n INT) ENGINE = InnoDB",
    "INSERT INTO d.counted VALUES (0, 0), (1, 0)",
    "INSERT INTO d.other VALUES (0, 0), (1, 0)",
    "CREATE TABLE d.marks (slot SMALLINT UNSIGNED PRIMARY KEY, mark CHAR(36) NOT NULL) ENGINE = InnoDB",
)
PLAIN = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}
TRIALS, CHANGES = 30, 60
SERVERS = [(name, plain) for name in servers.FLAVORS for plain in (False, True)
           if not (plain and name.startswith("mariadb"))]  # fmt: skip
"""And whether they have no GTIDs."""


def count(server: DatabaseServer, table: str, number: int, pause: float, ending: threading.Event) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        while not ending.wait(pause):
            cursor.execute(f"UPDATE d.{table} SET n = n + 1 WHERE id = %s", (number,))


@pytest.mark.parametrize(
    ("name", "plain"),
    [pytest.param(*one, marks=[] if one == ("mysql80", False) else pytest.mark.slow) for one in SERVERS],
)
def test_a_view_shows_the_table_as_it_stood_at_its_offset(name: str, plain: bool, tmp_path: Path) -> None:
    writers = [("counted", 0, 0.005), ("counted", 1, 0.01), ("other", 0, 0.0), ("other", 1, 0.001)]
    with servers.FLAVORS[name](PLAIN if plain else {}) as server, server.connect() as connection:
        server.execute(*SCHEMA)
        prepare_session(connection)
        marks = watermarks_of(connection, "d.marks" if plain else None)
        found: list[tuple[int, Offset]] = []
        with receiving(server, tmp_path) as receiver:
            receiver.wait_until_level()
            whole = SingleView(LogPlace(receiver.log_path), frozenset({TableId("d", "counted")}), Offset(0))
            with meanwhile(*[partial(count, server, *one) for one in writers]):
                deadline = time.monotonic() + 240
                for trial in itertools.count():
                    if trial >= TRIALS and found[-1][0] > CHANGES:
                        break
                    assert time.monotonic() < deadline, f"{found[-1:]} in {trial} trials"
                    at = whole.open(marks)[1]
                    found.append((_sum(connection), at))
                    connection.rollback()
            receiver.wait_until_level()
            log = receiver.log
            ends = ends_of_updates(server, server.position()[0])
            for seen, at in found:
                position = log.position_at(at)
                assert seen == sum(end <= position.order[-1] for end in ends), (at, position)


def test_a_view_of_an_idle_source_is_placed_behind_what_the_log_has_grown(tmp_path: Path) -> None:
    """Each connection of the receiver begins a segment, so the log grows although nobody writes."""
    with servers.FLAVORS["mysql80"]({}) as server, server.connect() as connection:
        server.execute(*SCHEMA)
        prepare_session(connection)
        marks = watermarks_of(connection, None)
        with receiving(server, tmp_path) as receiver:
            receiver.wait_until_level()
            first = receiver.log.end
        with receiving(server, tmp_path) as receiver:
            receiver.wait_for(lambda: receiver.log.end > first, "second segment")
            log = receiver.log
            assert not log.transactions_between(LogRange(first, log.end))
            whole = SingleView(LogPlace(receiver.log_path), frozenset({TableId("d", "counted")}), first)
            assert first < whole.open(marks)[1] <= log.end


def _sum(connection: Any) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT SUM(n) FROM d.counted")
        return int(cursor.fetchone()[0])
