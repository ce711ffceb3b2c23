"""Random transactions that take rows back, and what every reader of the log makes of them. The judge is the
server's SELECT."""

from __future__ import annotations

import contextlib
import json
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pymysql
from tests.sources.mysql.receiving import Receiving, source_events

from penstock.changes import ChangeBatch, Transaction, follow
from penstock.commands.encode import encode
from penstock.testing.servers import DatabaseServer

TABLES = (
    "CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(60))",
    "CREATE TABLE d.u (id INT PRIMARY KEY, v VARCHAR(60))",
    "CREATE TABLE d.m (id INT PRIMARY KEY, v VARCHAR(60)) ENGINE=MyISAM",
    "CREATE TABLE d.w (id INT PRIMARY KEY, v VARCHAR(60))",
)
DDL = ";".join(("CREATE DATABASE d", *TABLES))
NAMES = ("a", "A b", 'q`"x', "savepoint", "naïve", "to")
ROUTINES = (
    """CREATE PROCEDURE d.p(n INT, back INT) BEGIN
    SAVEPOINT a; INSERT INTO u VALUES (n, 'p'); IF back THEN ROLLBACK TO `savepoint`; END IF;
    INSERT INTO t VALUES (n, 'p'); SAVEPOINT `to`; END""",
    """CREATE FUNCTION d.f(n INT, back INT) RETURNS INT DETERMINISTIC MODIFIES SQL DATA BEGIN
    INSERT INTO u VALUES (n, 'f'); SAVEPOINT `in f`; INSERT INTO u VALUES (n + 200000, 'f');
    SAVEPOINT `in F 2`; INSERT INTO u VALUES (n + 300000, 'f');
    IF back > 1 THEN ROLLBACK TO `in f`; ELSEIF back THEN ROLLBACK TO `in f 2`; END IF;
    INSERT INTO u VALUES (n + 400000, 'f'); RETURN n; END""",
    """CREATE TRIGGER d.w BEFORE INSERT ON d.w FOR EACH ROW BEGIN
    INSERT INTO u VALUES (NEW.id, 'w'); SAVEPOINT `in w`; INSERT INTO u VALUES (NEW.id + 500000, 'w');
    IF NEW.v = 'back' THEN ROLLBACK TO `in w`; END IF; END""",
)
"""Functions and triggers have savepoints of their own level, which the log does not tell: their names are not
those of others. A procedure has those of its caller."""

Rows = dict[str, dict[int, str]]


def statements_of(server: DatabaseServer) -> list[str]:
    """The savepoints and rollbacks in the server's log, as it wrote them."""
    found = []
    for event in source_events(server):
        if event[4] == 2:
            body = event[19:-4]
            sql = body[13 + int.from_bytes(body[11:13], "little") + body[8] + 1 :]
            if sql.startswith((b"SAVEPOINT", b"ROLLBACK")):
                found.append(sql.decode())
    return found


