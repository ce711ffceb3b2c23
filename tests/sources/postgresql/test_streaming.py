"""Large transactions that the server sends while they run: what is in the log must be what is there without
that, and what the server's SELECT shows."""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from tests.sources.postgresql.pg_log import connected
from tests.sources.postgresql.receiving import Receiving, changes_of

from penstock.model.offset import LogRange
from penstock.model.schema import TableId
from penstock.sources.postgresql.receiver import STREAMED_FOLDER
from penstock.testing.servers.postgresql import PostgreSqlServer

IMMEDIATE = 16
"""The version of the server that can be told to send every change while its transaction runs."""
BULK = "INSERT INTO {table} SELECT n, repeat(md5(n::text), 30) FROM generate_series({first}, {last}) n"
COLUMN_LISTS = 15
BULK_ROWS = 200
"""Rows of the server's log beyond `logical_decoding_work_mem`."""
Record = tuple[str, int, bytes]
_HEADER = struct.Struct("<IBQII")
_BEGIN, _DEFINITION, _USE, _ROW, _COMMIT = "b", "d", "u", "w", "c"


@contextmanager
def settings(server: PostgreSqlServer, **values: str) -> Iterator[None]:
    """Those of new sessions."""
    with connected(server) as sql:
        for name, value in values.items():
            sql.execute(f"ALTER DATABASE {server.database} SET {name} = '{value}'".encode())
        yield
        for name in values:
            sql.execute(f"ALTER DATABASE {server.database} RESET {name}".encode())


@pytest.fixture
def limited(server: PostgreSqlServer) -> Iterator[None]:
    """The server sends transactions while they run when they have 64 kB."""
    with settings(server, logical_decoding_work_mem="64kB"):
        yield


@pytest.fixture
def eager(server: PostgreSqlServer, limited: None) -> Iterator[None]:
    """It sends every change at once, if it can be told to."""
    at_once = {"debug_logical_replication_streaming": "immediate"}
    with settings(server, **(at_once if server.version >= IMMEDIATE else {})):
        yield


class Bulks:
    """Writes rows by hundreds, each row once."""

    def __init__(self, table: str) -> None:
        self.table, self.last = table, 0

    def write(self, sql: psycopg.Connection[Any], rows: int = BULK_ROWS) -> None:
        first, self.last = self.last + 1, self.last + rows
        sql.execute(BULK.format(table=self.table, first=first, last=self.last).encode())


@pytest.fixture
def both(server: PostgreSqlServer, connection: psycopg.Connection[Any], tmp_path: Path) -> list[Receiving]:
    """A receiver without streaming, and one with it. Their slots are there."""
    connection.execute("DROP SCHEMA IF EXISTS large CASCADE")
    connection.execute("CREATE SCHEMA large")
    connection.execute("CREATE TABLE large.t (id int PRIMARY KEY, v text)")
    connection.execute("CREATE TABLE large.u (id int PRIMARY KEY, v text)")
    connection.execute("CREATE TABLE large.w (id int PRIMARY KEY, v text)")
    connection.execute("CREATE TABLE large.r (id int PRIMARY KEY, v text)")
    for table in "tu":
        connection.execute(f"ALTER TABLE large.{table} REPLICA IDENTITY FULL".encode())
    found = []
    for name, streaming in (("whole", False), ("pieces", True)):
        (tmp_path / name).mkdir()
        connection.execute(f"DROP PUBLICATION IF EXISTS penstock_{name}".encode())
        tables = "large.t, large.u, large.w, large.r"
        connection.execute(f"CREATE PUBLICATION penstock_{name} FOR TABLE {tables}".encode())
        one = Receiving(server, tmp_path / name, name, streaming=streaming)
        with one.started():
            one.wait_until_streaming()
        found.append(one)
    return found


@pytest.fixture(autouse=True)
def _without_slots(server: PostgreSqlServer) -> Iterator[None]:
    yield
    with connected(server) as sql:
        sql.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
        sql.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            "WHERE slot_name IN ('penstock_whole', 'penstock_pieces') AND NOT active"
        )


def streamed(connection: psycopg.Connection[Any], name: str) -> int:
    """How many transactions the server has sent to a slot while they ran."""
    query = "SELECT stream_txns FROM pg_stat_replication_slots WHERE slot_name = %s"
    row = connection.execute(query, (f"penstock_{name}",)).fetchone()
    return 0 if row is None else int(row[0])


