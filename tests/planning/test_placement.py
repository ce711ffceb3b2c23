"""Which chunks a plan places."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.phases import SPLITTING, behind
from tests.planning.test_planner import RENAME, A, B, Log, done, live, make, schema, steps

from penstock.model.chunk import Chunk, StagedChunk
from penstock.model.offset import Offset
from penstock.model.partial_snapshot import Part
from penstock.model.plan import ColumnOrigin, Evolve, PlaceChunks
from penstock.model.schema_change import TableEffect
from penstock.model.table import Change
from penstock.sources.mysql.binlog_position import BinlogPosition
from penstock.sources.mysql.snapshot.window import MySqlWindow
from penstock.state import StateStore


def part_of(state: StateStore, *, since: int) -> Chunk:
    """A partial snapshot of A by its key, to be read."""
    number = state.begin_partial("signal", A, Offset(since), Part(keys=((5,),)))
    chunk = Chunk(A, 0, None, None, number, keys=((5,),))
    state.set_partial_chunks(state.partials()[-1], [chunk])
    return chunk


def test_a_part_is_placed_although_the_log_of_the_tables_start_is_gone(tmp_path: Path) -> None:
    log = Log(Offset(300), [(250, B)], start=100)
    planner, state = make(tmp_path, log, live(A), live(B))
    state.advance(Offset(200))
    chunk = part_of(state, since=200)
    marks = MySqlWindow(str(log.executed_at(Offset(220))), BinlogPosition("binlog.000001", 220)).watermarks
    state.chunk_staged(StagedChunk(chunk, "x", "", 1, 1, "", 1, marks, log.server))
    [step] = steps(planner.plan_next(), A)
    assert isinstance(step, PlaceChunks) and step.newer


def test_a_part_of_a_table_that_catches_up_is_not_newer_than_all_its_target_has(tmp_path: Path) -> None:
    log = Log(Offset(300), [(150, A), (250, A)])
    planner, state = make(tmp_path, log, live(A, phase=behind(100)))
    state.advance(Offset(260))
    chunk = part_of(state, since=100)
    marks = MySqlWindow(str(log.executed_at(Offset(220))), BinlogPosition("binlog.000001", 220)).watermarks
    state.chunk_staged(StagedChunk(chunk, "x", "", 1, 1, "", 1, marks, log.server))
    [placed] = [step for step in steps(planner.plan_next(), A) if isinstance(step, PlaceChunks)]
    assert not placed.newer


def test_a_part_by_a_key_that_the_table_has_no_longer_ends(tmp_path: Path) -> None:
    now = replace(schema(A, "id", "x", version=2), key=("id", "x"))
    change = TableEffect(A, (Evolve(now, (ColumnOrigin("id"), ColumnOrigin("x"))),), what="another key")
    log = Log(Offset(300), [(250, A)], {100: [change]})
    planner, state = make(tmp_path, log, live(A))
    part_of(state, since=4)
    done(state, planner.plan_next())
    assert state.partials() == []
    [ended] = state.partials(signal="signal")
    assert (ended.status, ended.reason) == ("stopped", "the table's key changed")


def test_chunks_are_placed_a_few_at_a_time_while_other_tables_have_events(tmp_path: Path) -> None:
    log = Log(Offset(300), [(250, B), (350, B)])
    reading = live(A, phase=SPLITTING, written=False)
    planner, state = make(tmp_path, log, reading, live(B))
    chunks = [Chunk(A, number, None, None) for number in range(5)]
    assert state.add_chunks(reading, chunks)
    marks = MySqlWindow(str(log.executed_at(Offset(220))), BinlogPosition("binlog.000001", 220)).watermarks
    for chunk in chunks:
        state.chunk_staged(StagedChunk(chunk, "x", "", 60_000, 1, "", 1, marks, log.server))

    def placed() -> int:
        plan = planner.plan_next()
        [step] = steps(plan, A)
        assert isinstance(step, PlaceChunks)
        state.chunks_placed(list(step.chunks))
        done(state, plan)
        return len(step.chunks)

    assert placed() == 2, "120,000 rows, of 150,000 that are allowed"
    log.end = Offset(400)
    assert placed() == 2
    assert placed() == 1, "nothing is left but this"


def test_events_of_an_earlier_definition_are_not_searched_for_keys(tmp_path: Path) -> None:
    log = Log(Offset(300), [(50, A), (250, A)], {100: [RENAME]})
    planner, state = make(tmp_path, log, live(A, phase=SPLITTING, written=False))
    state.add_change(Change(A, 1, Offset(4), "found", "captured"))
    done(state, planner.plan_next())
    renamed = live(A, phase=SPLITTING, schema=schema(A, "id", "y", version=2))
    state.put_table(renamed)
    chunk = Chunk(A, 0, None, None)
    assert state.add_chunks(renamed, [chunk])
    marks = MySqlWindow(str(log.executed_at(Offset(220))), BinlogPosition("binlog.000001", 220)).watermarks
    state.chunk_staged(StagedChunk(chunk, "x", "", 1, 1, "", 2, marks, log.server))
    [placed] = [step for step in steps(planner.plan_next(), A) if isinstance(step, PlaceChunks)]
    assert placed.mode == "merge"
    assert all(split.start >= 100 for scan in placed.scans for split in scan.splits)
