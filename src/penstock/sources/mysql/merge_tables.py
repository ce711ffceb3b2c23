"""Tables under a MERGE table.

A MERGE table (`ENGINE=MERGE UNION=(t, u)`) has no rows of its own. What is written through it changes the
rows of `t` and `u`, but the log names the MERGE table, in row events and in TRUNCATE alike. So a captured
table cannot be followed while it is in such a union. The MERGE table cannot be followed either, because
writes to `t` change its rows, too. (Tried on MySQL 8.0: an INSERT through `m` into `t` has a table map of
each, and its rows belong to `m`. An unqualified name in UNION is resolved in the session's database.)

A *temporary* MERGE table cannot be noticed: a log in row format does not contain it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sources.mysql.broken_tables import unless_broken
from penstock.sources.mysql.connection import query
from penstock.sources.mysql.ddl import statement as syntax
from penstock.sources.mysql.ddl.parse import parse
from penstock.sources.mysql.ddl.server import Server
from penstock.sources.mysql.identifiers import quoted


def union_of(parsed: syntax.Statement) -> tuple[TableId, ...]:
    """The tables that a statement makes the parts of a MERGE table."""
    match parsed:
        case syntax.CreateTable(options=options):
            return options.union or ()
        case syntax.AlterTable(actions=actions):
            found = [one.options.union or () for one in actions if isinstance(one, syntax.SetOptions)]
            return tuple(table for union in found for table in union)
        case _:
            return ()


def is_merge(engine: str) -> bool:
    return engine.upper() in ("MERGE", "MRG_MYISAM")


def merge_reason(table: TableId, merge: TableId) -> tuple[str, str]:
    """Reason and hint for a captured table that is parked because it is a MERGE table or part of one."""
    if table == merge:
        reason = (
            f"Table {table} is a MERGE table: it has no rows of its own, and the log does not name it when "
            "a table under it changes."
        )
        return reason, f"Capture the tables under it, and leave {table} out of the pipeline."
    reason = (
        f"Table {table} is under the MERGE table {merge}: rows that are written through {merge} change "
        f"{table}, and the log holds them under the other name."
    )
    hint = (
        f"Drop {merge} or take {table} out of its UNION, then run "
        f"`penstock resnapshot FILE {argument(table)}`; or leave {table} out of the pipeline."
    )
    return reason, hint


def read_merge_tables(connection: Any, tables: Collection[TableId], server: Server) -> dict[TableId, TableId]:
    """The MERGE tables among `tables`, and their parts, each with the name of the MERGE table. If there are
    none, this is one query. Of a MERGE table that cannot be opened, the parts are not known: nobody can write
    through it."""
    found: dict[TableId, TableId] = {}
    rows = query(
        connection,
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE ENGINE = 'MRG_MYISAM'",
    )
    for database, name in sorted((str(row[0]), str(row[1])) for row in rows):
        merge = TableId(database, name)
        show = f"SHOW CREATE TABLE {quoted(merge)}"
        shown = unless_broken(lambda show=show: query(connection, show))  # type: ignore[misc]
        under = union_of(parse(str(shown[0][1]), database, server)) if shown else ()
        for table in (merge, *under):
            if table in tables:
                found.setdefault(table, merge)
    return found
