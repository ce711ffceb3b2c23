"""A state that an earlier version wrote goes on in the present format, or stays exactly as it was."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.phases import READ, READING

from penstock.errors import ConfigError
from penstock.model.chunk import Chunk
from penstock.model.offset import LogRange, Offset
from penstock.model.plan import ApplyEvents, CreateTarget, Evolve, KeptColumns
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.table import CatchingUp, Change, Parked, ResnapshotPending, TableState
from penstock.state import StateStore, layout

ORDERS, ITEMS = TableId("shop", "orders"), TableId("shop", "items")
SCHEMA = TableSchema(
    ORDERS, (Column("id", "int", nullable=False), Column("x", "enum", labels=("a",))), ("id",)
)
NEXT = TableSchema(ORDERS, (Column("id", "bigint", nullable=False),), ("id",), 2)
OTHER = TableSchema(ITEMS, (Column("id", "int", nullable=False),), ("id",))

FORMAT_5 = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE tables (
    name TEXT PRIMARY KEY, status TEXT NOT NULL, start INTEGER NOT NULL, schema TEXT NOT NULL,
    snapshot TEXT NOT NULL, written INTEGER NOT NULL, last_epoch INTEGER NOT NULL,
    reason TEXT NOT NULL, hint TEXT NOT NULL, parked_at INTEGER, replaces INTEGER NOT NULL,
    rows_guess INTEGER NOT NULL, begins TEXT NOT NULL, due TEXT NOT NULL, kept TEXT,
    resumes INTEGER
) WITHOUT ROWID;
CREATE TABLE chunks (
    name TEXT NOT NULL, snapshot INTEGER NOT NULL, number INTEGER NOT NULL, lower TEXT, upper TEXT,
    part TEXT NOT NULL, status TEXT NOT NULL, manifest TEXT, reads INTEGER NOT NULL,
    PRIMARY KEY (name, snapshot, number)
) WITHOUT ROWID;
CREATE TABLE epochs (
    epoch INTEGER PRIMARY KEY, start INTEGER NOT NULL, end INTEGER NOT NULL, plan TEXT NOT NULL,
    planned_us INTEGER NOT NULL, applied_us INTEGER, result TEXT
);
CREATE TABLE schemas (
    name TEXT NOT NULL, version INTEGER NOT NULL, since INTEGER NOT NULL, schema TEXT NOT NULL,
    PRIMARY KEY (name, version)
) WITHOUT ROWID;
CREATE TABLE history (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, version INTEGER NOT NULL, offset INTEGER NOT NULL,
    commit_us INTEGER, noted_us INTEGER NOT NULL, what TEXT NOT NULL, decision TEXT NOT NULL,
    statement TEXT NOT NULL
);
CREATE TABLE requests (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, argument TEXT NOT NULL, answer TEXT);
CREATE TABLE signals (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, type TEXT NOT NULL, data TEXT NOT NULL,
    channel TEXT NOT NULL, status TEXT NOT NULL, answer TEXT NOT NULL,
    received_us INTEGER NOT NULL, updated_us INTEGER NOT NULL
);
CREATE TABLE snapshots (
    number INTEGER PRIMARY KEY, signal TEXT NOT NULL, name TEXT NOT NULL, since INTEGER NOT NULL,
    part TEXT NOT NULL, status TEXT NOT NULL, reason TEXT NOT NULL, chunks INTEGER NOT NULL,
    rows INTEGER NOT NULL
);
CREATE INDEX chunks_planned ON chunks (name, snapshot, number) WHERE status = 'planned';
INSERT INTO meta VALUES ('format', '5'), ('uuid', 'the-uuid'), ('position', '300'), ('relay_log', 'log-uuid');
"""

FORMAT_4_CHUNKS = """
DROP TABLE chunks;
CREATE TABLE chunks (name TEXT NOT NULL, number INTEGER NOT NULL, lower TEXT, upper TEXT,
    status TEXT NOT NULL, manifest TEXT, reads INTEGER NOT NULL, PRIMARY KEY (name, number)) WITHOUT ROWID;
UPDATE meta SET value = '4' WHERE name = 'format';
"""


def plan_text(epoch: int, start: int, end: int, steps: list[dict[str, object]]) -> str:
    """As format 5 held it: with the definitions."""
    own = {"schema": json.loads(SCHEMA.to_json()), "steps": steps, "start": 4, "kept": None}
    made = {"schema": json.loads(OTHER.to_json()), "steps": [{"kind": "create"}], "start": 4, "kept": None}
    return json.dumps(
        {"format": 1, "epoch": epoch, "start": start, "end": end, "tables": [own, made], "moves": [],
         "keeps": [json.loads(OTHER.to_json())]}
    )  # fmt: skip