def transactions(receiving: Receiving) -> list[list[Record]]:
    """Those in the log, with their records as they are stored. A reference to a definition is the definition.
    Without what the catalog said, which has no rows and depends on the time."""
    found: list[list[Record]] = []
    for file in sorted(receiving.config.relay_log_path.glob("*.pgoutput")):
        data, at = file.read_bytes(), 4
        while at < len(data):
            length, kind, place, *_ = _HEADER.unpack_from(data, at)
            body, at = data[at + _HEADER.size : at + _HEADER.size + length], at + _HEADER.size + length
            if kind == ord(_BEGIN):
                found.append([])
            if kind == ord(_USE):
                (of,) = struct.unpack_from("<Q", body, 4)
                (length,) = struct.unpack_from("<I", data, of)
                kind, body = ord(_DEFINITION), data[of + _HEADER.size : of + _HEADER.size + length]
            if found and kind != ord("h"):  # the next file begins
                found[-1].append((chr(kind), place, body))
    return [one for one in found if {kind for kind, *_ in one} - {_BEGIN, _COMMIT, _DEFINITION}
            and one[0][2][8:] != b"0"]  # fmt: skip


def rows_of(receiving: Receiving, connection: psycopg.Connection[Any], table: TableId) -> dict[int, str]:
    """What the log makes of an empty table."""
    log, rows = receiving.log(), dict[int, str]()
    emptied = [
        int(one.end)
        for one in log.statements(LogRange(log.start, log.end))
        if one.database == table.database and {"table": table.table, "emptied": True} == json.loads(one.sql)
    ]
    for change in changes_of(receiving, connection, table):
        while emptied and emptied[0] <= change["_sequence"]:
            rows.clear()
            emptied.pop(0)
        id, kind = change["id"], change["_change_type"]
        if kind in ("delete", "update_preimage"):
            assert rows.pop(id, None) is not None, f"row {id} is changed, and is not there"
        else:
            assert id not in rows, f"row {id} is there twice"
            rows[id] = change["v"]
    return rows


def selected(connection: psycopg.Connection[Any], table: TableId) -> dict[int, str]:
    return dict(connection.execute(f"SELECT id, v FROM {table}".encode()).fetchall())


T, U = TableId("large", "t"), TableId("large", "u")


def commits(sql: psycopg.Connection[Any], other: psycopg.Connection[Any], t: Bulks, u: Bulks) -> None:
    with sql.transaction():
        for _ in range(3):
            t.write(sql)
            u.write(other, 1)
        sql.execute("UPDATE large.t SET v = 'changed ' || id WHERE id % 3 = 0")
        sql.execute("DELETE FROM large.t WHERE id % 5 = 0")
        sql.execute("UPDATE large.u SET v = v || id WHERE id % 2 = 0")
        sql.execute("UPDATE large.u SET id = -id WHERE id = 3")


def rolls_back_to_savepoints(
    sql: psycopg.Connection[Any], other: psycopg.Connection[Any], t: Bulks, u: Bulks
) -> None:
    with sql.transaction():
        with sql.transaction(force_rollback=True):  # the first description of the table is lost with it
            t.write(sql)
        t.write(sql)
        with sql.transaction():
            t.write(sql)
            with sql.transaction(force_rollback=True):
                t.write(sql)
                with sql.transaction():
                    u.write(sql)
                    sql.execute("SELECT pg_logical_emit_message(true, 'inside', 'm')")
                    u.write(sql)
                u.write(other)
                t.write(sql)
            t.write(sql)
            sql.execute("SELECT pg_logical_emit_message(true, 'inside', 'm')")
        sql.execute("DELETE FROM large.t WHERE id % 7 = 0")
        with sql.transaction(force_rollback=True):
            t.write(sql)


def catches_exceptions(
    sql: psycopg.Connection[Any], other: psycopg.Connection[Any], t: Bulks, u: Bulks
) -> None:
    """Each pass is a subtransaction."""
    t.last += 600
    sql.execute(
        f"""DO $$ BEGIN FOR n IN {t.last - 599}..{t.last} LOOP
            BEGIN
                INSERT INTO large.t VALUES (n, repeat(md5(n::text), 30));
                IF n % 3 = 0 THEN RAISE EXCEPTION 'no'; END IF;
            EXCEPTION WHEN OTHERS THEN
                IF n % 9 = 0 THEN INSERT INTO large.t VALUES (n, 'caught'); END IF;
            END;
        END LOOP; END $$""".encode()
    )


def ends_in_nothing(sql: psycopg.Connection[Any], other: psycopg.Connection[Any], t: Bulks, u: Bulks) -> None:
    with sql.transaction(force_rollback=True):
        t.write(sql)
        u.write(sql)
    with sql.transaction(), sql.transaction(force_rollback=True):
        t.write(sql)


