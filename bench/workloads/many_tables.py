"""Many small tables that are changed in turn: every transaction changes a few rows of the next table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.workload import DATABASE, Counts, Workload, run
from penstock.testing.servers import MySqlServer

_TABLES = 1_000
_TABLES_MIN = 10
_ROUNDS = 15
_ROWS = 4
"""Of one INSERT or UPDATE."""


def _insert(table: str, first: int) -> str:
    values = ", ".join(f"({id}, {id * 7}, 'row {id} of {table}')" for id in range(first, first + _ROWS))
    return f"INSERT INTO {DATABASE}.{table} VALUES {values}"


class ManyTables(Workload):
    name = "many_tables"
    about = f"small tables changed in turn, at most {_ROWS} rows a transaction"

    def tables(self, scale: float) -> list[str]:
        return [f"t{number:04}" for number in range(max(_TABLES_MIN, round(_TABLES * scale)))]

    def definitions(self, scale: float) -> Iterable[str]:
        columns = "id INT NOT NULL PRIMARY KEY, v INT NOT NULL, note VARCHAR(40) NULL"
        return [f"CREATE TABLE {DATABASE}.{table} ({columns})" for table in self.tables(scale)]

    def compared(self, scale: float) -> dict[str, Sequence[str]]:
        return dict.fromkeys(self.tables(scale), ("id", "v", "note"))

    def write(self, server: MySqlServer, scale: float) -> Counts:
        inserts = updates = deletes = 0
        tables = self.tables(scale)
        for turn in range(_ROUNDS):
            first = turn * 2 * _ROWS
            inserts += run(server, [_insert(table, first) for table in tables])
            updates += run(
                server,
                [f"UPDATE {DATABASE}.{table} SET v = v + 1 WHERE id >= {first}" for table in tables],
            )
            inserts += run(server, [_insert(table, first + _ROWS) for table in tables])
            deletes += run(server, [f"DELETE FROM {DATABASE}.{table} WHERE id = {first}" for table in tables])
        return Counts(inserts, updates, deletes)
