"""The tables of the state's SQLite file, and the conversion of files of earlier formats.

Nothing grows without a limit. A definition is stored once (`schemas`), as long as a table or a pending plan
refers to it. The plan of an applied epoch is deleted. Epochs, signals and the history of schema changes
have a maximum number of entries.

An upgrade is one transaction: if the pipeline is killed during it, the file is as it was before.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable
from typing import Any

from penstock.model.plan import EpochPlan
from penstock.model.plan_json import plan_from_text, plan_to_text
from penstock.model.schema import TableId, TableSchema
from penstock.state.upgrade_names import rename_unquoted

FORMAT = 7
"""Version of the layout. A state of a later version is refused."""
UPGRADED = ("4", "5", "6")
"""Earlier formats that a run converts to the present one."""

EPOCHS_MAX = 1000
"""Number of applied epochs whose ranges and times are stored: about 100 KB, which tell afterwards what was
applied when."""
EPOCHS_WITH_TABLES_MAX = 100
"""Number of applied epochs for which the names of the tables that they committed to are stored, too. With
thousands of tables, more would be many MB."""

DDL = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS schemas (
    id INTEGER PRIMARY KEY AUTOINCREMENT, version INTEGER NOT NULL, digest TEXT NOT NULL UNIQUE,
    schema TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS tables (
    name TEXT PRIMARY KEY, status TEXT NOT NULL, start INTEGER NOT NULL, schema INTEGER NOT NULL,
    snapshot TEXT NOT NULL, written INTEGER NOT NULL, last_epoch INTEGER NOT NULL,
    reason TEXT NOT NULL, hint TEXT NOT NULL, parked_at INTEGER, replaces INTEGER NOT NULL,
    rows_guess INTEGER NOT NULL, target_reset TEXT NOT NULL, resnapshot_pending TEXT NOT NULL, kept TEXT,
    resumes INTEGER, kept_schema INTEGER
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS chunks (
    name TEXT NOT NULL, snapshot INTEGER NOT NULL, number INTEGER NOT NULL, lower TEXT, upper TEXT,
    part TEXT NOT NULL, status TEXT NOT NULL, manifest TEXT, reads INTEGER NOT NULL,
    rows INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (name, snapshot, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS epochs (
    epoch INTEGER PRIMARY KEY, start INTEGER NOT NULL, end INTEGER NOT NULL, oldest INTEGER NOT NULL,
    planned_us INTEGER NOT NULL, applied_us INTEGER, plan TEXT, committed TEXT
);
CREATE TABLE IF NOT EXISTS planned_schemas (
    schema INTEGER NOT NULL, epoch INTEGER NOT NULL, PRIMARY KEY (schema, epoch)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS history (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, version INTEGER NOT NULL, offset INTEGER NOT NULL,
    commit_us INTEGER, noted_us INTEGER NOT NULL, what TEXT NOT NULL, decision TEXT NOT NULL,
    statement TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS signals (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, type TEXT NOT NULL, data TEXT NOT NULL,
    channel TEXT NOT NULL, status TEXT NOT NULL, answer TEXT NOT NULL,
    received_us INTEGER NOT NULL, updated_us INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS snapshots (
    number INTEGER PRIMARY KEY, signal TEXT NOT NULL, name TEXT NOT NULL, since INTEGER NOT NULL,
    part TEXT NOT NULL, status TEXT NOT NULL, reason TEXT NOT NULL, chunks INTEGER NOT NULL,
    rows INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS chunks_planned ON chunks (name, snapshot, number) WHERE status = 'planned';
CREATE INDEX IF NOT EXISTS tables_schemas ON tables (schema);
CREATE INDEX IF NOT EXISTS tables_kept ON tables (kept_schema) WHERE kept_schema IS NOT NULL;
CREATE INDEX IF NOT EXISTS epochs_waiting ON epochs (epoch) WHERE applied_us IS NULL;
CREATE INDEX IF NOT EXISTS epochs_told ON epochs (epoch) WHERE committed IS NOT NULL;
CREATE INDEX IF NOT EXISTS history_names ON history (name, id);
"""
"""The columns `kept` and `kept_schema` of `tables` store `TableState.kept_columns`: its sources and its
schema.

The index `chunks_planned` serves the query for the next planned chunk, which runs before each chunk. There
may be many chunks and many tables."""

_FROM_4 = """
ALTER TABLE chunks RENAME TO chunks_before;
CREATE TABLE chunks (
    name TEXT NOT NULL, snapshot INTEGER NOT NULL, number INTEGER NOT NULL, lower TEXT, upper TEXT,
    part TEXT NOT NULL, status TEXT NOT NULL, manifest TEXT, reads INTEGER NOT NULL,
    PRIMARY KEY (name, snapshot, number)
) WITHOUT ROWID;
INSERT INTO chunks SELECT name, 0, number, lower, upper, '{}', status, manifest, reads FROM chunks_before;
DROP TABLE chunks_before;
"""

_FROM_5 = """
DROP INDEX IF EXISTS chunks_planned;
ALTER TABLE chunks ADD COLUMN rows INTEGER NOT NULL DEFAULT 0;
UPDATE chunks SET rows = coalesce(json_extract(manifest, '$.rows'), 0) WHERE manifest IS NOT NULL;
UPDATE chunks SET manifest = NULL WHERE status = 'placed';
ALTER TABLE tables RENAME TO tables_before;
ALTER TABLE epochs RENAME TO epochs_before;
DROP TABLE schemas;
"""

