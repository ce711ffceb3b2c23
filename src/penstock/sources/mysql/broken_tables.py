"""Tables that the server cannot open, although its catalog lists them: a MERGE table without one of its
parts, a crashed MyISAM table, one whose tablespace or partition is gone, whose remote server does not answer,
or whose definition is damaged.

Such a table is parked, and the others go on. So a statement that opens many tables is followed by one for
each half of them if it is refused, and a statement that opens one table may be refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pymysql

from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sources.mysql.connection import query
from penstock.sources.mysql.faults import code_of, is_denied, is_refusal
from penstock.sources.mysql.identifiers import quoted

TABLES_PER_QUERY = 100
"""Tables that one statement opens. If one of them is refused, each half is opened by itself."""
_PASSING = frozenset({1146, 1049, 1205, 1213, 1317, 1969, 3024})
"""The table is gone; lock waits, deadlocks, kills and time-outs."""
_CRASHED = frozenset({126, 127, 144, 145, 1034, 1194, 1195})
_UNKNOWN = frozenset({1286, 4161})
OPENING = frozenset(
    {*range(120, 200), 1016, 1017, 1030, 1033, 1034, 1035, 1168, 1194, 1195, 1286, 1429, 1430}
)
OPENING |= {1459, 1707, 1712, 1812, 1814, 1815, 1877, 1932, 4161}
"""Errors that say that a table or one of its files cannot be opened. Below 1000: those of engines."""


def refused_tables(connection: Any, tables: Sequence[TableId]) -> dict[TableId, pymysql.Error]:
    """The tables among these that the server does not open for a SELECT, and why. Raises errors that do not
    concern a table."""
    refused: dict[TableId, pymysql.Error] = {}
    for start in range(0, len(tables), TABLES_PER_QUERY):
        refused |= _refused(connection, tables[start : start + TABLES_PER_QUERY])
    return refused


def _refused(connection: Any, tables: Sequence[TableId]) -> dict[TableId, pymysql.Error]:
    # A derived table with a limit is never merged, so each `*` is checked as in a SELECT of its own.
    looks = [f"SELECT 1 FROM (SELECT * FROM {quoted(table)} LIMIT 0) AS t" for table in tables]
    try:
        query(connection, " UNION ALL ".join(looks))
        return {}
    except pymysql.Error as error:
        if not is_refusal(error):
            raise
        if len(tables) == 1:
            return {tables[0]: error}
    half = len(tables) // 2
    return _refused(connection, tables[:half]) | _refused(connection, tables[half:])


def is_broken(error: BaseException) -> bool:
    """Whether the server could not open the table of a statement that is known to be right."""
    return is_refusal(error) and not is_denied(error) and code_of(error) not in _PASSING | {1143}


def broken_reason(table: TableId, error: BaseException) -> tuple[str, str]:
    """Reason and hint for a table that the server cannot open."""
    code = code_of(error)
    return f"The source cannot open table {table}: {error.args[-1]} ({code}).", broken_hint(table, code)


def broken_hint(table: TableId, code: int) -> str:
    """What to do about a table that the server cannot open."""
    cure = "Repair it, restore it from a backup or drop it"
    if code in _CRASHED:
        cure = f"Run `REPAIR TABLE {quoted(table)}` at the source"
    elif code == 1168:
        cure = "Make the tables of its UNION again or drop it"
    elif code in _UNKNOWN:
        cure = "Load the engine or plugin that it needs, or drop it"
    return f"{cure}, then run `penstock resnapshot FILE {argument(table)}`; or leave it out of the pipeline."


def broken_tables(connection: Any, tables: Sequence[TableId]) -> dict[TableId, tuple[str, str]]:
    """Reason and hint for each of these tables that the server cannot open."""
    found = refused_tables(connection, tables).items()
    return {table: broken_reason(table, error) for table, error in found if is_broken(error)}


def unless_broken(question: Callable[[], list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
    """The rows of a query about one table. None of them if the server cannot open it."""
    try:
        return question()
    except pymysql.Error as error:
        if not is_broken(error):
            raise
        return []
