"""Renames tables in states that were written before `model.name` quoted names. In such a state, `a.b.t` could
also mean the table `t` of the database `a.b`. Such a table looked captured, but its rows were not read and
its changes were skipped. It now gets the name that `model.name` writes, and a resnapshot of it becomes
pending."""

from __future__ import annotations

import sqlite3

from penstock.model.schema import TableSchema

_WHY = "an earlier version of Penstock skipped changes in databases with dots in their names"


def rename_unquoted(db: sqlite3.Connection) -> None:
    """Renames the tables as part of the upgrade from formats 4 and 5, whose column names it uses. Call inside
    a transaction."""
    may_differ = "name LIKE '%.%.%' OR instr(name, '`') > 0"
    for before, text in db.execute(f"SELECT name, schema FROM tables WHERE {may_differ}").fetchall():
        table = TableSchema.from_json(text).table
        if str(table) == before:
            continue
        for kind in ("tables", "chunks", "schemas", "history", "snapshots"):
            db.execute(f"UPDATE OR REPLACE {kind} SET name = ? WHERE name = ?", (str(table), before))
        if "." in table.database:
            db.execute("DELETE FROM chunks WHERE name = ?", (str(table),))
            db.execute(
                "UPDATE tables SET due = CASE status WHEN 'live' THEN ? ELSE due END, resumes = NULL "
                "WHERE name = ?",
                (_WHY, str(table)),
            )
