"""Watermarks that are places in the binary log. The oracle is the server's list of its events."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import pytest

from penstock.errors import ConfigError
from penstock.sources.mysql.snapshot.reader import prepare_session
from penstock.sources.mysql.snapshot.watermark import SessionWatermarks, watermarks_of
from penstock.testing import servers
from penstock.testing.meanwhile import meanwhile
from penstock.testing.servers import DatabaseServer

SCHEMA = (
    "CREATE DATABASE d",
    "CREATE TABLE d.counted (id INT PRIMARY KEY, n INT) ENGINE = InnoDB",
    "INSERT INTO d.counted VALUES (0, 0), (1, 0), (2, 0), (3, 0)",
    "CREATE TABLE d.marks (slot SMALLINT UNSIGNED PRIMARY KEY, mark CHAR(36) NOT NULL) ENGINE = InnoDB",
)
WRITERS = 4
TRIALS, CHANGES = 60, 20
PLAIN = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}


def counting(server: DatabaseServer) -> AbstractContextManager[None]:
    """Each transaction adds one to a row of its session."""

    def count(number: int, ending: threading.Event) -> None:
        with server.connect() as connection, connection.cursor() as cursor:
            while not ending.wait(0.002):
                cursor.execute("UPDATE d.counted SET n = n + 1 WHERE id = %s", (number,))

    return meanwhile(*[partial(count, number) for number in range(WRITERS)])


def ends_of_updates(server: DatabaseServer, file: str) -> list[int]:
    """Positions at which transactions that changed `counted` end, by SHOW BINLOG EVENTS."""
    ends, pending = [], False
    for _, _, kind, _, end, info in server.query(f"SHOW BINLOG EVENTS IN '{file}'"):
        pending = pending or (kind == "Table_map" and "d.counted" in info)
        if kind == "Xid" and pending:
            ends.append(int(end))
            pending = False
    return ends[1:]  # the INSERT


def views(connection: Any, marks: SessionWatermarks) -> Iterator[tuple[Any, int]]:
    """Some trials, and as many more as the writers need to change something meanwhile."""
    seen, deadline = 0, time.monotonic() + 60
    for trial in itertools.count():
        if trial >= TRIALS and seen > CHANGES:
            return
        assert time.monotonic() < deadline, f"{seen} changes in {trial} trials"
        marks.begin()
        with connection.cursor() as cursor:
            cursor.execute("SELECT SUM(n) FROM d.counted")
            seen = int(cursor.fetchone()[0])
        yield marks.end(), seen


@pytest.mark.parametrize(
    "name", ["mysql80", *(pytest.param(n, marks=pytest.mark.slow) for n in servers.FLAVORS if n != "mysql80")]
)
def test_a_view_holds_all_up_to_the_low_place_and_nothing_behind_the_high_one(name: str) -> None:
    mariadb = name.startswith("mariadb")
    with servers.FLAVORS[name]({} if mariadb else PLAIN) as server, server.connect() as connection:
        server.execute(*SCHEMA)
        prepare_session(connection)
        marks = watermarks_of(connection, None if mariadb else "d.marks")
        with counting(server):
            found = list(views(connection, marks))
        ends = ends_of_updates(server, server.position()[0])
        assert len(ends) > CHANGES
        for taken, seen in found:
            assert taken.low_position is not None
            low = sum(end <= taken.low_position.position for end in ends)
            high = sum(end <= taken.high.position for end in ends)
            assert low <= seen <= high
            assert low == seen == high or not mariadb


def test_without_gtids_the_option_that_is_needed_is_named_and_the_table_is_checked() -> None:
    with servers.MySqlServer(PLAIN) as server, server.connect() as connection:
        server.execute(*SCHEMA, "CREATE TABLE d.other (slot INT PRIMARY KEY, mark CHAR(36)) ENGINE = MyISAM")
        prepare_session(connection)
        with pytest.raises(ConfigError, match=r"source\.watermark_table"):
            watermarks_of(connection, None)
        with pytest.raises(ConfigError, match=r"d\.none does not exist"):
            watermarks_of(connection, "d.none")
        with pytest.raises(ConfigError, match="MyISAM"):
            watermarks_of(connection, "d.other")
        server.execute("SET GLOBAL binlog_order_commits = OFF")
        with pytest.raises(ConfigError, match="binlog_order_commits = OFF"):
            watermarks_of(connection, "d.marks").begin()