SPLIT = {"path": "/relay/0.binlog", "base": 0, "start": 150, "end": 300, "preamble": []}
EVENTS = {"kind": "events", "splits": [SPLIT], "mode": "merge", "bytes": 9, "newer": True}
KEPT = {"schema": json.loads(SCHEMA.to_json()), "sources": ["id", None]}
EVOLVE = {"kind": "evolve", "schema": json.loads(NEXT.to_json()), "refills": False, "kept": KEPT,
          "origins": [{"before": "id", "default_sql": None}]}  # fmt: skip


@pytest.fixture(params=["4", "5"])
def before(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of a state in an earlier format, with one epoch applied and one planned."""
    path = tmp_path / "state.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(FORMAT_5)
        row: tuple[Any, ...] = (
            "live",
            4,
            NEXT.to_json(),
            "reading",
            1,
            7,
            "",
            "",
            None,
            0,
            12,
            "",
            "",
            json.dumps(KEPT),
            None,
        )
        database.execute(f"INSERT INTO tables VALUES ('shop.orders', {', '.join('?' * 15)})", row)
        row = ("parked", 4, OTHER.to_json(), "done", 0, 7, "why", "cure", 90, 0, 0, "", "", None, 80)
        database.execute(f"INSERT INTO tables VALUES ('shop.items', {', '.join('?' * 15)})", row)
        database.execute("INSERT INTO schemas VALUES ('shop.orders', 1, 4, ?)", (SCHEMA.to_json(),))
        for epoch, start, end, steps, applied in (
            (7, 4, 200, [EVENTS], 5),
            (8, 200, 300, [EVENTS, EVOLVE], None),
        ):
            text = plan_text(epoch, start, end, steps)
            values = (epoch, start, end, text, 1, applied, "{}" if applied else None)
            database.execute("INSERT INTO epochs VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        database.execute(
            "INSERT INTO history VALUES (1, 'shop.orders', 2, 50, NULL, 1, 'x gone', 'applied', 'ALTER')"
        )
        if request.param == "4":
            database.executescript(FORMAT_4_CHUNKS)
            chunk = "INSERT INTO chunks VALUES ('shop.orders', ?, ?, ?, ?, ?, ?)"
        else:
            chunk = "INSERT INTO chunks VALUES ('shop.orders', 0, ?, ?, ?, '{}', ?, ?, ?)"
        manifest = json.dumps({"rows": 10, "unused": 1})
        for bounds in ((0, "null", '["7"]', "placed", manifest, 1), (1, '["7"]', "null", "planned", None, 2)):
            database.execute(chunk, bounds)
        database.commit()
    return tmp_path


def test_a_state_of_an_earlier_format_goes_on_once_the_pipeline_runs(before: Path) -> None:
    for refused in (partial(StateStore, before, read_only=True), partial(StateStore, before)):
        with pytest.raises(ConfigError, match=r"has format [45]") as caught:
            refused()
        assert "Start the pipeline" in caught.value.hint
    StateStore(before, owner=True).close()
    state = StateStore(before, read_only=True)
    assert (state.uuid, state.position, state.meta("relay_log")) == ("the-uuid", 300, "log-uuid")
    orders, items = state.table(ORDERS), state.table(ITEMS)
    assert orders == TableState(
        NEXT, Offset(4), READING, written=True, last_epoch=7, rows_guess=12,
        kept_columns=KeptColumns(SCHEMA, ("id", None)),
    )  # fmt: skip
    goes_on = CatchingUp(Offset(80), READ)
    assert items == TableState(OTHER, Offset(4), Parked(Offset(90), "why", "cure", goes_on), last_epoch=7)
    [plan] = state.pending()
    assert (plan.epoch, plan.range, plan.catch_up_later) == (8, LogRange(Offset(200), Offset(300)), (OTHER,))
    events, evolve = plan.tables[0].steps
    assert isinstance(events, ApplyEvents) and events.splits[0].start == 150
    assert isinstance(evolve, Evolve) and (evolve.schema, evolve.kept_columns) == (NEXT, orders.kept_columns)
    assert plan.tables[0].schema == SCHEMA and plan.tables[1].steps == (CreateTarget(),)
    assert state.oldest_planned() == 150 and state.applied_offset() == 200 and state.last_epoch() == 8
    assert (state.has_committed(7, ORDERS), state.has_committed(7, ITEMS)) == (True, False)
    assert [(one.chunk, one.status, one.reads) for one in state.chunks(ORDERS)] == [
        (Chunk(ORDERS, 0, None, ("7",)), "placed", 1),
        (Chunk(ORDERS, 1, ("7",), None), "planned", 2),
    ]
    assert state.rows_placed(ORDERS) == (10, 10)
    assert state.history() == [Change(ORDERS, 2, Offset(50), "x gone", "applied", "ALTER", None, 1)]


def test_an_upgrade_that_is_cut_off_leaves_the_state_as_it_was(
    before: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def content() -> list[str]:
        with closing(sqlite3.connect(before / "state.sqlite")) as database:
            return list(database.iterdump())

    was = content()

    def cut(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(layout, "store_plan", cut)
        with pytest.raises(RuntimeError):
            StateStore(before, owner=True)
    assert content() == was
    assert StateStore(before, owner=True).pending()[0].epoch == 8


def test_a_dotted_database_of_an_earlier_state_gets_its_name_and_is_read_again(before: Path) -> None:
    """`a.b.t` was the text of two tables. The one that looked captured was not."""
    dotted, plain, quoted = TableId("a.b", "t"), TableId("a", "c.t"), TableId("a", "`t")
    row = ("live", 4, "", "splitting", 0, 0, "", "", None, 0, 0, "", "", None, None)
    with closing(sqlite3.connect(before / "state.sqlite")) as database:
        for table in (dotted, plain, quoted):
            name = f"{table.database}.{table.table}"
            schema = replace(SCHEMA, table=table).to_json()
            values = (name, *row[:2], schema, *row[3:])
            database.execute(f"INSERT INTO tables VALUES ({', '.join('?' * 16)})", values)
            database.execute(
                "INSERT INTO history VALUES (NULL, ?, 1, 4, NULL, 1, 'found', 'captured', '')", (name,)
            )
        columns = "name, number, lower, upper, status, manifest, reads"
        is_4 = database.execute("SELECT value = '4' FROM meta WHERE name = 'format'").fetchone()[0]
        more = ("", "") if is_4 else (", snapshot, part", ", 0, '{}'")
        database.execute(
            f"INSERT INTO chunks ({columns}{more[0]}) "
            f"VALUES ('a.b.t', 0, 'null', 'null', 'planned', NULL, 0{more[1]})"
        )
        database.commit()
    for _ in range(2):
        with closing(StateStore(before, owner=True)) as state:
            assert {one.table for one in state.history()} == {ORDERS, dotted, plain, quoted}
            for table in (dotted, plain, quoted):
                found = state.table(table)
                assert found is not None and found.table == table == found.schema.table
                assert bool(found.resnapshot_pending) == (table == dotted)
            assert state.with_planned() == {(ORDERS, 0)}


FORMAT_6_TABLES = """
DROP TABLE tables;
CREATE TABLE tables (
    name TEXT PRIMARY KEY, status TEXT NOT NULL, start INTEGER NOT NULL, schema INTEGER NOT NULL,
    snapshot TEXT NOT NULL, written INTEGER NOT NULL, last_epoch INTEGER NOT NULL,
    reason TEXT NOT NULL, hint TEXT NOT NULL, parked_at INTEGER, replaces INTEGER NOT NULL,
    rows_guess INTEGER NOT NULL, begins TEXT NOT NULL, due TEXT NOT NULL, kept TEXT,
    resumes INTEGER, kept_schema INTEGER
) WITHOUT ROWID;
CREATE INDEX tables_schemas ON tables (schema);
CREATE INDEX tables_kept ON tables (kept_schema) WHERE kept_schema IS NOT NULL;
UPDATE meta SET value = '6' WHERE name = 'format';
"""


def test_a_state_of_format_6_goes_on_with_the_words_of_today(tmp_path: Path) -> None:
    words = {"": "none", "evolve": "evolve", "empty": "truncate", "fresh": "recreate"}
    StateStore(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / "state.sqlite")) as database:
        database.executescript(FORMAT_6_TABLES)
        for number, before in enumerate(words):
            table = TableId("shop", f"t{number}")
            schema = layout.store_schema(database, replace(SCHEMA, table=table))
            row = (str(table), "live", 4, schema, "done", 1, 7, "", "", None, 0, 12, before, "rows changed")
            database.execute(f"INSERT INTO tables VALUES ({', '.join('?' * 14)}, NULL, NULL, NULL)", row)
        database.commit()
    with pytest.raises(ConfigError, match="has format 6") as caught:
        StateStore(tmp_path)
    assert "Start the pipeline" in caught.value.hint
    for _ in range(2):
        with closing(StateStore(tmp_path, owner=True)) as state:
            tables = list(state.tables().values())
            assert [one.target_reset for one in tables] == list(words.values())
            assert {one.phase for one in tables} == {ResnapshotPending("rows changed")}
            state.put_table(tables[0])
