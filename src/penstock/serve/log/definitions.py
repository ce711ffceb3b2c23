"""The definitions of all tables, at each offset of the log.

Clients read the log from many places at once, also from places that are a week old. So the definitions of one
place are not enough: this keeps those of one place, and each change behind it.

**The first ones.** The catalog is true at one offset X (`planning.discovery.at_one_offset`). A table that no
statement between the log's start and X has touched has had the catalog's definition all the time. Of the
others, the statements in the log say what a table was from its CREATE TABLE on; and behind the last statement
about it, it is what the catalog says. In between its definition is not known. Then the log itself must have
the names of columns, or rows of it are refused. No value is guessed: the core compares each table map with
the definition.
"""

from __future__ import annotations

import json
import logging
from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.config import TablesConfig
from penstock.disk.replace import replace_file
from penstock.errors import ConfigError, TransientError
from penstock.model.offset import LogRange, Offset
from penstock.model.plan import Park
from penstock.model.schema import TableId, TableSchema
from penstock.model.schema_change import TableEffect
from penstock.planning.discovery import Wait, at_one_offset, reach_end
from penstock.planning.statement_effects import effects_in
from penstock.relaylog.archive_restore import survives
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment_format import format_of
from penstock.sources.base import Source
from penstock.sources.statement_reading import read_statement
from penstock.sources.statements import Statements
from penstock.sources.table_filter import TableFilter

log = logging.getLogger(__name__)

Schemas = dict[TableId, TableSchema]
FORMAT = 1


@dataclass(frozen=True)
class Redefined:
    """A table has this definition from `offset` on. None: the table is gone, or its definition is not
    known."""

    offset: Offset
    table: TableId
    schema: TableSchema | None


class Definitions:
    """The definitions of all tables along a log. `tracked`: they are known up to here. Not thread-safe."""

    def __init__(self, start: Offset, tables: Mapping[TableId, TableSchema]) -> None:
        self.start = self.tracked = start
        self._first = dict(tables)
        self._changes: list[Redefined] = []
        self._last: tuple[int, Schemas] = (0, dict(tables))
        self.now: Schemas = dict(tables)

    def change(self, offset: Offset, table: TableId, schema: TableSchema | None) -> None:
        self._changes.append(Redefined(offset, table, schema))
        _apply(self.now, table, schema)

    def correct(self, touched: Mapping[TableId, Offset], schemas: Mapping[TableId, TableSchema]) -> None:
        """Corrects what is known at the end: behind the last statement about a table, at its offset in
        `touched`, the table has the definition in `schemas`. If it is not in there, the table does not
        exist."""
        for table, offset in touched.items():
            if self.now.get(table) != schemas.get(table):
                self.change(offset, table, schemas.get(table))
        self._changes.sort(key=lambda one: one.offset)
        self._last = 0, dict(self._first)

    def at(self, offset: Offset) -> Schemas:
        """The definitions behind an offset. The result must not be changed."""
        count = self._count(offset)
        known, found = self._last
        if known != count:
            found, begin = (dict(self._first), 0) if known > count else (dict(found), known)
            for one in self._changes[begin:count]:
                _apply(found, one.table, one.schema)
            self._last = count, found
        return found

    def changes(self, reach: LogRange) -> list[Redefined]:
        """The changes in a range, in the order of the log."""
        return self._changes[self._count(reach.start) : self._count(reach.end)]

    def _count(self, offset: Offset) -> int:
        return bisect_right(self._changes, offset, key=lambda one: one.offset)

    # on disk ------------------------------------------------------------------------------------------------

    def to_json(self, *, since: Offset) -> dict[str, Any]:
        """The definitions at `since`, and all changes behind it."""
        since = max(since, self.start)
        behind = self._changes[self._count(since) :]
        return {
            "format": FORMAT,
            "start": since,
            "tracked": self.tracked,
            "tables": [json.loads(schema.to_json()) for schema in self.at(since).values()],
            "changes": [
                [
                    one.offset,
                    one.table.database,
                    one.table.table,
                    one.schema and json.loads(one.schema.to_json()),
                ]
                for one in behind
            ],
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Definitions:
        tables = [TableSchema.from_json(one) for one in document["tables"]]
        made = cls(Offset(document["start"]), {one.table: one for one in tables})
        for offset, database, table, schema in document["changes"]:
            known = None if schema is None else TableSchema.from_json(schema)
            made.change(Offset(offset), TableId(database, table), known)
        made.tracked = Offset(document["tracked"])
        return made


def _apply(tables: Schemas, table: TableId, schema: TableSchema | None) -> None:
    if schema is None:
        tables.pop(table, None)
    else:
        tables[table] = schema


def save(definitions: Definitions, path: Path, *, log_id: str, since: Offset) -> None:
    document = {"relay_log": log_id, **definitions.to_json(since=since)}
    replace_file(path, json.dumps(document, ensure_ascii=False).encode(), durable=True)


def load(path: Path, relay_log: RelayLog) -> Definitions | None:
    """The stored definitions. None: there are none, or they belong to another relay log, or to another part
    of this one."""
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"The definitions of tables in {path} cannot be read: {error}.",
            hint="Remove the file: they are then read from the source and its log again.",
        ) from error
    same = survives(relay_log.facts, str(document.get("relay_log")))
    if document.get("format") != FORMAT or same is None:
        log.warning("%s belongs to another relay log, and is made again", path)
        return None
    found = Definitions.from_json(document)
    return found if found.start <= relay_log.start <= found.tracked <= same else None


