"""The life of a slot: what is said of it, and how it is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sources.postgresql.pg_log import connected
from tests.sources.postgresql.receiving import Receiving, changes_of, receive

from penstock.model.schema import TableId
from penstock.runtime.describe import describe_receiver
from penstock.sources.postgresql.preflight import PostgreSqlPreflight
from penstock.testing.scenario import wait_for
from penstock.testing.servers.postgresql import PostgreSqlServer

pytestmark = pytest.mark.slow

TABLE = TableId("public", "t")
WAL_MB = 48
"""More than two files of the server's log."""


@pytest.fixture
def own_server(version: int) -> Iterator[PostgreSqlServer]:
    settings = {"wal_level": "logical", "max_prepared_transactions": "2", "min_wal_size": "32MB"}
    with PostgreSqlServer(settings=settings, version=version) as server:
        with connected(server) as connection:
            connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
            connection.execute("CREATE TABLE foreign_traffic (body text)")
            connection.execute("CREATE PUBLICATION penstock_p FOR TABLE t")
            connection.execute('CREATE PUBLICATION "all" FOR ALL TABLES')
        yield server


@pytest.fixture
def receiving(own_server: PostgreSqlServer, tmp_path: Path) -> Receiving:
    return Receiving(own_server, tmp_path, "p")


def _set(server: PostgreSqlServer, name: str, value: str) -> None:
    with connected(server) as connection:
        connection.execute(f"ALTER SYSTEM SET {name} = '{value}'".encode())
        connection.execute("SELECT pg_reload_conf()")
        shown = "SELECT count(*) FROM pg_file_settings WHERE name = %s AND applied"
        assert connection.execute(shown, (name,)).fetchone() == (1,)


def _write(server: PostgreSqlServer) -> None:
    with connected(server) as connection:
        connection.execute(
            f"INSERT INTO foreign_traffic SELECT repeat('x', 1000) FROM generate_series(1, {WAL_MB * 1000})"
            .encode()
        )  # fmt: skip
        connection.execute("SELECT pg_switch_wal()")
        connection.execute("CHECKPOINT")


def _of(receiving: Receiving, check: str) -> list[tuple[str, str]]:
    """The findings of a check: level and message."""
    found = PostgreSqlPreflight(receiving.config).check(receiving.config)
    return [(one.level, one.message) for one in found if one.check == check]


def test_a_slot_that_was_away_for_too_much_log_is_lost(
    own_server: PostgreSqlServer, receiving: Receiving
) -> None:
    _set(own_server, "max_slot_wal_keep_size", "32MB")
    with receiving.started(), connected(own_server) as connection:
        receiving.wait_until_streaming()
        connection.execute("INSERT INTO t VALUES (1)")
        receiving.wait_until_received(connection)
    assert [level for level, _ in _of(receiving, "slot")] == ["ok"]
    assert "keeps at most 32 MB" in _of(receiving, "retention")[0][1]
    _write(own_server)
    _write(own_server)
    [(level, said)] = _of(receiving, "backlog")
    assert level == "error" and "max_slot_wal_keep_size" in said
    done = receive(receiving)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert "is invalid: the receiver was away for longer" in done.stderr
    assert "max_slot_wal_keep_size" in done.stderr and "penstock reset FILE" in done.stderr


def test_an_idle_slot_is_lost_after_the_timeout_of_the_server(
    own_server: PostgreSqlServer, receiving: Receiving
) -> None:
    if own_server.version < 18:
        pytest.skip("the server has no such timeout")
    with receiving.started():
        receiving.wait_until_streaming()
    _set(own_server, "idle_replication_slot_timeout", "1s")
    [(level, said)] = _of(receiving, "idle_timeout")
    assert level == "warning" and "longer than 1s" in said
    with connected(own_server) as connection:

        def is_lost() -> bool:
            connection.execute("CHECKPOINT")
            reason = "SELECT invalidation_reason FROM pg_replication_slots"
            return connection.execute(reason).fetchone() == ("idle_timeout",)

        wait_for(is_lost, "the loss of the slot")
    done = receive(receiving)
    assert done.returncode != 0
    assert "longer than `idle_replication_slot_timeout`" in done.stderr


def test_a_receiver_waits_for_a_slot_that_another_one_uses(
    own_server: PostgreSqlServer, receiving: Receiving, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = Receiving(own_server, tmp_path / "other", "p")
    with receiving.started():
        receiving.wait_until_streaming()
        with other.started(), connected(own_server) as connection:
            other.wait(lambda: "is in use" in str(other.report().get("message")), "a report of the other one")
            [(pid,)] = connection.execute("SELECT active_pid FROM pg_replication_slots").fetchall()
            assert str(pid) in other.report()["message"]
            assert receiving.report()["state"] == "streaming"


def test_the_status_says_what_the_server_keeps_and_for_how_long(
    own_server: PostgreSqlServer, receiving: Receiving
) -> None:
    _set(own_server, "max_slot_wal_keep_size", "4GB")
    with receiving.started():
        receiving.wait_until_streaming()
        _write(own_server)

        def left() -> int | None:
            slot = receiving.report().get("slot") or {}
            found: int | None = slot.get("source_log_seconds_left")
            return found

        receiving.wait(left, "two looks at the slot")
        slot = receiving.report()["slot"]
        assert slot["wal_status"] in ("reserved", "extended")
        assert 0 < slot["safe_bytes"] < 5 << 30
        shown = describe_receiver(receiving.config.relay_log_path)
        assert "slot reserved, keeps" in shown and "if the receiver stops" in shown


def test_a_slot_that_sends_prepared_transactions_is_refused(
    own_server: PostgreSqlServer, receiving: Receiving
) -> None:
    with connected(own_server) as connection:
        connection.execute(
            "SELECT pg_create_logical_replication_slot('penstock_p', 'pgoutput', twophase => true)"
        )
    done = receive(receiving)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert "was made with `two_phase`" in done.stderr
    assert any("two_phase" in message for _, message in _of(receiving, "slot"))


def test_rows_of_a_prepared_transaction_come_when_it_is_committed(
    own_server: PostgreSqlServer, receiving: Receiving
) -> None:
    with receiving.started(), connected(own_server) as connection:
        receiving.wait_until_streaming()
        for statement in ("BEGIN", "INSERT INTO t VALUES (1)", "PREPARE TRANSACTION 'one'"):
            connection.execute(statement.encode())
        connection.execute("INSERT INTO t VALUES (2)")
        receiving.wait_until_received(connection)
        assert [row["id"] for row in changes_of(receiving, connection, TABLE)] == [2]
        connection.execute("COMMIT PREPARED 'one'")
        receiving.wait_until_received(connection)
        assert [row["id"] for row in changes_of(receiving, connection, TABLE)] == [2, 1]
