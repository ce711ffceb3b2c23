"""Plans survive being written down."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.model.chunk import Chunk, StagedChunk
from penstock.model.offset import LogRange, Offset, Split
from penstock.model.plan import (
    AdoptTarget,
    ApplyEvents,
    ColumnOrigin,
    CreateTarget,
    DeleteOlder,
    DropTarget,
    EpochPlan,
    Evolve,
    KeptColumns,
    Park,
    PlaceChunks,
    Scan,
    TablePlan,
    TruncateTarget,
)
from penstock.model.plan_json import plan_from_text, plan_to_text
from penstock.model.schema import Column, TableId, TableSchema
from penstock.sources.mysql.binlog_position import BinlogPosition
from penstock.sources.mysql.snapshot.window import MySqlWindow

offsets = st.integers(0, 2**62).map(Offset)
names = st.text(min_size=1, max_size=12).filter(lambda text: "." not in text)
tables = st.builds(TableId, names, names)
columns = st.builds(
    Column,
    name=names,
    type=st.sampled_from(["int", "varchar", "enum"]),
    unsigned=st.booleans(),
    labels=st.none() | st.lists(names, max_size=3).map(tuple),
)
schemas = st.builds(
    TableSchema, tables, st.lists(columns, max_size=3).map(tuple), st.lists(names, max_size=2).map(tuple)
)
splits = st.builds(
    Split,
    names,
    offsets,
    offsets,
    offsets,
    st.lists(st.tuples(names, offsets, offsets), max_size=2).map(tuple),
)
bounds = st.none() | st.lists(names, min_size=1, max_size=2).map(tuple)
positions = st.builds(BinlogPosition, st.just("binlog.000001"), st.integers(4, 2**40))
staged = st.builds(
    StagedChunk,
    chunk=st.builds(Chunk, tables, st.integers(0, 9), bounds, bounds),
    attempt=names,
    path=names,
    rows=st.integers(0, 9),
    bytes=st.integers(0, 9),
    checksum=names,
    schema_version=st.integers(1, 9),
    watermarks=st.builds(MySqlWindow, names, positions).map(lambda window: window.watermarks),
    server_uuid=names,
)
split_tuples = st.lists(splits, max_size=3).map(tuple)
modes = st.sampled_from(["append", "merge", "changes"])
scans = st.lists(st.builds(Scan, split_tuples, st.none() | names), max_size=2).map(tuple)
kept = st.builds(KeptColumns, schemas, st.lists(st.none() | names, max_size=2).map(tuple))
steps = st.one_of(
    st.builds(CreateTarget),
    st.builds(AdoptTarget),
    st.builds(DropTarget),
    st.builds(ApplyEvents, split_tuples, modes, st.integers(0, 2**40)),
    st.builds(PlaceChunks, st.lists(staged, max_size=2).map(tuple), scans, modes, newer=st.booleans()),
    st.builds(TruncateTarget, st.none() | st.integers(0, 2**60), st.none() | offsets),
    st.builds(
        Evolve,
        schemas,
        st.lists(st.builds(ColumnOrigin, st.none() | names, st.none() | names), max_size=2).map(tuple),
        st.booleans(),
        st.none() | kept,
    ),
    st.builds(DeleteOlder, offsets),
    st.builds(Park, offsets, names, names),
)


@given(
    st.lists(
        st.builds(TablePlan, schemas, st.lists(steps, max_size=4).map(tuple), offsets, st.none() | kept),
        max_size=3,
    ).map(tuple),
    st.integers(1, 2**40),
    offsets,
    st.integers(0, 2**30),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_plan_is_the_same_after_it_was_stored(
    plans: tuple[TablePlan, ...], epoch: int, start: Offset, size: int
) -> None:
    plan = EpochPlan(epoch, LogRange(start, Offset(start + size)), plans)
    known: dict[TableSchema, int] = {}
    text = plan_to_text(plan, lambda schema: known.setdefault(schema, len(known)))
    assert plan_from_text(text, lambda number: next(s for s, n in known.items() if n == number)) == plan