def runs_beside_another(
    sql: psycopg.Connection[Any], other: psycopg.Connection[Any], t: Bulks, u: Bulks
) -> None:
    with sql.transaction(), other.transaction():
        for _ in range(3):
            t.write(sql)
            with other.transaction(force_rollback=True):
                u.write(other)
            u.write(other)


def truncates(sql: psycopg.Connection[Any], other: psycopg.Connection[Any], t: Bulks, u: Bulks) -> None:
    with sql.transaction():
        u.write(sql)
        with sql.transaction(force_rollback=True):
            sql.execute("TRUNCATE large.t")
            t.write(sql)
        t.write(sql)
        sql.execute("TRUNCATE large.u")
        u.write(sql)


def alters(sql: psycopg.Connection[Any], other: psycopg.Connection[Any], t: Bulks, u: Bulks) -> None:
    w = Bulks("large.w")
    with sql.transaction():
        w.write(sql)
        with sql.transaction(force_rollback=True):
            sql.execute("ALTER TABLE large.w ADD lost int")
            w.write(sql)
        w.write(sql)
        sql.execute("ALTER TABLE large.w ADD later int DEFAULT 7")
        w.write(sql)
        sql.execute("UPDATE large.w SET later = id WHERE id % 2 = 0")
    w.write(sql, 3)


def comes_from_elsewhere(
    sql: psycopg.Connection[Any], other: psycopg.Connection[Any], t: Bulks, u: Bulks
) -> None:
    sql.execute("SELECT pg_replication_origin_create('elsewhere') WHERE NOT EXISTS "
                "(SELECT FROM pg_replication_origin WHERE roname = 'elsewhere')")  # fmt: skip
    sql.execute("SELECT pg_replication_origin_session_setup('elsewhere')")
    with sql.transaction():
        t.write(sql)
        sql.execute("SELECT pg_replication_origin_xact_setup('0/AFFE', now())")
    sql.execute("SELECT pg_replication_origin_session_reset()")


STORIES: tuple[Callable[..., None], ...] = (
    commits, rolls_back_to_savepoints, catches_exceptions, ends_in_nothing, runs_beside_another,
    truncates, comes_from_elsewhere, alters,
)  # fmt: skip


@pytest.mark.parametrize("form", ["binary", pytest.param("text", marks=pytest.mark.slow)])
def test_the_log_is_the_same_as_without_streaming(
    server: PostgreSqlServer,
    connection: psycopg.Connection[Any],
    both: list[Receiving],
    eager: None,
    form: str,
) -> None:
    if form == "text":  # there is a type whose binary form is not known
        connection.execute("ALTER TABLE large.r ADD of regclass")
    t, u = Bulks("large.t"), Bulks("large.u")
    with connected(server) as sql, connected(server) as other, connected(server) as running:
        with running.transaction(force_rollback=True):  # it is open as long as the receivers run
            running.execute("INSERT INTO large.r SELECT n, md5(n::text) FROM generate_series(1, 3000) n")
            for story in STORIES:
                story(sql, other, t, u)
            for one in both:
                with one.started():
                    one.wait_until_received(connection)
        whole, pieces = map(transactions, both)
        assert len(pieces) == len(whole) >= len(STORIES)
        for number, (wanted, found) in enumerate(zip(whole, pieces, strict=True)):
            assert found == wanted, f"transaction {number}"
        assert [streamed(connection, "whole"), streamed(connection, "pieces") > 5] == [0, True]
        for table in (T, U):
            assert rows_of(both[1], connection, table) == selected(connection, table) != {}


def test_a_description_that_came_while_a_transaction_ran_holds_behind_it(
    server: PostgreSqlServer, connection: psycopg.Connection[Any], both: list[Receiving], eager: None
) -> None:
    """The server sends the columns of a table again, for others, and then the older transaction ends."""
    if server.version < COLUMN_LISTS:
        pytest.skip("there are no column lists")
    pieces = both[1]
    connection.execute("CREATE TABLE large.listed (id int PRIMARY KEY, v text, other text)")
    connection.execute("ALTER PUBLICATION penstock_pieces SET TABLE large.listed (id, v)")
    with pieces.started(), connected(server) as sql:
        pieces.wait_until_streaming()
        with sql.transaction():
            sql.execute("INSERT INTO large.listed SELECT n, 'v', 'o' FROM generate_series(1, 600) n")
            pieces.wait(partial(_streams, pieces), "the first piece")
            connection.execute("ALTER PUBLICATION penstock_pieces SET TABLE large.listed (id, other)")
            connection.execute("INSERT INTO large.listed VALUES (1001, 'v', 'o')")
        connection.execute("INSERT INTO large.listed VALUES (1002, 'v', 'o')")
        pieces.wait_until_received(connection)
    with_rows = [one for one in transactions(pieces) if any(kind == _ROW for kind, *_ in one)]
    assert [columns_of(one) for one in with_rows] == [
        (1, ["id", "other"]), (600, ["id", "v"]), (1, ["id", "other"])
    ]  # fmt: skip


