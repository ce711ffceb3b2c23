"""Plans around statements: where an epoch ends, what its tables do, what is durable beside the plan. The log
and the reader of statements are scripts; the state store is the real one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.phases import LOG_ONLY, PARKED, READ, READING, SPLITTING, behind

from penstock._core import GtidSet
from penstock.cascades.keys import AFTER_PARENTS
from penstock.config import SchemaConfig
from penstock.model.chunk import Chunk, StagedChunk
from penstock.model.offset import LogRange, Offset, SourcePosition, Split
from penstock.model.plan import (
    ApplyCascades,
    ApplyEvents,
    ColumnOrigin,
    CreateTarget,
    EpochPlan,
    Evolve,
    Move,
    PlaceChunks,
    RecreateTarget,
    Step,
    TruncateTarget,
)
from penstock.model.schema import DEFAULT_TYPES, CascadingKey, Column, TableId, TableSchema, TypeOptions
from penstock.model.schema_change import TableEffect
from penstock.model.shards import ShardRule, Shards
from penstock.model.table import CatchingUp, ResnapshotPending, TableState
from penstock.planning.planner import Planner, PlannerLimits, Targets
from penstock.planning.policy import Policies
from penstock.relaylog import segment_format
from penstock.relaylog.index import Statement
from penstock.snapshot.placement import PlacementLimits
from penstock.sources.mysql.binlog_position import BinlogPosition
from penstock.sources.mysql.snapshot.window import MySqlWindow, MySqlWindows
from penstock.state import StateStore

A, B = TableId("shop", "a"), TableId("shop", "b")
TASK_BYTES, SNAPSHOT_ROWS = 1 << 26, 150_000


@dataclass
class Log:
    """Row events of tables, and statements, each at an offset."""

    end: Offset
    events: list[tuple[int, TableId]] = field(default_factory=list)
    ddl: dict[int, list[TableEffect]] = field(default_factory=dict)
    moves: bool = False
    start: int = 4
    aims: list[int] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    server = "3e11fa47-71ca-11e1-9e33-c80aa9429562"

    def newest(self) -> Offset:
        return self.end

    def refresh(self) -> Offset:
        return self.end

    def cut(self, after: Offset, bytes_max: int) -> Offset:
        """As the real one: the last transaction end within `bytes_max`, or else the next one."""
        ends = sorted({at for at, _ in self.events} | set(self.ddl) | {int(self.end)})
        behind = [at for at in ends if after < at <= self.end]
        within = [at for at in behind if at <= after + bytes_max]
        return Offset(max(within, default=min(behind, default=after)))

    def statements(self, range_: LogRange) -> list[Statement]:
        assert range_.start >= self.start, "that part of the log is gone"
        return [
            Statement(Offset(at - 5), Offset(at), "shop", f"ALTER TABLE x -- {at}", 0)
            for at in sorted(self.ddl)
            if range_.start < at <= range_.end
        ]

    def effects(self, statement: Statement, live: dict[TableId, TableSchema]) -> list[TableEffect]:
        return [
            effect for effect in self.ddl[statement.end] if effect.table in live or effect.created is not None
        ]

    def touched(self, statement: Statement, tables: set[TableId]) -> set[TableId]:
        return {effect.table for effect in self.ddl[statement.end]} & tables

    def tables(self, range_: LogRange, *, exact: bool = False) -> dict[TableId, tuple[int, int]]:
        inside = [table for at, table in self.events if range_.start < at <= range_.end]
        return {table: (inside.count(table), 100) for table in inside}

    def splits(self, range_: LogRange, table: TableId, *, bytes_aim: int) -> list[Split]:
        self.aims.append(bytes_aim)
        return [Split("segment", Offset(0), range_.start, range_.end)]

    def committed_before(self, offset: Offset) -> Offset:
        return max((Offset(at) for at, _ in self.events if at <= offset), default=Offset(4))

    def commit_time_us_at(self, offset: Offset) -> int:
        return 1000 * offset

    def position_at(self, offset: Offset) -> SourcePosition:
        return segment_format.position("binlog.000001", offset)

    def executed_at(self, offset: Offset) -> GtidSet:
        return GtidSet(f"{self.server}:1-{offset}")

    def server_uuid_at(self, offset: Offset) -> str:
        return self.server

    def window_start(self, gtids: GtidSet, *, not_after: Offset) -> Offset:
        return next(
            Offset(at) for at in range(not_after, 0, -1) if self.executed_at(Offset(at)).issubset(gtids)
        )


def schema(table: TableId, *names: str, version: int = 1) -> TableSchema:
    return TableSchema(table, tuple(Column(name, "int") for name in names), ("id",), version)


NO_SHARDS = Shards()


def make(
    folder: Path,
    log: Log,
    *tables: TableState,
    cascades: TypeOptions | None = None,
    shards: Shards = NO_SHARDS,
    bytes_max: int = 1 << 30,
    append_only: bool = False,
    **options: Any,
) -> tuple[Planner, StateStore]:
    state = StateStore(folder)
    state.advance(Offset(4))
    for table in tables:
        state.put_table(table)
    schema_changes = SchemaConfig.model_validate(options)
    planner = Planner(
        state,
        log,  # type: ignore[arg-type]
        log,
        windows=MySqlWindows(),
        policies=Policies(schema_changes, append_only=append_only, reads=True, shards=shards),
        discard=lambda staged: None,
        limits=PlannerLimits(bytes_max, PlacementLimits(1 << 30, 1 << 30), TASK_BYTES, SNAPSHOT_ROWS),
        targets=Targets(identify=lambda table: f"identity of {table}" if log.moves else None),
        cascades=cascades,
    )
    return planner, state


def live(table: TableId, **changes: Any) -> TableState:
    state = TableState(schema(table, "id", "x"), Offset(4), LOG_ONLY, written=True, last_epoch=1)
    return replace(state, **changes)


def steps(plan: EpochPlan | None, table: TableId) -> list[Step]:
    assert plan is not None
    return [step for one in plan.tables if one.table == table for step in one.steps]


def done(state: StateStore, plan: EpochPlan | None) -> None:
    assert plan is not None
    state.applied(plan)


RENAME = TableEffect(
    A, (Evolve(schema(A, "id", "y", version=2), (ColumnOrigin("id"), ColumnOrigin("x"))),), what="x renamed"
)


def test_an_epoch_ends_at_a_statement_and_events_before_it_keep_their_definition(tmp_path: Path) -> None:
    log = Log(Offset(300), [(50, A), (60, B), (200, A)], {100: [RENAME]})
    planner, state = make(tmp_path, log, live(A), live(B))
    first = planner.plan_next()
    assert first is not None and first.range == LogRange(Offset(4), Offset(100))
    events, evolve = steps(first, A)
    assert isinstance(events, ApplyEvents) and isinstance(evolve, Evolve)
    assert first.tables[0].schema.version == 1
    assert [type(step) for step in steps(first, B)] == [ApplyEvents]
    [noted] = state.history()
    assert (noted.table, noted.version, noted.offset, noted.what) == (A, 2, 100, "x renamed")
    assert noted.commit_us == 100_000 and noted.statement.startswith("ALTER TABLE")


def test_an_epoch_holds_as_many_bytes_as_are_allowed_and_at_least_one_transaction(tmp_path: Path) -> None:
    log = Log(Offset(900), [(50, A), (90, A), (120, B), (800, A)])
    planner, state = make(tmp_path, log, live(A), live(B), bytes_max=100)
    ranges = []
    while (plan := planner.plan_next()) is not None:
        ranges.append((plan.range.start, plan.range.end))
        done(state, plan)
    assert ranges == [(4, 90), (90, 120), (120, 800)]


def test_one_statement_may_drop_several_tables_and_let_another_take_a_name(tmp_path: Path) -> None:
    # RENAME TABLE a TO gone, b TO a
    effects = [
        TableEffect(A, dropped=True, voids="RENAME TABLE"),
        TableEffect(B, renamed=A, voids="RENAME TABLE"),
        TableEffect(A, created=schema(A, "id", "z"), fills=True, voids="RENAME TABLE"),
    ]
    log = Log(Offset(300), [(50, A), (60, B)], {100: effects})
    planner, state = make(tmp_path, log, live(A), live(B))
    plan = planner.plan_next()
    assert [type(step) for step in steps(plan, A)] == [ApplyEvents], "its last events, of the table before"
    tables = state.tables()
    assert tables[B].status == "dropped"
    assert (tables[A].status, tables[A].start, tables[A].target_reset) == ("live", 100, "truncate")
    assert (tables[A].schema.version, tables[A].snapshot) == (2, "splitting")
    done(state, plan)
    empties, evolves = steps(planner.plan_next(), A)
    assert isinstance(empties, TruncateTarget) and empties.sequence == 99
    assert isinstance(evolves, Evolve) and evolves.refills


def test_a_table_that_is_to_be_read_again_is_left_out_until_it_begins_anew(tmp_path: Path) -> None:
    log = Log(Offset(300), [(50, A), (200, A), (210, B)], {100: [TableEffect(A, rereads="a partition went")]})
    planner, state = make(tmp_path, log, live(A, phase=READ), live(B))
    plan = planner.plan_next()
    assert [type(step) for step in steps(plan, A)] == [ApplyEvents]
    table = state.table(A)
    assert table is not None and table.phase == ResnapshotPending("a partition went")
    done(state, plan)
    plan = planner.plan_next()
    assert steps(plan, A) == [] and [type(step) for step in steps(plan, B)] == [ApplyEvents]


def test_a_statement_that_leaves_nothing_to_do_moves_the_position_without_an_epoch(tmp_path: Path) -> None:
    created = TableEffect(A, created=schema(A, "id"))
    planner, state = make(tmp_path, Log(Offset(300), [(200, A)], {100: [created]}))
    assert planner.plan_next() is None
    assert state.position == 100
    plan = planner.plan_next()
    assert [type(step) for step in steps(plan, A)] == [CreateTarget, ApplyEvents]


def test_statements_one_after_the_other_are_epochs_of_their_own(tmp_path: Path) -> None:
    log = Log(Offset(300), [], {at: [RENAME] for at in (100, 110, 120)})
    planner, state = make(tmp_path, log, live(A))
    for at in (100, 110, 120):
        plan = planner.plan_next()
        assert plan is not None and plan.range.end == at
        done(state, plan)
    assert planner.plan_next() is None and state.position == 300


def test_a_parked_table_is_left_alone_by_statements_and_events(tmp_path: Path) -> None:
    log = Log(Offset(300), [(50, A)], {100: [RENAME], 150: [TableEffect(A, created=schema(A, "id"))]})
    planner, state = make(tmp_path, log, live(A, phase=PARKED))
    assert planner.plan_next() is None
    assert state.position == 300 and state.history() == []


SWAP = [
    TableEffect(A, created=schema(A, "id", "b"), fills=True, was=B, voids="RENAME TABLE"),
    TableEffect(B, created=schema(B, "id", "a"), fills=True, was=A, voids="RENAME TABLE"),
]


def pair(**of_b: Any) -> list[TableState]:
    first = live(A, schema=schema(A, "id", "a"), phase=READ, last_epoch=3)
    return [first, live(B, schema=schema(B, "id", "b"), **{"phase": READ, "last_epoch": 2, **of_b})]


def test_targets_move_with_renamed_tables_in_an_epoch_of_their_own(tmp_path: Path) -> None:
    log = Log(Offset(300), [(50, A), (60, B), (200, A)], {100: SWAP}, moves=True)
    planner, state = make(tmp_path, log, *pair())
    before = planner.plan_next()
    assert before is not None and (before.range.end, before.moves) == (60, ())
    assert state.history() == []
    done(state, before)
    plan = planner.plan_next()
    assert plan is not None and plan.tables == () and plan.range == LogRange(Offset(60), Offset(100))
    assert plan.moves == (Move(B, A, "identity of shop.b"), Move(A, B, "identity of shop.a"))
    assert state.pending() == [plan]
    tables = state.tables()
    assert tables[A].schema.columns == schema(A, "id", "b").columns and tables[A].schema.table == A
    assert (tables[A].start, tables[A].last_epoch, tables[A].snapshot) == (100, 2, "done")
    assert (tables[B].start, tables[B].last_epoch, tables[B].written) == (100, 3, True)
    done(state, plan)
    assert [type(step) for step in steps(planner.plan_next(), A)] == [ApplyEvents]


def test_a_target_that_is_not_complete_stays_and_its_table_is_read_under_its_new_name(tmp_path: Path) -> None:
    log = Log(Offset(300), [], {100: SWAP}, moves=True)
    planner, state = make(tmp_path, log, *pair(phase=READING))
    plan = planner.plan_next()
    assert plan is not None and plan.moves == (Move(A, B, "identity of shop.a"),)
    tables = state.tables()
    assert (tables[B].snapshot, tables[B].last_epoch) == ("done", 3)
    assert (tables[A].status, tables[A].snapshot, tables[A].last_epoch) == ("live", "splitting", 0)


def test_the_target_stays_where_an_online_schema_change_takes_the_name(tmp_path: Path) -> None:
    swapped = replace(RENAME, what="through a copy")
    log = Log(Offset(300), [], {100: [swapped, TableEffect(B, created=schema(B, "id"), was=A)]}, moves=True)
    planner, _ = make(tmp_path, log, live(A))
    plan = planner.plan_next()
    assert plan is not None and plan.moves == ()
    assert [type(step) for step in steps(plan, A)] == [Evolve]


def test_no_target_moves_to_the_name_of_a_shard_which_has_none_of_its_own(tmp_path: Path) -> None:
    renamed = [TableEffect(A, renamed=B, voids="RENAME TABLE"), SWAP[1]]
    log = Log(Offset(300), [], {100: renamed}, moves=True)
    rules = Shards([ShardRule(str(B), "shop.all")])
    planner, state = make(tmp_path, log, live(A, phase=READ), shards=rules)
    plan = planner.plan_next()
    assert plan is None or plan.moves == ()
    assert state.tables()[A].status == "dropped"
    assert (state.tables()[B].snapshot, state.tables()[B].last_epoch) == ("splitting", 0)


def test_a_name_whose_target_has_moved_away_has_none(tmp_path: Path) -> None:
    renamed = [TableEffect(A, renamed=B, voids="RENAME TABLE"), SWAP[1]]
    log = Log(Offset(300), [], {100: renamed, 200: [TableEffect(A, created=schema(A, "id"))]}, moves=True)
    planner, state = make(tmp_path, log, pair()[0])
    plan = planner.plan_next()
    assert plan is not None and plan.moves == (Move(A, B, "identity of shop.a"),)
    assert (state.tables()[A].status, state.tables()[A].last_epoch) == ("dropped", 0)
    done(state, plan)
    planner.plan_next()
    assert (state.tables()[A].status, state.tables()[A].last_epoch) == ("live", 0)


def test_a_table_behind_catches_up_alone_and_its_statements_do_nothing_to_others(tmp_path: Path) -> None:
    created = TableEffect(B, created=schema(B, "id"), fills=True)
    log = Log(Offset(300), [(50, A), (60, B), (200, A), (250, B)], {100: [RENAME, created], 150: [RENAME]})
    planner, state = make(tmp_path, log, live(A, phase=behind(40)), live(B, start=Offset(300)))
    state.advance(Offset(300))
    ranges = []
    for _ in range(6):
        if (plan := planner.plan_next()) is None:
            continue
        assert {one.table for one in plan.tables} == {A}
        ranges.append((plan.range.start, plan.range.end))
        assert state.position == state.applied_offset() == 300
        done(state, plan)
    assert ranges == [(40, 100), (100, 150), (150, 300)]
    table = state.table(A)
    assert table is not None and table.phase == LOG_ONLY
    assert state.table(B) == live(B, start=Offset(300))
    assert [one.offset for one in state.history()] == [100, 150]
    log.end, log.events = Offset(400), [(350, A)]
    plan = planner.plan_next() or planner.plan_next()
    assert plan is not None and plan.range == LogRange(Offset(300), Offset(400))


def below(table: TableId, parent: TableId) -> TableSchema:
    key = CascadingKey("k", ("up",), parent, ("id",), "CASCADE")
    return replace(schema(table, "id", "up"), foreign_keys=(key,))


def test_tables_that_foreign_keys_change_have_a_step_when_a_table_above_them_has_events(
    tmp_path: Path,
) -> None:
    c = TableId("shop", "c")
    states = [live(A), live(B, schema=below(B, A)), live(c, schema=below(c, B))]
    log = Log(Offset(100), [(50, A)])
    planner, state = make(tmp_path, log, *states, cascades=DEFAULT_TYPES)
    plan = planner.plan_next()
    assert [type(step) for step in steps(plan, A)] == [ApplyEvents]
    assert steps(plan, B) == steps(plan, c) == [ApplyCascades(Offset(0), rows=True, reading=False)]
    assert plan is not None and state.pending() == [plan]
    done(state, plan)
    log.end, log.events = Offset(200), [(150, c)]
    plan = planner.plan_next()
    assert plan is not None and [table.table for table in plan.tables] == [c]
    assert [type(step) for step in steps(plan, c)] == [ApplyEvents]


def test_a_table_is_left_out_until_its_parent_was_read_again(tmp_path: Path) -> None:
    states = [live(A, phase=ResnapshotPending("asked for")), live(B, schema=below(B, A))]
    planner, state = make(tmp_path, Log(Offset(100), [(50, A), (60, B)]), *states, cascades=DEFAULT_TYPES)
    assert planner.plan_next() is None
    assert state.tables()[B].phase == ResnapshotPending(AFTER_PARENTS)


def itself(table: TableId, *parents: TableId) -> TableSchema:
    keys = tuple(
        CascadingKey(f"k{n}", ("up",), one, ("id",), "CASCADE") for n, one in enumerate((table, *parents))
    )
    return replace(schema(table, "id", "up"), foreign_keys=keys)


def in_one_piece(table: TableId, at: int | None, *, version: int = 1) -> StagedChunk:
    place = BinlogPosition("binlog.000001", at or 0)
    marks = MySqlWindow("", place).watermarks
    chunk = Chunk(table, 0, None, None)
    offset = None if at is None else Offset(at)
    return StagedChunk(chunk, "attempt", "path", 1, 1, "sum", version, marks, "uuid", at=offset)


def being_read(table: TableId, *parents: TableId, **changes: Any) -> TableState:
    return live(table, schema=itself(table, *parents), phase=SPLITTING, written=False, **changes)


def staged(state: StateStore, table: TableState, chunk: StagedChunk) -> None:
    if not state.chunks(table.table):
        assert state.add_chunks(table, [chunk.chunk])
    state.chunk_staged(chunk)


def test_a_table_that_refers_to_itself_is_placed_where_it_was_read_and_catches_up_from_there(
    tmp_path: Path,
) -> None:
    log = Log(Offset(300), [(50, B), (90, A), (200, A), (250, B)])
    table = being_read(B, A)
    planner, state = make(tmp_path, log, live(A), table, cascades=DEFAULT_TYPES)
    plan = planner.plan_next()
    assert plan is not None and plan.range == LogRange(Offset(4), Offset(300))
    assert not steps(plan, B), "its events wait until its rows are there"
    assert [one.table for one in plan.catch_up_later] == [B], "what happens to its parent is kept for it"
    assert state.pending() == [plan]
    done(state, plan)
    staged(state, table, in_one_piece(B, 100))
    plan = planner.plan_next()
    assert plan is not None and plan.range == LogRange(Offset(100), Offset(100))
    [placed] = steps(plan, B)
    assert isinstance(placed, PlaceChunks) and (placed.mode, placed.scans, placed.window) == (
        "append",
        (),
        None,
    )
    now = state.table(B)
    assert now is not None and (now.start, state.position) == (100, 300)
    assert now.phase == CatchingUp(Offset(100), READING)
    state.chunks_placed(placed.chunks)
    state.put_table(replace(now, phase=CatchingUp(Offset(100), READ), written=True))
    done(state, plan)
    log.end, log.events = Offset(400), [*log.events, (350, A)]
    plan = planner.plan_next()
    assert plan is not None and plan.range == LogRange(Offset(100), Offset(300))
    events, cascades = steps(plan, B)
    assert isinstance(events, ApplyEvents)
    assert cascades == ApplyCascades(Offset(0), rows=True, reading=False, alone=True)
    done(state, plan)
    plan = planner.plan_next()
    assert plan is not None and plan.range == LogRange(Offset(300), Offset(400)) and not plan.catch_up_later
    assert steps(plan, B) == [ApplyCascades(Offset(0), rows=True, reading=False)]


@pytest.mark.parametrize("what", ["before the log is applied", "unknown place", "definition", "truncated"])
def test_rows_read_in_one_piece_wait_or_are_read_again(tmp_path: Path, what: str) -> None:
    ddl = {200: [TableEffect(B, voids="TRUNCATE")]} if what == "truncated" else {}
    log = Log(Offset(300), [(90, A)], ddl)
    table = being_read(B)
    planner, state = make(tmp_path, log, live(A), table, cascades=DEFAULT_TYPES)
    while (plan := planner.plan_next()) is not None:
        done(state, plan)
    at = {"before the log is applied": 350, "unknown place": None}.get(what, 100)
    now = state.table(B)
    assert now is not None and now.reading
    staged(state, now, in_one_piece(B, at, version=7 if what == "definition" else 1))
    assert planner.plan_next() is None
    waits = what == "before the log is applied"
    assert [one.status for one in state.chunks(B)] == ["staged" if waits else "planned"]
    log.end = Offset(350)
    plan = planner.plan_next()
    plan = planner.plan_next() if plan is None else plan
    assert (plan is not None and plan.range == LogRange(Offset(350), Offset(350))) == waits


def test_a_fresh_target_is_made_before_anything_is_written_to_it(tmp_path: Path) -> None:
    log = Log(Offset(300), [(250, A)])
    begins = live(A, target_reset="recreate", written=False, last_epoch=0, phase=READING)
    planner, state = make(tmp_path, log, begins)
    plan = planner.plan_next()
    made, events = steps(plan, A)
    assert isinstance(made, RecreateTarget) and isinstance(events, ApplyEvents) and events.mode == "append"
    assert plan is not None and state.pending() == [plan]


def test_what_catches_up_is_not_newer_than_all_its_target_has(tmp_path: Path) -> None:
    log = Log(Offset(300), [(150, A), (250, A), (250, B)])
    planner, state = make(tmp_path, log, live(A), live(B, phase=behind(4)))
    state.advance(Offset(260))
    found = {}
    for _ in range(3):
        plan = planner.plan_next()
        if plan is not None:
            for table in plan.tables:
                found[table.table] = [step.newer for step in table.steps if isinstance(step, ApplyEvents)]
            done(state, plan)
        log.end, log.events = Offset(400), [*log.events, (350, A)]
    assert found == {A: [True], B: [False]}


@pytest.mark.parametrize(("append_only", "aim"), [(False, TASK_BYTES), (True, TASK_BYTES // 2)])
def test_what_one_task_lists_is_as_large_as_the_limit_says_and_half_of_it_for_a_change_log(
    tmp_path: Path, append_only: bool, aim: int
) -> None:
    log = Log(Offset(100), events=[(50, A)])
    planner, _ = make(tmp_path, log, live(A), append_only=append_only)
    [step] = steps(planner.plan_next(), A)
    assert isinstance(step, ApplyEvents) and log.aims == [aim]
