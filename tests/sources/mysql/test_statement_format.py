"""Statements that change rows without row events, on each server: no captured table that changed is left
out.

A receiver writes the relay log; what its statements mean is decided as a pipeline decides it. The judge is
the server: the rows of every table before and after.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql
import pytest
from tests.sources.mysql.receiving import Receiving, receiving
from tests.sources.mysql.unlogged_forms import DATABASES, SETUP, SETUP_MARIADB, administration, filled, forms

from penstock.config import TablesConfig
from penstock.model.offset import LogRange, Offset
from penstock.model.plan import Park
from penstock.model.schema import TableId, TableSchema
from penstock.model.schema_change import TableEffect
from penstock.relaylog.full_statements import in_full
from penstock.relaylog.reader import RelayLog, Statement
from penstock.sources.mysql.catalog import read_tables
from penstock.sources.mysql.ddl.server import Server
from penstock.sources.mysql.identifiers import quoted
from penstock.sources.mysql.statements import MySqlStatements
from penstock.sources.table_filter import TableFilter
from penstock.testing import servers
from penstock.testing.servers import DatabaseServer, MariaDbServer

pytestmark = pytest.mark.timeout(600)


@dataclass
class Source:
    """A server with its relay log. `live`: tables that are followed. Statements since `mark` are judged."""

    server: DatabaseServer
    receiver: Receiving
    file: Path
    log: RelayLog
    live: dict[TableId, TableSchema]
    mark: Offset
    asked: list[TableId] = field(default_factory=list)
    read: list[Statement] = field(default_factory=list)

    @property
    def mariadb(self) -> bool:
        return isinstance(self.server, MariaDbServer)

    def rows(self) -> dict[TableId, list[Any]]:
        found = self.server.query(
            "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE <> 'VIEW' "
            f"AND TABLE_SCHEMA IN {DATABASES}"
        )
        tables = [TableId(*row) for row in found]
        return {table: sorted(self.server.query(f"SELECT * FROM {quoted(table)}")) for table in tables}

    def run(self, statements: list[str], binlog_format: str) -> None:
        """In one session; what the server refuses is left out."""
        with closing(self.server.connect(local_infile=True)) as connection, connection.cursor() as cursor:
            cursor.execute(f"SET SESSION binlog_format = {binlog_format}")
            for sql in statements:
                try:
                    cursor.execute(filled(sql, self.file))
                except pymysql.err.MySQLError:
                    continue

    def judged(self) -> tuple[list[Statement], list[TableEffect]]:
        """Statements since the mark, and what they mean for the tables as they are now."""
        self.receiver.wait_until_level()
        self.log.refresh()
        reader = MySqlStatements(
            TableFilter(TablesConfig(include=[f"{name}.*" for name in DATABASES])),
            lambda table: self.asked.append(table),
            lambda: Server(mariadb=self.mariadb, sql_mode=None),
            read_database=lambda name: ("utf8mb4", "utf8mb4_bin"),
            in_full=self._in_full,
            parks_cascades=True,
        )
        found = self.log.statements(LogRange(self.mark, self.log.end))
        self.mark = self.log.end
        return found, [effect for statement in found for effect in reader.effects(statement, self.live)]

    def _in_full(self, statement: Statement) -> Statement | None:
        self.read.append(statement)
        return in_full(self.log, statement)


@pytest.fixture(
    params=[
        name if name == "mysql80" else pytest.param(name, marks=pytest.mark.slow) for name in servers.FLAVORS
    ],
    scope="module",
)
def source(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    folder = tmp_path_factory.mktemp("statements")
    rows = folder / "rows.tsv"
    rows.write_text("8\n9\n")
    options = {"log_bin_trust_function_creators": "ON", "local_infile": "ON"}
    with servers.FLAVORS[request.param](options) as server:
        many = [f"CREATE DATABASE m{number}" for number in range(18)]
        many += [f"CREATE TABLE m{number}.t (id INT PRIMARY KEY, v INT)" for number in range(18)]
        server.execute(*SETUP, *many, *(f"INSERT INTO m{number}.t VALUES (1, 1)" for number in range(18)))
        if isinstance(server, MariaDbServer):
            server.execute(*SETUP_MARIADB)
        with receiving(server, folder / "pipeline") as receiver:
            receiver.wait_until_level()
            with closing(server.connect()) as connection:
                live = read_tables(connection, TablesConfig(include=[f"{name}.*" for name in DATABASES]))
            log = receiver.log
            yield Source(server, receiver, rows, log, live, log.end)


def concerned(effects: list[TableEffect]) -> set[TableId]:
    """Tables that are parked or read again."""
    return {one.table for one in effects if one.rereads or any(isinstance(step, Park) for step in one.steps)}


@pytest.mark.parametrize("format_", ["STATEMENT", "MIXED"])
def test_every_table_that_a_statement_changed_is_parked_or_read_again(source: Source, format_: str) -> None:
    silent = []
    for form, statements in forms(mariadb=source.mariadb).items():
        before = source.rows()
        source.run(list(statements), format_)
        after = source.rows()
        begin = source.mark
        found, effects = source.judged()
        tables = source.log.tables(LogRange(begin, source.log.end), exact=True)
        changed = {table for table in source.live if before.get(table) != after.get(table)}
        # In MIXED format the server takes rows where a statement would not be safe.
        logged = changed if format_ == "STATEMENT" else changed - tables.keys()
        missed = logged - concerned(effects)
        assert not missed, (form, missed, [(one.sql[:200], one.updates) for one in found])
        silent += [form] if before == after else []
        if not source.mariadb and form not in ("a cascade", "many databases", "DDL that is cut"):
            beyond = {table for table in concerned(effects) if table.database == "n"}
            assert not beyond, (form, [(one.sql[:200], one.updates) for one in found])
    refused = {"WITH", "VALUES of a function", "EXPLAIN ANALYZE", "DDL that is cut", "many databases"}
    assert set(silent) <= refused, "a form that changes nothing proves nothing"


def test_an_event_of_the_server_parks_what_it_writes(source: Source) -> None:
    source.judged()
    before = source.rows()[TableId("b", "t")]
    source.server.execute("SET GLOBAL binlog_format = STATEMENT")
    try:
        source.run(
            ["CREATE EVENT a.e ON SCHEDULE AT CURRENT_TIMESTAMP DO UPDATE a.seen SET v = v + 1",
             "SET GLOBAL event_scheduler = ON"], "STATEMENT",
        )  # fmt: skip
        source.receiver.wait_for(lambda: source.rows()[TableId("b", "t")] != before, "the event")
    finally:
        source.server.execute("SET GLOBAL event_scheduler = OFF", "SET GLOBAL binlog_format = ROW")
    _, effects = source.judged()
    assert TableId("b", "t") in concerned(effects)


def test_in_row_format_no_table_is_concerned_and_nothing_is_looked_up(source: Source) -> None:
    """Not by DML of any form, nor by administration: and the index says no more of it than its text."""
    source.judged()
    source.asked.clear()
    source.read.clear()
    ddl = ("DDL that is cut", "a query that makes a table")
    dml = [sql for form, some in forms(mariadb=source.mariadb).items() for sql in some if form not in ddl]
    source.run([*dml, *administration(source.server, mariadb=source.mariadb)], "ROW")
    found, effects = source.judged()
    assert len(found) > 30
    assert concerned(effects) == set(), [(one.table, one.what) for one in effects]
    assert set(source.asked) <= {TableId("n", "sq")} and not source.read  # what a sequence is, is not known
    told = {(one.updates, one.unsaid, one.alone, one.truncated, one.event) for one in found}
    assert told == {(None, False, False, False, None)}


def test_a_memory_table_that_a_restart_has_emptied_concerns_no_other(source: Source) -> None:
    source.run(
        ["CREATE TABLE n.memory (id INT PRIMARY KEY) ENGINE = MEMORY", "INSERT INTO n.memory VALUES (1)"],
        "ROW",
    )
    source.judged()
    source.server.restart()
    assert source.server.query("SELECT * FROM n.memory") == []
    found, effects = source.judged()
    assert any("`memory`" in one.sql for one in found)
    assert {effect.table for effect in effects} <= {TableId("n", "memory")}
