"""Rows that stand in the source's log and were taken back by their transaction (ROLLBACK, ROLLBACK TO)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.relaylog import taken_back, xa
from tests.sources.mysql.receiving import log_events, receiving, source_events

from penstock.testing import servers
from penstock.testing.servers import DatabaseServer

OPTIONS: dict[str, dict[str, Any]] = {
    "mysql57": {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"},
    "mariadb1011": {},
    "mariadb118": {},
}
"""Servers that log what a transaction took back. MySQL 8.0 and later, and MySQL with GTIDs, do not."""
UNDOABLE = "CREATE TEMPORARY TABLE d.tmp (id INT)"
"""The server cannot take a temporary table back, so it logs the whole transaction, and what was undone."""
FORCED = "DROP TEMPORARY TABLE d.tmp"

CASES = {
    "rows before a savepoint": (
        "BEGIN", "INSERT INTO d.t VALUES (1, 'a')", FORCED, "SAVEPOINT a1",
        "INSERT INTO d.t VALUES (2, 'b')", "ROLLBACK TO a1", "INSERT INTO d.t VALUES (3, 'c')", "COMMIT",
    ),
    "the rollback comes last": (
        "BEGIN", "INSERT INTO d.t VALUES (4, 'a')", "SAVEPOINT `A b`", "INSERT INTO d.t VALUES (5, 'b')",
        FORCED, "ROLLBACK TO `a B`", "COMMIT",
    ),
    "to an earlier savepoint after a later one": (
        "BEGIN", "INSERT INTO d.t VALUES (6, 'a')", FORCED, "SAVEPOINT a",
        "INSERT INTO d.t VALUES (7, 'b')", "SAVEPOINT b", "INSERT INTO d.t VALUES (8, 'c')",
        "ROLLBACK TO b", "ROLLBACK TO a", "INSERT INTO d.t VALUES (9, 'd')", "COMMIT",
    ),
    "a name set twice": (
        "BEGIN", "SAVEPOINT a", "INSERT INTO d.t VALUES (10, 'a')", FORCED, "SAVEPOINT A",
        "INSERT INTO d.t VALUES (11, 'b')", "ROLLBACK TO SAVEPOINT a", "COMMIT",
    ),
    "quotes in a name, and other quotes around it": (
        "BEGIN", "INSERT INTO d.t VALUES (12, 'a')", FORCED, 'SAVEPOINT `q``a"`',
        "INSERT INTO d.t VALUES (13, 'b')", "SET sql_mode = 'ANSI_QUOTES'", 'ROLLBACK TO `Q``a"`', "COMMIT",
    ),
    "no quotes around a name": (
        "BEGIN", "INSERT INTO d.t VALUES (14, 'a')", FORCED, "SAVEPOINT a",
        "INSERT INTO d.t VALUES (15, 'b')", "SET sql_quote_show_create = 0", "ROLLBACK TO A", "COMMIT",
    ),
    "two tables, one without transactions": (
        "INSERT INTO d.m VALUES (16, 'm')", "BEGIN", "INSERT INTO d.t VALUES (16, 'a')", FORCED,
        "SAVEPOINT a", "UPDATE d.t, d.m SET t.v = 'b', m.v = 'b' WHERE t.id = m.id", "ROLLBACK TO a",
        "COMMIT",
    ),
    "the whole transaction": ("BEGIN", "INSERT INTO d.t VALUES (17, 'a')", FORCED, "ROLLBACK"),
    "a savepoint before the first row": (
        "BEGIN", "SAVEPOINT a", "INSERT INTO d.t VALUES (18, 'a')", FORCED, "ROLLBACK TO a",
        "INSERT INTO d.t VALUES (19, 'b')", "COMMIT",
    ),
}  # fmt: skip


@pytest.mark.slow_for("mysql57", "mariadb118")
@pytest.mark.parametrize("flavor", OPTIONS)
def test_every_reader_has_the_rows_that_the_server_has(
    flavor: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with servers.FLAVORS[flavor](OPTIONS[flavor]) as server:
        _prepare(server)
        with receiving(server, tmp_path, start="latest") as receiver:
            receiver.wait_until_level()
            for name, statements in CASES.items():
                before = len(taken_back.statements_of(server))
                server.execute(UNDOABLE, *statements)
                logged = taken_back.statements_of(server)[before:]
                assert any(sql.startswith("ROLLBACK") for sql in logged), f"{name}: {logged}"
            workload = taken_back.Workload(server, seed=39)
            workload.run(60)
            logged = taken_back.statements_of(server)
            assert sum(sql.startswith("ROLLBACK TO") for sql in logged) > 20, logged
            assert "ROLLBACK" in logged
            if flavor != "mysql57":
                assert {sql[12] for sql in logged if sql.startswith("ROLLBACK TO")} >= {"`", '"', "a"}
            receiver.wait_until_level()
            _compare(server, receiver, tmp_path, capfd)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("flavor", OPTIONS)
def test_random_transactions(
    flavor: str, seed: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with servers.FLAVORS[flavor](OPTIONS[flavor]) as server:
        _prepare(server)
        with receiving(server, tmp_path, start="latest", span_size=2000) as receiver:
            receiver.wait_until_level()
            taken_back.Workload(server, seed).run(250)
            logged = [
                sql.lower() for sql in taken_back.statements_of(server) if sql.startswith("ROLLBACK TO")
            ]
            assert len(logged) > 100
            assert all(any(name in sql for sql in logged) for name in ("in f", "in f 2", "in w", "savepoint"))
            receiver.wait_until_level()
            _compare(server, receiver, tmp_path, capfd)


def _prepare(server: DatabaseServer) -> None:
    server.execute("CREATE DATABASE d", *taken_back.TABLES, *taken_back.ROUTINES, "FLUSH BINARY LOGS")


def _compare(server: DatabaseServer, receiver: Any, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ddl = folder / "tables.sql"
    ddl.write_text(taken_back.DDL)
    expected = taken_back.rows_of(server)
    assert all(expected.values())
    assert taken_back.of_batches(receiver) == expected
    assert taken_back.of_log_order(receiver) == expected
    assert taken_back.of_encode(server.binlog_files()[-1:], ddl, capfd) == expected
    assert taken_back.of_encode([receiver.log_path], ddl, capfd) == expected


@pytest.mark.slow
def test_a_transaction_that_was_taken_back_is_compared_after_a_restart(tmp_path: Path) -> None:
    with servers.mysql57(OPTIONS["mysql57"]) as server:
        _prepare(server)
        with receiving(server, tmp_path, start="latest") as receiver:
            receiver.wait_until_level()
            server.execute(
                UNDOABLE, "BEGIN", *(f"INSERT INTO d.t VALUES ({n}, UUID())" for n in range(60)), FORCED,
                "ROLLBACK", UNDOABLE, "INSERT INTO d.t VALUES (100, UUID())", "BEGIN",
                "UPDATE d.t SET v = UUID() WHERE id = 100", FORCED, "ROLLBACK",
            )  # fmt: skip
            assert taken_back.statements_of(server) == ["ROLLBACK", "ROLLBACK"]
            receiver.wait_until_level()
            assert receiver.stop() == 0
            receiver.start()  # the last transaction is not compared, or is equal
            server.execute("INSERT INTO d.t VALUES (104, 'row')")
            receiver.wait_until_level()
            assert receiver.stop() == 0
            sent = [event for event in source_events(server) if event[4] in xa.ROWS]
            kept = [event for event in log_events(receiver.log_path) if event[4] in xa.ROWS]
            assert len(sent) >= 60 and len(kept) < 10, "the source logs rows that were rolled back"
            assert taken_back.of_batches(receiver) == taken_back.rows_of(server)