class EveryTable(TableFilter):
    """All tables but those of databases of the server itself. Helper tables of online schema changes count,
    too, and sequences."""

    sequences = True

    def __init__(self, of_the_server: Collection[str]) -> None:
        super().__init__(TablesConfig(include=["*.*"]))
        self._of_the_server = of_the_server

    def __contains__(self, table: TableId) -> bool:
        return table.database.lower() not in self._of_the_server and table not in self.removed


def first(
    relay_log: RelayLog, source: Source | None, statements: Statements, captured: TableFilter, wait: Wait
) -> Definitions:
    """See the module. Only the log is asked if `source` is None or has no tables that could be read. Raises
    `TransientError`."""
    if source is None or not source.catalog.reads_tables:
        end = relay_log.end if source is None else reach_end(relay_log, source, wait)
        made = Definitions(relay_log.start, {})
        track(made, relay_log, statements, end)
        return made
    catalog = source.catalog
    schemas, at, restless = at_one_offset(relay_log, source, wait, lambda: catalog.read_tables(captured))
    if restless:
        names = ", ".join(sorted(map(str, restless)))
        raise TransientError(f"The definitions of {names} change faster than they can be read.")
    start = relay_log.start
    touched: dict[TableId, Offset] = {}
    for statement in relay_log.statements(LogRange(start, at)):
        for table in statements.touched(statement, set(schemas)) if statement.tables is None else ():
            touched[table] = statement.end
    made = Definitions(start, {table: one for table, one in schemas.items() if table not in touched})
    track(made, relay_log, statements, at)
    made.correct(touched, schemas)
    return made


def track(definitions: Definitions, relay_log: RelayLog, statements: Statements, end: Offset) -> bool:
    """Follows the statements up to `end`. Returns whether a definition changed."""
    changed, known = False, {"segment_format": format_of(relay_log.facts)}
    for statement in relay_log.statements(LogRange(definitions.tracked, end)):
        if statement.event is not None and (warning := read_statement(vars(statement) | known).warning):
            log.warning("offset %d: %s", statement.offset, warning)
    for statement, effects in effects_in(
        relay_log, LogRange(definitions.tracked, end), statements, definitions.now, lambda *_: True
    ):
        for effect in effects:
            before = definitions.now.get(effect.table)
            after = _definition_after(effect, before)
            if after != before:
                definitions.change(statement.end, effect.table, after)
                changed = True
    definitions.tracked = end
    return changed


def _definition_after(effect: TableEffect, before: TableSchema | None) -> TableSchema | None:
    """Unlike a pipeline, a subscription goes on where rows may be missing: it has the statement itself."""
    steps = tuple(step for step in effect.steps if not isinstance(step, Park))
    return replace(effect, steps=steps).definition_after(before)