def columns_of(transaction: list[Record]) -> tuple[int, list[str]]:
    """The number of its rows, and the columns of their table."""
    [definition] = [body for kind, _, body in transaction if kind == _DEFINITION]
    said = json.loads(definition[definition.index(b"{") :])
    return sum(kind == _ROW for kind, *_ in transaction), [column["name"] for column in said["columns"]]


@pytest.mark.slow
def test_a_disk_that_is_too_small_for_a_transaction_is_named_and_waited_for(
    server: PostgreSqlServer, connection: psycopg.Connection[Any], both: list[Receiving], limited: None,
    tmp_path: Path,
) -> None:  # fmt: skip
    small, pieces = tmp_path / "small", both[1]
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(small)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("no small file system can be mounted here")
    try:
        relay_log = {"path": str(small / "relay"), "disk_free_min": "1MiB"}
        pieces.file.write_text(
            yaml.safe_dump({**yaml.safe_load(pieces.file.read_text()), "relay_log": relay_log})
        )
        with pieces.started(), connected(server) as sql:
            pieces.wait_until_streaming()
            with sql.transaction():
                Bulks("large.t").write(sql, 30_000)
                pieces.wait(lambda: pieces.report().get("state") == "disk_full", "a full disk")
                assert str(small / "relay") in pieces.report()["message"]
                subprocess.run(["mount", "-o", "remount,size=256m", str(small)], check=True)
            pieces.wait_until_received(connection)
            assert rows_of(pieces, connection, T) == selected(connection, T) != {}
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("kill", ["receiver", "walsender"])
def test_nothing_is_lost_or_doubled_though_either_side_is_killed(
    server: PostgreSqlServer, connection: psycopg.Connection[Any], both: list[Receiving], limited: None,
    kill: str,
) -> None:  # fmt: skip
    pieces, ended, kills = both[1], threading.Event(), 0
    errors: list[Exception] = []

    def write(table: str, seed: int) -> None:
        """Transactions of all sizes, with savepoints that are rolled back."""
        choose, bulks = random.Random(seed), Bulks(table)
        try:
            with connected(server) as sql:
                while not ended.is_set():
                    with sql.transaction(force_rollback=choose.random() < 0.2):
                        for _ in range(choose.choice((1, 3, 9))):
                            with sql.transaction(force_rollback=choose.random() < 0.3):
                                bulks.write(sql, choose.choice((1, 60)))
                                if choose.random() < 0.3:
                                    sql.execute(f"DELETE FROM {table} WHERE id % 10 = 3".encode())
        except Exception as error:
            errors.append(error)

    writers = [threading.Thread(target=write, args=(f"large.{one}", n)) for n, one in enumerate("tu")]
    try:
        for writer in writers:
            writer.start()
        while kills < 4:
            with pieces.started() as process:
                pieces.wait_until_streaming()
                goal = pieces.log().end + 50_000
                pieces.wait(partial(_has_more_and_streams, pieces, goal), "an open transaction")
                kills += 1
                if kill == "receiver":
                    process.kill()
                    continue
                before = int(pieces.report().get("reconnects", 0))
                connection.execute(
                    "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
                    "WHERE slot_name = 'penstock_pieces'"
                )
                pieces.wait(partial(_has_reconnected, pieces, before), "another connection")
        ended.set()
        for writer in writers:
            writer.join()
        with pieces.started():
            pieces.wait_until_received(connection)
        assert not errors
        for table in (T, U):
            assert rows_of(pieces, connection, table) == selected(connection, table) != {}
        assert not (pieces.config.relay_log_path / STREAMED_FOLDER).exists()
    finally:
        ended.set()


def _has_more_and_streams(receiving: Receiving, goal: int) -> bool:
    return receiving.log().end > goal and _streams(receiving)


def _streams(receiving: Receiving) -> bool:
    return bool(receiving.report().get("streamed", {}).get("bytes"))


def _has_reconnected(receiving: Receiving, before: int) -> bool:
    return int(receiving.report().get("reconnects", 0)) > before