class Workload:
    """Transactions with savepoints, by a committed seed. Statements that the server refuses are nothing."""

    def __init__(self, server: DatabaseServer, seed: int) -> None:
        self._server = server
        self._random = random.Random(seed)
        self._id = 0

    def run(self, transactions: int) -> None:
        for _ in range(transactions):
            with self._server.connect(database="d") as connection, connection.cursor() as cursor:
                for statement in self._transaction():
                    with contextlib.suppress(pymysql.err.MySQLError):
                        cursor.execute(statement)

    def _transaction(self) -> Iterator[str]:
        chosen = self._random
        yield "CREATE TEMPORARY TABLE tmp (id INT)"
        xa = chosen.random() < 0.15
        yield "XA START 'x'" if xa else "BEGIN"
        if chosen.random() < 0.7:
            # The server cannot take this back, so it logs all of the transaction.
            yield self._change()
            yield "DROP TEMPORARY TABLE tmp"
        names: list[str] = []
        for _ in range(chosen.randint(3, 14)):
            kind = chosen.random()
            if kind < 0.2:
                names.append(chosen.choice(NAMES))
                yield f"SAVEPOINT {self._spelled(names[-1])}"
            elif kind < 0.4 and names:
                name = self._spelled(chosen.choice(names))
                yield chosen.choice(("ROLLBACK TO", "ROLLBACK WORK TO SAVEPOINT")) + f" {name}"
            elif kind < 0.45 and names:
                yield f"RELEASE SAVEPOINT {self._spelled(chosen.choice(names))}"
            elif kind < 0.55:
                yield chosen.choice(("DROP TEMPORARY TABLE tmp", "CREATE TEMPORARY TABLE tmp (id INT)"))
            elif kind < 0.6:
                yield "SET sql_quote_show_create = 1 - @@sql_quote_show_create"
            elif kind < 0.65:
                yield f"SET sql_mode = '{chosen.choice(('', 'ANSI_QUOTES'))}'"
            else:
                yield self._change()
        if xa:
            yield "XA END 'x'"
            yield "XA PREPARE 'x'"
            yield chosen.choice(("XA COMMIT 'x'", "XA ROLLBACK 'x'"))
            yield "XA ROLLBACK 'x'"  # of one that could not be prepared
        else:
            yield chosen.choice(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK"))

    def _spelled(self, name: str) -> str:
        """The name in another way that the server takes for the same."""
        name = self._random.choice((str.upper, str.lower, str))(name)
        if re.fullmatch("[aA]", name) and self._random.random() < 0.5:
            return name
        return "`" + name.replace("`", "``") + "`"

    def _change(self) -> str:
        chosen = self._random
        self._id += 1
        table, some = chosen.choice("tum"), chosen.randint(1, self._id)
        match chosen.randint(0, 9):
            case 0:
                return (
                    f"UPDATE {table} SET v = CONCAT('u', {self._id}) WHERE id BETWEEN {some} AND {some + 5}"
                )
            case 1:
                return f"DELETE FROM {table} WHERE id = {some}"
            case 2:
                both = f"t.v = 'both {self._id}', m.v = t.v"
                return f"UPDATE t, m SET {both} WHERE t.id >= {some} AND m.id >= {some}"
            case 3:
                return f"INSERT INTO u SELECT id + 100000, v FROM t WHERE id = {some}"
            case 4:
                return f"CALL p({self._id}, {chosen.randint(0, 1)})"
            case 5:
                return f"SELECT f({self._id}, {chosen.randint(0, 2)})"
            case 6:
                rows = [f"({self._id * 10 + n}, '{chosen.choice(('', 'back'))}')" for n in range(3)]
                return f"INSERT INTO w VALUES {', '.join(rows)}"
            case _:
                return f"INSERT INTO {table} VALUES ({self._id}, REPEAT('x', {chosen.randint(0, 60)}))"


def applied(changes: Iterable[tuple[str, dict[str, Any] | None, dict[str, Any] | None]]) -> Rows:
    """The rows that changes leave of empty tables. Each change must fit the rows before it."""
    rows: Rows = {"t": {}, "u": {}, "m": {}, "w": {}}
    for table, before, after in changes:
        if before is not None:
            assert rows[table].pop(before["id"]) == before["v"], "a change of a row that nobody wrote"
        if after is not None:
            assert after["id"] not in rows[table], "a row that is there already"
            rows[table][after["id"]] = after["v"]
    return rows


def of_messages(values: Iterable[bytes | str]) -> Rows:
    messages = [json.loads(value) for value in values]
    return applied((one["table"], one["before"], one["after"]) for one in messages)


def of_batches(receiver: Receiving) -> Rows:
    found: list[tuple[int, str, dict[str, Any] | None, dict[str, Any] | None]] = []
    with follow(receiver.file, ["d.*"], start="earliest", until=receiver.log.end) as changes:
        for item in changes:
            if not isinstance(item, ChangeBatch):
                continue
            for row in item.batch.to_pylist():
                gone = row["_change_type"] in ("delete", "update_preimage")
                found.append(
                    (row["_sequence"], item.table.table, row if gone else None, None if gone else row)
                )
    found.sort(key=lambda change: change[0])
    return applied(change[1:] for change in found)


def of_log_order(receiver: Receiving) -> Rows:
    with follow(receiver.file, ["d.*"], start="earliest", order="log", until=receiver.log.end) as changes:
        return of_messages(
            message.value or b""
            for item in changes
            if isinstance(item, Transaction)
            for message in item.messages
        )


def of_encode(paths: list[Path], ddl: Path, capture: Any) -> Rows:
    capture.readouterr()
    arguments: dict[str, Any] = {"ddl": [ddl], "ddl_version": "8.0", "server": None, "tables": []}
    code = encode(
        [str(path) for path in paths], format="json", options=(), keys=False, as_json=False, **arguments
    )
    captured = capture.readouterr()
    assert code == 0, captured.err
    return of_messages(captured.out.splitlines())


def rows_of(server: DatabaseServer) -> Rows:
    return {table: dict(server.query(f"SELECT id, v FROM d.{table}")) for table in "tumw"}
