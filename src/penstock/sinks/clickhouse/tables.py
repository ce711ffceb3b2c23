"""Tables of versions, and the views that show the newest ones."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.sql.types import StructType

from penstock.model.change import DELETED, SEQUENCE
from penstock.sinks.clickhouse.client import Client, quoted, text
from penstock.sinks.clickhouse.types import Types, own_columns
from penstock.sinks.evolve import Change

BETWEEN = "__rows_"
"""Stands in the name of a table of versions, between the target's name and the number of the table."""
_WHICH = re.compile(r"[0-9a-f]{8}|[0-9]+_[0-9]+_[0-9]+")


def rows_name(name: str, which: str) -> str:
    return f"{name}{BETWEEN}{which}"


class Tables:
    def __init__(self, client: Client, types: Types) -> None:
        self._client = client
        self._types = types

    def make_database(self, database: str) -> None:
        self._client.run(f"CREATE DATABASE IF NOT EXISTS {quoted(database)}")

    def exists(self, database: str, name: str) -> bool:
        where = f"database = {text(database)} AND name = {text(name)}"
        return bool(self._client.rows(f"SELECT 1 FROM system.tables WHERE {where}"))

    def versions_of(self, database: str, name: str) -> list[str]:
        """The tables of versions of a target."""
        prefix = name + BETWEEN
        length = f"lengthUTF8({text(prefix)})"
        found = self._client.rows(
            f"SELECT name FROM system.tables WHERE database = {text(database)} "
            f"AND substringUTF8(name, 1, {length}) = {text(prefix)} "
            "AND engine LIKE '%ReplacingMergeTree' ORDER BY name"
        )
        # Another target's name may begin in the same way.
        return [str(one) for (one,) in found if _WHICH.fullmatch(str(one).removeprefix(prefix))]

    def is_empty(self, database: str, view: str) -> bool:
        return not self._client.rows(f"SELECT 1 FROM {quoted(database)}.{quoted(view)} LIMIT 1")

    def make(self, database: str, rows: str, columns: StructType, key: Sequence[str]) -> None:
        """Creates a table of versions. Replaces one that exists."""
        self.drop(database, rows)
        types = self._types
        parts = [types.column(one.name, one.dataType, key=one.name in key) for one in columns
                 if one.name != SEQUENCE]  # fmt: skip
        parts += [f"{quoted(SEQUENCE)} UInt64", f"{quoted(DELETED)} UInt8"]
        settings = " SETTINGS fsync_after_insert = 1, fsync_part_directory = 1"
        self._client.run(
            f"CREATE TABLE {quoted(database)}.{quoted(rows)} ({', '.join(parts)}) "
            f"ENGINE = ReplacingMergeTree({quoted(SEQUENCE)}) ORDER BY {types.order(key, columns)}"
            + (settings if self._client.is_modern else "")
        )

    def fill(self, database: str, old: str, new: str, columns: StructType, query: str) -> None:
        """Copies rows. `query` has `%s` for the newest versions of the old table, or only its SELECT."""
        names = [name for name in columns.names if name != SEQUENCE]
        into = ", ".join(map(quoted, own_columns(names)))
        source = f"{quoted(database)}.{quoted(old)} FINAL"
        place = query.find(" FROM %s")
        rows = f"{query} FROM {source}" if place < 0 else query[:place] + query[place:].replace("%s", source)
        self._client.run(f"INSERT INTO {quoted(database)}.{quoted(new)} ({into}) {rows}")

    def show(self, database: str, view: str, rows: str, columns: StructType) -> None:
        """Makes the view show the newest versions of a table."""
        names = [name for name in columns.names if name != SEQUENCE]
        listed = ", ".join([*map(quoted, names), f"toInt64({quoted(SEQUENCE)}) AS {quoted(SEQUENCE)}"])
        query = f"SELECT {listed} FROM {quoted(database)}.{quoted(rows)} FINAL WHERE {quoted(DELETED)} = 0"
        target = f"{quoted(database)}.{quoted(view)}"
        if self._client.is_modern:
            self._client.run(f"CREATE OR REPLACE VIEW {target} AS {query}")
        else:
            self.drop(database, view)
            self._client.run(f"CREATE VIEW {target} AS {query}")

    def add(self, place: tuple[str, str], rows: str, columns: StructType, changed: Sequence[Change]) -> None:
        """Adds columns, which are NULL in existing rows."""
        database, view = place
        for one in changed:
            if one.before is None:
                column = self._types.column(one.name, one.kind, key=False)
                target = f"{quoted(database)}.{quoted(rows)}"
                present = self._client.rows(
                    f"SELECT 1 FROM system.columns WHERE database = {text(database)} "
                    f"AND table = {text(rows)} AND name = {text(one.name)}"
                )
                if not present:
                    self._client.run(f"ALTER TABLE {target} ADD COLUMN {column}")
        self.show(database, view, rows, columns)

    def drop(self, database: str, name: str) -> None:
        self._client.run(f"DROP TABLE IF EXISTS {quoted(database)}.{quoted(name)}")

    def parts(self, database: str, rows: str) -> int:
        where = f"database = {text(database)} AND table = {text(rows)} AND active"
        return int(self._client.rows(f"SELECT count() FROM system.parts WHERE {where}")[0][0])

    def optimize(self, database: str, rows: str) -> None:
        self._client.run(f"OPTIMIZE TABLE {quoted(database)}.{quoted(rows)} FINAL")
