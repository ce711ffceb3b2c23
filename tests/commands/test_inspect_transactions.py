"""Which transaction `penstock inspect` says a change is of, and how many it counts; the judge is the server's
own SHOW BINLOG EVENTS."""

from __future__ import annotations

import bisect
import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import pymysql
import pytest
from tests.commands.test_inspect import changes, summary

from penstock._core import read_statement
from penstock.testing import servers
from penstock.testing.servers import DatabaseServer, MySqlServer

RECORDED = Path(__file__).parent / "data" / "mariadb-10.11.binlog"
"""All kinds of transactions below, as MariaDB 10.11 wrote them; it is one that `make test` does not start."""
GTIDS = {
    379: "0-1-234", 883: "0-1-235", 1091: "0-1-236", 1339: "0-1-237", 1477: "0-1-238", 1716: "0-1-239",
    2215: "0-1-240", 2595: "0-1-241", 2898: "0-1-242", 3028: "0-1-243", 3331: "0-1-244", 3463: "0-1-245",
    3672: "0-1-246", 3837: "0-1-247",
}  # fmt: skip
"""Where SHOW BINLOG EVENTS had a GTID in it."""


def assert_told_apart(path: Path, begun: dict[int, str]) -> None:
    """`begun`: where the file's transactions begin, and their GTIDs ("": they have none)."""
    starts = sorted(begun)
    found = changes(path)
    for change in found:
        start = starts[bisect.bisect_right(starts, change["pos"]) - 1]
        assert change["gtid"] == (begun[start] or None), change
    assert len(found) > 10
    assert summary(path)["transactions"] == len(begun)


def test_every_change_of_a_mariadb_transaction_has_its_gtid_and_it_is_counted_once() -> None:
    assert_told_apart(RECORDED, GTIDS)
    assert summary(RECORDED)["gtids"] == "0-1-247"


def write(server: DatabaseServer) -> None:
    xa = ("XA START 'x'", "INSERT INTO i.t VALUES ({}, 1)", "XA END 'x'")
    statements = [
        "BEGIN", "INSERT INTO i.t VALUES (1, 1), (2, 2)", "INSERT INTO i.u VALUES (1)",
        "UPDATE i.t SET v = 9", "COMMIT",
        "INSERT INTO i.t VALUES (3, 3)",
        "INSERT INTO i.m VALUES (1), (2)",
        "CREATE TABLE i.w (a INT)",
        "BEGIN", "INSERT INTO i.t VALUES (10, 1)", "SAVEPOINT s", "INSERT INTO i.t VALUES (11, 1)",
        "ROLLBACK TO s", "INSERT INTO i.u VALUES (11)", "COMMIT",
        *(one.format(20) for one in xa), "XA PREPARE 'x'", "XA COMMIT 'x'",
        *(one.format(21) for one in xa), "XA PREPARE 'x'", "XA ROLLBACK 'x'",
        *(one.format(22) for one in xa), "XA COMMIT 'x' ONE PHASE",
        "BEGIN", "INSERT INTO i.t VALUES (30, 1)", "ROLLBACK",
        "DROP TABLE i.w",
    ]  # fmt: skip
    may_be_refused = [
        "CREATE TABLE i.x SELECT * FROM i.t",
        "SET SESSION binlog_transaction_compression = ON",
        "BEGIN",
        "INSERT INTO i.t VALUES (40, 1)",
        "INSERT INTO i.u VALUES (40)",
        "COMMIT",
    ]
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        for statement in may_be_refused:
            with contextlib.suppress(pymysql.MySQLError):
                cursor.execute(statement)


def assert_told_apart_by(server: DatabaseServer) -> None:
    server.execute(
        "CREATE DATABASE i",
        "CREATE TABLE i.t (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE i.u (id INT PRIMARY KEY)",
        "CREATE TABLE i.m (id INT) ENGINE = MyISAM",
        "FLUSH BINARY LOGS",
    )
    try:
        write(server)
        path = server.binlog_files()[-1]
        begun = {}
        for row in server.query(f"SHOW BINLOG EVENTS IN '{path.name}'"):
            if row[2] in ("Gtid", "Gtid_tagged"):
                [gtid] = re.findall(r"'(\S+:\d+)'|GTID (\d+-\d+-\d+)", row[5])
                begun[int(row[1])] = "".join(gtid)
            elif row[2] == "Anonymous_Gtid":
                begun[int(row[1])] = ""
        assert_told_apart(path, begun)
    finally:
        server.execute("DROP DATABASE i")


def test_changes_and_transactions_are_told_apart_as_the_server_does(flavor: DatabaseServer) -> None:
    assert_told_apart_by(flavor)


@pytest.mark.slow
def test_transactions_without_gtids_are_told_apart_too(mysql_factory: Callable[..., MySqlServer]) -> None:
    assert_told_apart_by(mysql_factory(gtid_mode="OFF", enforce_gtid_consistency="OFF"))


@pytest.mark.slow
def test_compressed_events_of_mariadb_are_shown_like_plain_ones() -> None:
    shown = []
    for compress in ("OFF", "ON"):
        options = {"log_bin_compress_min_len": 10, "binlog_row_metadata": "FULL"}
        options["log_bin_compress"] = compress
        with servers.mariadb1011(options) as server:
            server.execute(
                "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v TEXT)",
                "INSERT INTO d.t VALUES (1, REPEAT('a', 500)), (2, REPEAT('b', 500))",
                "UPDATE d.t SET v = REPEAT('c', 500)", "DELETE FROM d.t WHERE id = 1",
            )  # fmt: skip
            path = server.binlog_files()[-1]
            found, events = changes(path), summary(path)["events"]
            assert any("COMPRESSED" in name for name in events) == (compress == "ON"), events
            assert server.query("SELECT * FROM d.t") == [(2, "c" * 500)]
            statements = [read_statement(str(path), place)["sql"] for place in _queries(path)]
            assert "CREATE TABLE d.t (id INT PRIMARY KEY, v TEXT)" in statements
            shown.append([(one["op"], one["before"], one["after"]) for one in found])
    assert shown[0] == shown[1] and [row[0] for row in shown[0]] == ["c", "c", "u", "u", "d"]


def _queries(path: Path) -> list[int]:
    """The positions of statements, plain and compressed (165)."""
    data, at, found = path.read_bytes(), 4, []
    while at < len(data):
        found += [at] if data[at + 4] in (2, 165) else []
        at += int.from_bytes(data[at + 9 : at + 13], "little")
    return found
