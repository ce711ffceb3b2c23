"""Entries of statements, and why rows cannot be read, as clients are told."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from penstock.encode.canal_entry import canal_entry
from penstock.model.schema import TableId
from penstock.relaylog.reader import Statement
from penstock.sources.statement_reading import StatementReading, read_statement

UNREADABLE_HINT = (
    "Leave the table out with the destination's `exclude`, or begin behind it (`start`). A log that has the "
    "names of columns itself can be read, also in the past (`penstock docs formats`)."
)
"""For rows that do not fit what is known of their table."""


def statement_entries(
    statement: Mapping[str, Any],
    wanted: Callable[[TableId], bool],
    *,
    ddl: bool,
    row_statements: bool,
    format: str,
) -> list[bytes]:
    """The entries of a statement in the log (`LogEncoder.read`), one for each table that is wanted. `ddl`:
    those of statements that define tables. `row_statements`: those of statements that change rows and have no
    row events. `format`: `canal-entry`, or `json`. What is no statement, but may have changed rows, is told
    like one without a table, with a comment as its SQL."""
    read = read_statement(statement)
    if not (ddl if read.defines else row_statements):
        return []
    tables = _wanted(read, wanted)
    if format == "json":
        return [_json(statement, read, table) for table in tables]
    return [canal_entry(statement, read, table) for table in tables]


def statement_of(
    statement: Statement, segment_format: str, wanted: Callable[[TableId], bool]
) -> dict[str, Any] | None:
    """What clients get for a statement about one of the wanted tables. None: it is about none of them."""
    read = read_statement({**vars(statement), "segment_format": segment_format})
    tables = _wanted(read, wanted)
    if not tables:
        return None
    [table, *_] = tables
    sql = read.sql or statement.sql
    return {"kind": read.kind, "database": table.database, "table": table.table, "sql": sql}


def _wanted(read: StatementReading, wanted: Callable[[TableId], bool]) -> list[TableId]:
    if read.warning:
        return list(read.tables)  # it may concern any table
    before = read.renamed
    return [one for one in read.tables if wanted(one) or (one in before and wanted(before[one]))]


def _json(statement: Mapping[str, Any], read: StatementReading, table: TableId) -> bytes:
    document = {
        "database": table.database, "table": table.table, "op": "statement", "kind": read.kind,
        "sql": read.sql or statement["sql"], "ts_us": statement["commit_us"], "id": statement["id"],
        "sequence": statement["end"],
    }  # fmt: skip
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def unreadable(reason: str) -> str:
    """Why rows cannot be decoded, without what only helps users of `penstock encode`."""
    return reason.partition("; give its definition by")[0]
