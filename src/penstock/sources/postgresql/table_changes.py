"""What has happened to a table between two looks at the catalog.

PostgreSQL's log says nothing of ALTER TABLE. It describes a table again before its next row, by names and
types alone. So the catalog is compared with what was known: numbers of columns are never used again, and a
table whose rows were all written again has another file.

The result is statements of the log (`sources/logged_definitions.py`). Where the rows may have other values
than the log says, the table is read again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from penstock.model.column_type import DECIMAL, FLOATS, INTEGERS, LONG_TEXTS, SHORT_TEXTS
from penstock.sources.postgresql.catalog import PgColumn, PgLeaf, PgTable

Statement = tuple[str, dict[str, Any]]
"""The schema of the table, and what is said of it."""

_NUMBERS = INTEGERS | FLOATS | {DECIMAL}
_UNCERTAIN = "its definition has changed more than once, and only the last one is known"


def definition(
    table: PgTable, identity: frozenset[str] = frozenset(), sent: list[str] | None = None
) -> dict[str, Any]:
    """As the log has it. `identity`: the columns that the log has of rows before a change. `sent`: names of
    the columns as they come in messages, if that is in another order."""
    columns = [
        {**one.said, "pg_type": json.loads(one.kind), "identity": one.name in identity}
        for one in table.columns
    ]
    if sent is not None:
        columns = [{**one, "sent": sent.index(one["name"])} for one in columns]
    return {"catalog": table.catalog, "key": list(table.key), "columns": columns}


def changes(before: PgTable | None, after: PgTable | None, *, certain: bool = True) -> list[Statement]:
    """The statements, in their order. None: the table does not exist, or is not known yet. `certain`: `after`
    is all of what the catalog has now; else it may have more changes that the log has not reached."""
    if before is None:
        return [] if after is None or not _is_followed(after) else [_created(after)]
    if after is None:
        return [_of(before, {"dropped": True})]
    if certain and before == after:
        return []
    if not _is_followed(after):
        return [_parked(after)] if _is_followed(before) else []
    if not _is_followed(before):
        return [_created(after)]
    if before.table != after.table:
        return [*_renamed(before, after), *_altered(before, after, certain)]
    return _altered(before, after, certain)


def _is_followed(table: PgTable) -> bool:
    return table.published and table.is_logged


def _of(table: PgTable, said: dict[str, Any]) -> Statement:
    return table.table.database, {"table": table.table.table, **said}


def _created(table: PgTable) -> Statement:
    return _of(table, {"created": definition(table), "filled": True})


def _renamed(before: PgTable, after: PgTable) -> list[Statement]:
    to = [after.table.database, after.table.table]
    return [_of(before, {"moved": to, "created": definition(before)})]


def _parked(table: PgTable) -> Statement:
    if not table.is_logged:
        reason = f"{table.table} is not logged any more (SET UNLOGGED)"
        hint = "Set it LOGGED again"
    else:
        reason, hint = f"{table.table} is not in the publication any more", "Add it to the publication again"
    return _of(table, {"parked": reason, "hint": f"{hint}, and run `penstock unpark`."})


def _altered(before: PgTable, after: PgTable, certain: bool) -> list[Statement]:
    reasons = list(_reasons(before, after, certain))
    if not reasons and definition(before) == definition(after):
        return []
    known = {one.number: one for one in before.columns}
    renamed, values = dict[str, str](), dict[str, Any]()
    for column in after.columns:
        was = known.get(column.number) if column.number else None
        if was is not None and was.name != column.name:
            renamed[column.name] = was.name
        elif was is None and column.has_missing:
            values[column.name] = _value(column)
    said: dict[str, Any] = {"altered": definition(after)}
    extra = {"renamed": renamed, "values": values, "reread": "; ".join(reasons)}
    return [_of(after, {**said, **{name: value for name, value in extra.items() if value}})]


def _reasons(before: PgTable, after: PgTable, certain: bool) -> Iterator[str]:
    """Why rows may have other values than before, without an event in the log."""
    known = {one.number: one for one in before.columns}
    files = {one.number: one.file for one in before.leaves}
    since = {one.number: one.since for one in before.leaves}
    shared = [one for one in after.leaves if one.number in files]
    rewritten = before.file != after.file or any(files[one.number] != one.file for one in shared)
    if not certain:
        yield _UNCERTAIN
    for column in after.columns:
        was = known.get(column.number)
        if was is None:
            if column.number <= before.last:
                yield f"column {column.name} was not published before"
            elif rewritten:
                yield f"all rows were written again when column {column.name} was added"
            elif column.has_missing and not _has_constant(column):
                yield f"column {column.name} was added with a default"
        elif was.changed != column.changed and rewritten:
            yield f"the values of column {column.name} may have been converted"
        elif was.declared == column.declared and was.kind != column.kind:
            yield f"the type of column {column.name} has other parts"
        elif not set(was.labels or ()) <= set(column.labels or ()):
            yield f"labels of column {column.name} have other names"
    if len(shared) < len(before.leaves):
        yield "a partition is gone"
    elif rewritten and before.leaves and after.as_root:  # else the log says which partitions are emptied
        yield "a partition was emptied or written again"
    elif any(_is_attached(one, since) for one in after.leaves):
        yield "a partition was attached"
    if before.row_filter != after.row_filter:
        yield "the publication has another condition for its rows"
    elif before.membership != after.membership:
        yield "the publication was changed"
    if before.key != after.key:
        yield f"its key is ({', '.join(after.key)})" if after.key else "it has no key"


def _is_attached(leaf: PgLeaf, since: dict[int, str]) -> bool:
    """Whether a partition may have rows that were not written as rows of the table. `since`: of those known
    before."""
    known = since.get(leaf.number)
    return not leaf.is_born if known is None else known != leaf.since


def _has_constant(column: PgColumn) -> bool:
    """Whether the value of rows that were written before the column was added is known as JSON."""
    kind = column.said["type"]
    plain = kind in _NUMBERS | SHORT_TEXTS | LONG_TEXTS or kind == "boolean"
    return column.missing is None or (plain and column.missing not in ("NaN", "Infinity", "-Infinity"))


def _value(column: PgColumn) -> Any:
    text, kind = column.missing, column.said["type"]
    if text is None or not _has_constant(column):
        return None
    if kind == "boolean":
        return text == "t"
    if kind in INTEGERS:
        return int(text)
    return float(text) if kind in FLOATS else text