_FROM_6 = """
ALTER TABLE tables RENAME COLUMN begins TO target_reset;
ALTER TABLE tables RENAME COLUMN due TO resnapshot_pending;
"""
_RESETS = """
UPDATE tables SET target_reset = CASE target_reset
    WHEN '' THEN 'none' WHEN 'empty' THEN 'truncate' WHEN 'fresh' THEN 'recreate' ELSE target_reset END;
"""

_STEPS_WITHOUT_COMMIT = ("create", "recreate", "cascades")
"""Kinds of steps that may leave no commit in the target."""


def statements(script: str) -> list[str]:
    return [one for one in script.split(";") if one.strip()]


def upgrade(database: sqlite3.Connection, found: str) -> None:
    """Converts a file of the format `found`, one of `UPGRADED`, to the present one. Call inside a
    transaction."""
    if found == "6":
        for statement in statements(_FROM_6):
            database.execute(statement)
    else:
        _rebuild(database, found)
    for statement in statements(_RESETS):
        database.execute(statement)
    database.execute("UPDATE meta SET value = ? WHERE name = 'format'", (str(FORMAT),))


def _rebuild(database: sqlite3.Connection, found: str) -> None:
    """Converts formats 4 and 5, which stored definitions inside tables and plans, so that definitions have
    numbers."""
    for statement in statements(_FROM_4) if found == "4" else ():
        database.execute(statement)
    rename_unquoted(database)
    for statement in [*statements(_FROM_5), *statements(DDL)]:
        database.execute(statement)
    columns = "name, status, start, schema, snapshot, written, last_epoch, reason, hint, parked_at, "
    columns += "replaces, rows_guess, begins, due, kept, resumes"
    places = ", ".join("?" * 17)
    for row in database.execute(f"SELECT {columns} FROM tables_before"):
        kept = json.loads(row[14]) if row[14] else None
        schema = store_schema(database, TableSchema.from_json(row[3]))
        sources = json.dumps(kept["sources"]) if kept else None
        other = store_schema(database, TableSchema.from_json(kept["schema"])) if kept else None
        values = (*row[:3], schema, *row[4:14], sources, row[15], other)
        database.execute(f"INSERT INTO tables VALUES ({places})", values)
    [(newest,)] = database.execute("SELECT coalesce(max(epoch), 0) FROM epochs_before")
    rows = database.execute(
        "SELECT epoch, start, end, CASE WHEN epoch > ?1 OR applied_us IS NULL THEN plan END, planned_us, "
        "applied_us FROM epochs_before WHERE epoch > ?2 OR applied_us IS NULL",
        (newest - EPOCHS_WITH_TABLES_MAX, newest - EPOCHS_MAX),
    )
    for epoch, start, end, text, planned_us, applied_us in rows:
        if applied_us is None:
            store_plan(database, plan_from_text(text, _refuse_number), start, end, planned_us)
            continue
        committed = json.dumps(_committed(json.loads(text))) if text is not None else None
        database.execute(
            "INSERT INTO epochs VALUES (?, ?, ?, ?, ?, ?, NULL, ?)",
            (epoch, start, end, start, planned_us, applied_us, committed),
        )
    database.execute("DROP TABLE tables_before")
    database.execute("DROP TABLE epochs_before")


def store_schema(database: sqlite3.Connection, schema: TableSchema) -> int:
    """Stores a definition if it is not stored yet. Returns its number."""
    text = schema.to_json()
    digest = digest_of(text)
    rows = database.execute("SELECT id FROM schemas WHERE digest = ?", (digest,)).fetchall()
    if rows:
        return int(rows[0][0])
    cursor = database.execute(
        "INSERT INTO schemas (version, digest, schema) VALUES (?, ?, ?)", (schema.version, digest, text)
    )
    return int(cursor.lastrowid or 0)


def delete_unused_schemas(database: sqlite3.Connection, numbers: Iterable[int]) -> None:
    """Deletes those of these definitions that no table and no pending plan uses."""
    for number in numbers:
        database.execute(
            "DELETE FROM schemas WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM tables WHERE schema = ?1) "
            "AND NOT EXISTS (SELECT 1 FROM tables WHERE kept_schema = ?1) "
            "AND NOT EXISTS (SELECT 1 FROM planned_schemas WHERE schema = ?1)",
            (number,),
        )


def store_plan(database: sqlite3.Connection, plan: EpochPlan, start: int, end: int, planned_us: int) -> None:
    named: set[int] = set()

    def number_of(schema: TableSchema) -> int:
        named.add(number := store_schema(database, schema))
        return number

    text = plan_to_text(plan, number_of)
    database.execute(
        "INSERT INTO epochs VALUES (?, ?, ?, ?, ?, NULL, ?, NULL)",
        (plan.epoch, start, end, plan.oldest, planned_us, text),
    )
    database.executemany("INSERT INTO planned_schemas VALUES (?, ?)", [(one, plan.epoch) for one in named])


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _refuse_number(number: int) -> TableSchema:
    raise ValueError(f"a plan of an earlier format refers to definition {number}")


def _committed(plan: dict[str, Any]) -> list[str]:
    """Returns the tables to whose targets a plan of format 1 commits."""
    return [
        str(TableId(one["schema"]["database"], one["schema"]["table"]))
        for one in plan["tables"]
        if any(step["kind"] not in _STEPS_WITHOUT_COMMIT for step in one["steps"])
    ]
