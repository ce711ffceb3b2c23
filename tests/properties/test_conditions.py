"""Statements with conditions that are met or not, and statements that fail half-way: after each of them, the
definitions by the log are those of the server's catalog."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pymysql
import pytest
from tests.properties.conditions import VIEW, Conditions
from tests.sources.mysql.ddl.test_ddl_catalog import comparable

from penstock.config import TablesConfig
from penstock.model.offset import Offset
from penstock.model.plan import Evolve
from penstock.model.schema import TableId, TableSchema
from penstock.relaylog.reader import Statement
from penstock.sources.mysql import catalog
from penstock.sources.mysql.ddl.catalog import Catalog
from penstock.sources.mysql.statements import MySqlStatements, statement_server
from penstock.sources.table_filter import TableFilter
from penstock.testing import servers

QUERY = 2
CAPTURED = TableFilter(TablesConfig(include=["d.t*", "e.t*"]))
ALL = TableFilter(TablesConfig(include=["d.*", "e.*"]))
Schemas = dict[TableId, TableSchema]


class Log:
    """The newest statements in the server's log, by the log's format."""

    def __init__(self, server: servers.DatabaseServer) -> None:
        server.execute("FLUSH BINARY LOGS")
        self._path = server.binlog_files()[-1]
        self._at = 4
        self._offset = 100

    def new(self) -> Iterator[tuple[Statement, int]]:
        """Those since they were asked for last, with the error code of their event."""
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        at = 0
        while at < len(data):
            event = data[at : at + int.from_bytes(data[at + 9 : at + 13], "little")]
            at += len(event)
            if event[4] == QUERY:
                yield from self._statement(event[19:-4])
        self._at += at

    def _statement(self, body: bytes) -> Iterator[tuple[Statement, int]]:
        error, size = (int.from_bytes(body[place : place + 2], "little") for place in (9, 11))
        variables, names = body[13 : 13 + size], body[13 + size :]
        assert variables[0] == 0 and variables[5] == 1, "flags, and the sql_mode"
        sql = names[body[8] + 1 :].decode()
        if sql not in ("BEGIN", "COMMIT", "ROLLBACK"):
            start = self._offset
            self._offset += 100
            database, mode = names[: body[8]].decode(), int.from_bytes(variables[6:14], "little")
            yield Statement(Offset(start), Offset(start + 100), database, sql, 0, sql_mode=mode), error


class Followed:
    """All tables by a catalog of our own, and the captured ones as a planner holds them."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._server = catalog.describe_server(connection).statements
        self.catalog = Catalog(self._server)
        self.live: Schemas = {}
        self._statements = MySqlStatements(
            CAPTURED, self._read, lambda: self._server, parks_cascades=False,
            is_view=lambda table: catalog.is_view(connection, table),
            read_database=lambda name: catalog.read_database(connection, name),
        )  # fmt: skip
        charset = catalog.read_database(connection, "d")
        assert charset is not None
        self.catalog.databases["d"] = charset

    def _read(self, table: TableId) -> TableSchema | None:
        return catalog.read_table(self._connection, table)

    def take(self, statement: Statement) -> None:
        self.catalog.server = statement_server(self._server, statement)
        self.catalog.database = statement.database
        self.catalog.execute(statement.sql)
        for effect in self._statements.effects(statement, dict(self.live)):
            if effect.dropped or effect.renamed:
                self.live.pop(effect.table, None)
            if effect.created:
                self.live[effect.table] = effect.created
            for step in effect.steps:
                if isinstance(step, Evolve):
                    self.live[effect.table] = step.schema
            now = self._read(effect.table) if effect.rereads else None
            if now is not None and effect.table in self.live:
                self.live[effect.table] = now

    def compare(self, said: str) -> None:
        shown = catalog.read_tables(self._connection, ALL)
        unknown = self.catalog.unknown
        ours = {
            table: definition.to_schema()
            for table, definition in self.catalog.tables.items()
            if not definition.sequence and str(table) != VIEW
        }
        _same(ours, {table: schema for table, schema in shown.items() if table not in unknown}, said)
        live = {table: replace(schema, version=1) for table, schema in self.live.items()}
        _same(live, {table: schema for table, schema in shown.items() if table in CAPTURED}, said)


def _same(ours: Schemas, server: Schemas, said: str) -> None:
    ours, server = comparable(ours), comparable(server)
    for table in ours.keys() | server.keys():
        assert ours.get(table) == server.get(table), f"{table}\n{said}"


@pytest.mark.parametrize(
    ("seed", "count"),
    [pytest.param(1, 300, id="few"), pytest.param(2, 2500, id="many", marks=pytest.mark.slow)],
)
def test_definitions_are_those_of_the_server_whether_conditions_are_met_or_not(
    flavor: servers.DatabaseServer, seed: int, count: int
) -> None:
    flavor.execute(
        "DROP DATABASE IF EXISTS d", "DROP DATABASE IF EXISTS e", "CREATE DATABASE d",
        f"CREATE VIEW {VIEW} AS SELECT 1 AS a",
    )  # fmt: skip
    log, write = Log(flavor), Conditions(seed)
    list(log.new())
    seen: Counter[str] = Counter()
    history: list[str] = []
    with flavor.connect(database="d") as connection, flavor.connect() as other:
        followed = Followed(other)
        cursor = connection.cursor()
        for _ in range(count):
            sql, refused = write.statement(), False
            try:
                cursor.execute(sql)
            except pymysql.MySQLError:
                refused = True
            logged = list(log.new())
            history.append(f"{sql}{' (refused)' if refused else ''}")
            for statement, error in logged:
                followed.take(statement)
                seen["with an error code"] += error > 0
                history.append(f"  {error} {statement.sql}")
            if logged:
                followed.compare("\n".join(history[-15:]))
                seen["taken"] += 1
                seen["failed, and logged"] += refused
                seen["with a warning, and logged"] += cursor.warning_count > 0
    flavor.execute("DROP DATABASE d", "DROP DATABASE IF EXISTS e")
    assert seen["taken"] > count / 10 and seen["with a warning, and logged"] > count / 100
