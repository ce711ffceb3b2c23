"""A standby has a copy of the slot, and becomes the primary."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.sources.postgresql.pg_log import connected
from tests.sources.postgresql.receiving import Receiving, changes_of, receive

from penstock.model.schema import TableId
from penstock.sources.postgresql.preflight import PostgreSqlPreflight
from penstock.sources.postgresql.slot_state import FAILOVER
from penstock.sources.preflight import Finding
from penstock.testing.scenario import wait_for
from penstock.testing.servers.postgresql import PostgreSqlServer
from penstock.testing.servers.postgresql_standby import PostgreSqlStandby

pytestmark = pytest.mark.slow

TABLE = TableId("public", "t")
SLOT = "standby"
"""By which the primary keeps its log for the standby."""
_FOLLOWING = {
    "primary_slot_name": SLOT, "hot_standby_feedback": "on", "wal_receiver_status_interval": "1s",
    "wal_retrieve_retry_interval": "200ms",
}  # fmt: skip
ROWS_MIN = 500
"""Rows that are written before the primary is killed, and after that."""


@pytest.fixture
def primary(version: int) -> Iterator[PostgreSqlServer]:
    with PostgreSqlServer(settings={"wal_level": "logical"}, version=version) as server:
        with connected(server) as connection:
            connection.execute("CREATE TABLE t (id int PRIMARY KEY, body text)")
            connection.execute("CREATE PUBLICATION penstock_p FOR TABLE t")
            connection.execute("SELECT pg_create_physical_replication_slot(%s, true)", (SLOT,))
        yield server


@pytest.fixture
def standby(primary: PostgreSqlServer) -> Iterator[PostgreSqlStandby]:
    copies = {"sync_replication_slots": "on"} if primary.version * 10_000 >= FAILOVER else {}
    with PostgreSqlStandby(primary, settings={**_FOLLOWING, **copies}) as server:
        yield server


@pytest.fixture
def receiving(primary: PostgreSqlServer, standby: PostgreSqlStandby, tmp_path: Path) -> Receiving:
    return _receiving(primary, standby, tmp_path)


def _receiving(primary: PostgreSqlServer, standby: PostgreSqlStandby, folder: Path) -> Receiving:
    return Receiving(primary, folder, "p", host=[f"{one.host}:{one.port}" for one in (primary, standby)])


class Writer:
    """Writes rows in transactions of some, at one server after the other."""

    def __init__(self) -> None:
        self.number = 0

    def write(self, server: PostgreSqlServer, *, until: threading.Event) -> None:
        """Until the server is gone, or the event."""
        with contextlib.suppress(psycopg.Error), connected(server) as connection:
            while not until.is_set():
                with connection.transaction(force_rollback=self.number % 7 == 3):
                    for _ in range(1 + self.number % 5):
                        self.number += 1
                        body = "x" * (self.number % 300)
                        connection.execute("INSERT INTO t VALUES (%s, %s)", (self.number, body))


def _count(server: PostgreSqlServer) -> int:
    with connected(server) as connection:
        [(count,)] = connection.execute("SELECT count(*) FROM t")
    return int(count)


def _set(server: PostgreSqlServer, name: str, value: str) -> None:
    with connected(server) as connection:
        connection.execute(f"ALTER SYSTEM SET {name} = '{value}'".encode())
        connection.execute("SELECT pg_reload_conf()")


def _promote(standby: PostgreSqlStandby) -> None:
    with connected(standby) as connection:
        assert connection.execute("SELECT pg_promote()").fetchone() == (True,)


def _has_copy(standby: PostgreSqlStandby) -> bool:
    query = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s AND synced AND NOT temporary"
    with connected(standby) as connection:
        return connection.execute(query, ("penstock_p",)).fetchone() == (1,)


def _findings(receiving: Receiving) -> list[Finding]:
    return PostgreSqlPreflight(receiving.config).check(receiving.config)


def _of(findings: list[Finding], check: str) -> list[Finding]:
    return [one for one in findings if one.check == check]


def test_the_receiver_goes_on_at_the_new_primary_without_loss(
    primary: PostgreSqlServer, standby: PostgreSqlStandby, receiving: Receiving
) -> None:
    if primary.version * 10_000 < FAILOVER:
        pytest.skip("standbys have no copies of slots")
    [warned] = [one for one in _of(_findings(receiving), "failover") if one.level == "warning"]
    assert f"synchronized_standby_slots = '{SLOT}'" in warned.sql
    _set(primary, "synchronized_standby_slots", SLOT)
    writer, ended = Writer(), threading.Event()
    with receiving.started():
        receiving.wait_until_streaming()
        receiving.wait(lambda: _has_copy(standby), "a copy of the slot")
        assert [one.level for one in _of(_findings(receiving), "failover")] == ["ok"]
        first = threading.Thread(target=writer.write, args=(primary,), kwargs={"until": ended})
        first.start()
        receiving.wait(lambda: _count(primary) > ROWS_MIN, "rows")
        primary.kill9()
        first.join()
        before = writer.number
        _promote(standby)
        second = threading.Thread(target=writer.write, args=(standby,), kwargs={"until": ended})
        second.start()
        receiving.wait(lambda: writer.number > before + ROWS_MIN, "rows at the new primary")
        ended.set()
        second.join()
        with connected(standby) as connection:
            receiving.wait_until_received(connection)
    with connected(standby) as connection:
        found = changes_of(receiving, connection, TABLE)
        wanted = dict(connection.execute("SELECT id, body FROM t").fetchall())
    assert len(wanted) > ROWS_MIN
    assert Counter(row["id"] for row in found) == Counter(wanted.keys())
    assert {row["id"]: row["body"] for row in found} == wanted
    primary.start()  # nobody has told it that it is not the primary any more
    [two] = _of(_findings(receiving), "failover")
    assert two.level == "error" and "both primaries" in two.message
    done = receive(receiving)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert "is still on timeline 1" in done.stderr and "Stop the former primary" in done.stderr


def test_a_standby_that_lacks_the_end_of_the_log_is_refused(
    primary: PostgreSqlServer, standby: PostgreSqlStandby, receiving: Receiving
) -> None:
    """Without `synchronized_standby_slots`, the receiver may be ahead of the standby."""
    with receiving.started():
        receiving.wait_until_streaming()
        if primary.version * 10_000 >= FAILOVER:
            receiving.wait(lambda: _has_copy(standby), "a copy of the slot")
        standby.stop()
        with connected(primary) as connection:
            connection.execute("INSERT INTO t SELECT generate_series(1, 5), 'lost'")
            receiving.wait_until_received(connection)
    primary.kill9()
    standby.start()
    _promote(standby)
    done = receive(receiving)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert "became the primary without the rest" in done.stderr


def test_a_primary_without_the_slot_is_refused(primary: PostgreSqlServer, tmp_path: Path) -> None:
    with PostgreSqlStandby(primary, settings=_FOLLOWING) as standby:
        receiving = _receiving(primary, standby, tmp_path)
        with receiving.started():
            receiving.wait_until_streaming()
            with connected(primary) as connection, connected(standby) as reading:
                connection.execute("INSERT INTO t VALUES (1, 'x')")
                receiving.wait_until_received(connection)
                [(end,)] = connection.execute("SELECT pg_current_wal_flush_lsn()::text")
                has = "SELECT pg_last_wal_receive_lsn() >= %s::pg_lsn"
                wait_for(lambda: reading.execute(has, (end,)).fetchone() == (True,), "the standby")
        said = " ".join(one.message + one.sql for one in _of(_findings(receiving), "failover"))
        is_copied = primary.version * 10_000 >= FAILOVER
        assert ("sync_replication_slots = 'on'" if is_copied else "Before version 17") in said
        primary.kill9()
        _promote(standby)
        done = receive(receiving)
        assert done.returncode != 0 and "Traceback" not in done.stderr
        assert "became the primary without a copy of it" in done.stderr
        assert ("from version 17 on" in done.stderr) is not is_copied
