"""The state store: what is durable, in which order, and what a second attempt changes (nothing)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.phases import LOG_ONLY, PARKED, READ, READING, SPLITTING

from penstock.config import SignalsConfig
from penstock.errors import ConfigError, DriverReplaced, TransientError
from penstock.model.chunk import Chunk, StagedChunk
from penstock.model.offset import LogRange, Offset
from penstock.model.partial_snapshot import Part
from penstock.model.plan import ColumnOrigin, DeleteOlder, EpochPlan, Evolve, KeptColumns, TablePlan
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.signal import VERIFY
from penstock.model.table import Change, Parked, ResnapshotPending, TableState, is_reading, new_table
from penstock.sources.mysql.binlog_position import BinlogPosition
from penstock.sources.mysql.snapshot.window import MySqlWindow
from penstock.state import StateStore, tables
from penstock.state.chunks import Totals
from penstock.state.database import now_us

ORDERS = TableId("shop", "orders")
SCHEMA = TableSchema(ORDERS, (Column("id", "int", nullable=False),), ("id",))


def chunk(number: int, *, last: bool = False) -> Chunk:
    return Chunk(ORDERS, number, (str(number),), None if last else (str(number + 1),))


def chunks(count: int) -> list[Chunk]:
    return [chunk(number, last=number == count - 1) for number in range(count)]


def staged(number: int, attempt: str, *, last: bool = False) -> StagedChunk:
    marks = MySqlWindow("a:1-5", BinlogPosition("binlog.000001", 4)).watermarks
    return StagedChunk(chunk(number, last=last), attempt, f"/{attempt}", 10, 100, "sum", 1, marks, "uuid")


def reading(state: StateStore, count: int) -> TableState:
    table = TableState(SCHEMA, Offset(4), SPLITTING)
    state.put_table(table)
    assert state.add_chunks(table, chunks(count))
    return table


def test_everything_is_there_after_reopening(tmp_path: Path) -> None:
    first = StateStore(tmp_path)
    reading(first, 3)
    first.chunk_staged(staged(1, "a"))
    first.plan(EpochPlan(1, LogRange(Offset(4), Offset(90)), ()))
    identity = first.uuid
    first.close()
    again = StateStore(tmp_path)
    assert again.uuid == identity
    assert again.position == 90
    assert [item.status for item in again.chunks(ORDERS)] == ["planned", "staged", "planned"]
    assert [plan.epoch for plan in again.pending()] == [1]
    assert again.applied_offset() == 4


def test_the_first_recorded_attempt_of_a_chunk_stays(tmp_path: Path) -> None:
    state = StateStore(tmp_path)
    reading(state, 1)
    state.chunk_staged(staged(0, "first", last=True))
    state.chunk_staged(staged(0, "second", last=True))
    [item] = state.chunks(ORDERS)
    assert item.staged is not None and item.staged.attempt == "first"


def test_a_void_chunk_is_read_again(tmp_path: Path) -> None:
    state = StateStore(tmp_path)
    reading(state, 1)
    state.chunk_staged(staged(0, "first", last=True))
    state.chunk_void(chunk(0))
    assert state.next_planned(ORDERS, set()) == chunk(0, last=True)


def test_chunks_are_found_only_once(tmp_path: Path) -> None:
    """Bounds found twice differ, and a row that lies in two chunks would be appended twice."""
    state = StateStore(tmp_path)
    table = reading(state, 2)
    assert not state.add_chunks(table, chunks(5))
    assert len(state.chunks(ORDERS)) == 2


def test_chunks_may_be_read_while_others_are_found_and_finding_goes_on_behind_the_last(
    tmp_path: Path,
) -> None:
    state = StateStore(tmp_path)
    table = TableState(SCHEMA, Offset(4), SPLITTING)
    state.put_table(table)
    first, second, third = chunks(3)
    assert state.last_chunk(ORDERS) is None and state.add_chunks(table, [first])
    assert state.next_planned(ORDERS, set()) == first
    state.close()
    again = StateStore(tmp_path)
    assert again.last_chunk(ORDERS) == first
    assert not again.add_chunks(table, [first]) and not again.add_chunks(table, [third])
    assert again.add_chunks(table, [second, third])
    assert [table.phase for table in again.tables().values()] == [READING]


def test_chunks_found_for_what_a_table_was_before_are_not_taken(tmp_path: Path) -> None:
    state = StateStore(tmp_path)
    table = TableState(SCHEMA, Offset(90), SPLITTING)
    state.put_table(table)
    other = replace(SCHEMA, version=2)
    for before in (replace(table, start=Offset(4)), replace(table, schema=other)):
        assert not state.add_chunks(before, chunks(1))
    assert state.chunks(ORDERS) == []


def test_a_failing_transaction_leaves_nothing(tmp_path: Path) -> None:
    state = StateStore(tmp_path)
    with pytest.raises(RuntimeError), state.transaction():
        state.advance(Offset(50))
        raise RuntimeError
    assert state.position is None


def test_parking_keeps_the_first_reason(tmp_path: Path) -> None:
    state = StateStore(tmp_path)
    reading(state, 2)
    state.park(ORDERS, offset=Offset(7), reason="first", hint="cure")
    state.park(ORDERS, offset=Offset(9), reason="second", hint="")
    table = state.table(ORDERS)
    assert table is not None and table.phase == Parked(Offset(7), "first", "cure")
    assert state.chunks(ORDERS) == []


def test_a_table_without_a_key_is_parked_unless_the_sink_only_appends() -> None:
    schema = replace(SCHEMA, key=())
    merging = new_table(
        schema, Offset(4), reads=True, append_only=False, add_key=lambda table: f"Give {table} a key"
    ).phase
    assert isinstance(merging, Parked) and merging.at == 4
    assert merging.hint.startswith("Give shop.orders a key; then run `penstock resnapshot FILE shop.orders`")
    assert new_table(schema, Offset(4), reads=True, append_only=True).phase == SPLITTING
    assert new_table(SCHEMA, Offset(4), reads=False, append_only=False).phase == LOG_ONLY


def test_a_state_of_another_format_is_refused(tmp_path: Path) -> None:
    StateStore(tmp_path).close()
    with sqlite3.connect(tmp_path / "state.sqlite") as db:
        db.execute("UPDATE meta SET value = '99' WHERE name = 'format'")
    with pytest.raises(ConfigError, match="format 99"):
        StateStore(tmp_path)


def test_a_closed_state_is_not_called_damaged(tmp_path: Path) -> None:
    """A thread may ask for something while the pipeline stops."""
    state = StateStore(tmp_path)
    state.close()
    with pytest.raises(TransientError, match="is closed, because the pipeline has ended"):
        state.meta("position")
    with pytest.raises(TransientError, match="is closed"), state.transaction():
        pass


def test_a_damaged_state_is_named(tmp_path: Path) -> None:
    (tmp_path / "state.sqlite").write_bytes(b"not a database at all" * 100)
    with pytest.raises(ConfigError, match=r"state\.sqlite is damaged"):
        StateStore(tmp_path)


def test_answers_to_verify_are_kept_for_a_minute_and_do_not_count_among_signals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateStore(tmp_path)
    state.limit_signals(SignalsConfig(keep=2))
    for number in range(2):
        state.send(f"own {number}", "log", {"message": "m"}, "cli")
        state.set_signal(f"own {number}", "done", {})
    for number in range(5):
        state.send(f"asked {number}", VERIFY, {}, VERIFY)
        state.set_signal(f"asked {number}", "running", {"held": True})
    assert [one.id for one in state.verifying()] == [f"asked {number}" for number in range(5)]
    for number in range(5):
        state.set_signal(f"asked {number}", "done", {})
    assert state.verifying() == [] and len(state.signals()) == 7
    later = now_us() + 61_000_000
    monkeypatch.setattr("penstock.state.signals.now_us", lambda: later)
    state.set_signal("own 0", "done", {})
    # The newest one stays, so that no client takes the next signal for one that it has seen.
    assert [one.id for one in state.signals()] == ["own 0", "own 1", "asked 4"]


def test_the_history_keeps_every_change_in_order_and_tells_each_tables_last(tmp_path: Path) -> None:
    state = StateStore(tmp_path)
    reading(state, 1)
    state.add_change(
        Change(ORDERS, 2, Offset(50), "column x added", "applied", "ALTER TABLE orders", 1_000_000)
    )
    state.park(ORDERS, offset=Offset(70), reason="why", hint="cure")
    state.close()
    again = StateStore(tmp_path)
    assert [(one.version, one.offset, one.what, one.decision) for one in again.history()] == [
        (2, 50, "column x added", "applied"),
        (1, 70, "why", "parked"),
    ]
    assert [one.offset for one in again.history(last_only=True)] == [70]
    assert again.changed_at(ORDERS) == 70 and again.changed_at(TableId("shop", "other")) == 0
    assert again.history()[0].commit_us == 1_000_000 and again.history()[0].noted_us > 0


def test_a_table_that_is_to_be_read_again_stays_so_after_reopening(tmp_path: Path) -> None:
    state = StateStore(tmp_path)
    table = TableState(SCHEMA, Offset(4), ResnapshotPending("its rows changed"), target_reset="evolve")
    state.put_table(table)
    state.close()
    assert StateStore(tmp_path).table(ORDERS) == table and not table.planned


def test_damage_that_is_found_late_is_named_as_well(tmp_path: Path) -> None:
    state = StateStore(tmp_path)
    reading(state, 1)
    state.plan(EpochPlan(1, LogRange(Offset(4), Offset(90)), ()))
    state.close()
    with closing(sqlite3.connect(state.path)) as database:
        database.execute("UPDATE schemas SET schema = replace(schema, 'int', 'bit')")
        database.execute("UPDATE epochs SET plan = substr(plan, 1, 20)")
        database.commit()
    again = StateStore(tmp_path, owner=True)
    for ask in (again.tables, again.pending, lambda: again.table(ORDERS)):
        with pytest.raises(ConfigError, match=r"state\.sqlite is damaged"):
            ask()
    assert [table.schema.version for table in again.brief_tables()] == [1]


def wide(version: int) -> TableSchema:
    return TableSchema(ORDERS, tuple(Column(f"c{n}", "int") for n in range(50)), ("c0",), version)


def test_a_definition_is_held_once_and_as_long_as_a_table_or_a_waiting_plan_names_it(tmp_path: Path) -> None:
    state = StateStore(tmp_path)

    def held() -> list[int]:
        with closing(sqlite3.connect(state.path)) as database:
            return [version for (version,) in database.execute("SELECT version FROM schemas ORDER BY id")]

    def table(version: int, kept: KeptColumns | None = None) -> TableState:
        return TableState(wide(version), Offset(4), READ, kept_columns=kept)

    state.put_table(table(1))
    origins = tuple(ColumnOrigin(column.name) for column in wide(2).columns)
    steps = (Evolve(wide(2), origins, kept_columns=KeptColumns(wide(7), ("c0",))),)
    plan = EpochPlan(
        1, LogRange(Offset(4), Offset(9)), (TablePlan(wide(1), steps),), catch_up_later=(wide(5),)
    )
    state.plan(plan)
    assert held() == [1, 2, 7, 5]
    with state.transaction():
        state.put_table(table(2, KeptColumns(wide(7), ("c0",))))
        assert state.pending() == [plan], "it can be read as long as it waits"
        state.applied(plan)
    assert held() == [2, 7]
    for epoch in range(2, 12):
        one = EpochPlan(epoch, LogRange(Offset(epoch * 9), Offset(epoch * 9 + 9)), (TablePlan(wide(2), ()),))
        state.plan(one)
        state.applied(one)
    state.put_table(table(3))
    assert held() == [3]
    again = StateStore(tmp_path)
    assert again.tables()[ORDERS] == table(3) and again.last_epoch() == 11


def test_a_definition_of_a_transaction_that_was_taken_back_is_not_taken_for_another(tmp_path: Path) -> None:
    state = StateStore(tmp_path)
    state.put_table(TableState(wide(1), Offset(4), READ))
    with pytest.raises(RuntimeError), state.transaction():
        state.put_table(TableState(wide(2), Offset(4), READ))
        assert state.tables()[ORDERS].schema == wide(2)
        raise RuntimeError
    state.put_table(TableState(wide(3), Offset(4), READ))
    assert state.tables()[ORDERS].schema == wide(3) == StateStore(tmp_path).tables()[ORDERS].schema


def test_what_an_applied_epoch_leaves_is_small_and_tells_who_has_a_commit(tmp_path: Path) -> None:
    state = StateStore(tmp_path)
    other = TableId("shop", "other")
    for epoch in range(1, 1203):
        tables = (TablePlan(SCHEMA, (DeleteOlder(Offset(1)),)), TablePlan(replace(SCHEMA, table=other), ()))
        plan = EpochPlan(epoch, LogRange(Offset(epoch), Offset(epoch + 1)), tables)
        with state.transaction():
            state.plan(plan)
            state.applied(plan)
    assert (state.has_committed(1202, ORDERS), state.has_committed(1202, other)) == (True, False)
    assert state.has_committed(1000, ORDERS) is None
    with closing(sqlite3.connect(state.path)) as database:
        [(epochs, plans, told)] = database.execute(
            "SELECT count(*), count(plan), count(committed) FROM epochs"
        )
    assert (epochs, plans, told) == (1001, 0, 100)


def test_the_history_forgets_its_oldest_entries_but_each_tables_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "HISTORY_ENTRIES_MAX", 30)
    monkeypatch.setattr(tables, "HISTORY_STEP", 10)
    state = StateStore(tmp_path)
    quiet = TableId("shop", "quiet")
    state.add_change(Change(quiet, 1, Offset(1), "found", "captured"))
    for number in range(2, 101):
        state.add_change(Change(ORDERS, number, Offset(number), "changed", "applied"))
    kept = state.history()
    assert (kept[0].table, kept[0].version) == (quiet, 1)
    assert [one.version for one in kept[1:]] == list(range(71, 101))
    assert {one.table: one.offset for one in state.history(last_only=True)} == {quiet: 1, ORDERS: 100}
    assert state.last_change() == 100


def test_values_of_names_with_one_beginning_are_asked_for_at_once(tmp_path: Path) -> None:
    state = StateStore(tmp_path)
    for name in ("verified shop.a", "verified shop.b", "verifie", "verify", "uuid of it"):
        state.set_meta(name, name.upper())
    assert state.metas("verified ") == {"shop.a": "VERIFIED SHOP.A", "shop.b": "VERIFIED SHOP.B"}


def test_tables_are_those_of_the_file_whoever_wrote_them(tmp_path: Path) -> None:
    """They are kept as values in between."""
    state, other = StateStore(tmp_path), StateStore(tmp_path)
    live = TableState(SCHEMA, Offset(4), LOG_ONLY)
    state.put_table(live)
    assert other.tables() == {ORDERS: live} == state.tables()
    parked = replace(live, phase=PARKED)
    other.put_table(parked)
    assert state.tables() == {ORDERS: parked}
    assert state.table(ORDERS) == parked
    assert state.tables_that(is_reading) == []
    reading_ = replace(live, phase=READING)
    state.put_table(reading_)
    assert state.tables_that(is_reading) == [reading_]
    assert other.tables_that(is_reading) == [reading_]


def test_what_is_put_is_what_another_process_reads(tmp_path: Path) -> None:
    """Whoever puts a table goes on with the value, and does not look at the file again."""
    state = StateStore(tmp_path)
    names = ["b", "a", "c"]
    for name in names:
        schema = replace(SCHEMA, table=TableId("shop", name))
        state.put_table(TableState(schema, Offset(4), READ))
    assert [table.table for table in state.tables()] == sorted(names)
    kept = KeptColumns(replace(SCHEMA, table=TableId("shop", "a")), ("id",))
    for table in list(state.tables().values()):
        changed = replace(
            table, start=Offset(2**62), phase=ResnapshotPending("why", PARKED), written=True, last_epoch=7,
            rows_guess=3, target_reset="evolve", kept_columns=kept, replaces=Offset(3),
        )  # fmt: skip
        state.put_table(changed)
        assert state.tables()[table.table] == changed == state.table(table.table)
    assert StateStore(tmp_path).tables() == state.tables()
    assert list(StateStore(tmp_path).tables()) == list(state.tables())


def test_what_is_taken_back_is_not_kept(tmp_path: Path) -> None:
    state = StateStore(tmp_path)
    live = TableState(SCHEMA, Offset(4), LOG_ONLY)
    state.put_table(live)
    before = state.revision(), state.own_changes
    with pytest.raises(ZeroDivisionError), state.transaction():
        state.put_table(replace(live, phase=READING))
        assert state.tables_that(is_reading)
        raise ZeroDivisionError
    assert state.tables() == {ORDERS: live}
    assert state.tables_that(is_reading) == []
    assert (state.revision(), state.own_changes) != before


def test_that_something_was_written_shows_in_every_process(tmp_path: Path) -> None:
    state, other = StateStore(tmp_path), StateStore(tmp_path)
    before = state.revision()
    assert state.revision() == before
    other.set_meta("a", "b")
    between = state.revision()
    assert between != before
    state.set_meta("a", "c")
    assert state.revision() not in (before, between)


def test_totals_are_of_the_own_snapshots_of_tables(tmp_path: Path) -> None:
    state = StateStore(tmp_path)
    assert state.totals() == {} and state.with_planned() == set()
    reading(state, 3)
    state.chunk_staged(staged(0, "a"))
    state.chunk_staged(staged(1, "a"))
    state.chunks_placed([staged(0, "a")])
    assert state.totals() == {ORDERS: Totals(chunks=3, read=2, placed=1, rows_read=20, rows_placed=10)}
    assert state.with_planned() == {(ORDERS, 0)}
    state.chunk_staged(staged(2, "a", last=True))
    assert state.with_planned() == set()


def test_what_cannot_be_written_is_taken_back_whole_and_what_follows_is_durable(tmp_path: Path) -> None:
    with closing(StateStore(tmp_path)) as state:
        state.set_meta("before", "1")
        pages = state._db.execute("PRAGMA page_count").fetchone()[0]
        state._db.execute(f"PRAGMA max_page_count = {pages + 1}")  # the disk is full
        with pytest.raises(ConfigError, match=r"cannot be written: database or disk is full\. Free space"):
            state.set_meta("large", "x" * 1_000_000)
        state._db.execute("PRAGMA max_page_count = 1000000")
        state.set_meta("after", "2")
    with closing(StateStore(tmp_path)) as state:
        assert [state.meta(name) for name in ("before", "large", "after")] == ["1", None, "2"]


def test_a_commit_that_fails_leaves_no_transaction_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing:
        """A connection of which the next COMMIT fails."""

        def __init__(self, connection: sqlite3.Connection) -> None:
            self._connection, self._fails = connection, True

        def __getattr__(self, name: str) -> object:
            return getattr(self._connection, name)

        def execute(self, sql: str, *values: Any) -> object:
            if sql == "COMMIT" and self._fails:
                self._fails = False
                raise sqlite3.OperationalError("disk I/O error")
            return self._connection.execute(sql, *values)

    with closing(StateStore(tmp_path)) as state:
        monkeypatch.setattr(state, "_db", Failing(state._db))
        with pytest.raises(ConfigError, match="cannot be written: disk I/O error"):
            state.set_meta("lost", "1")
        state.set_meta("kept", "2")
        with closing(StateStore(tmp_path)) as other:
            assert (other.meta("lost"), other.meta("kept")) == (None, "2")


def test_an_earlier_driver_of_a_state_on_a_shared_disk_writes_nothing_any_more(tmp_path: Path) -> None:
    with closing(StateStore(tmp_path)) as suspended:
        suspended.begin_generation(1)
        suspended.set_meta("known", "1")
        with closing(StateStore(tmp_path)) as successor:
            assert successor.generation == 1
            successor.begin_generation(2)
            with pytest.raises(DriverReplaced, match="has taken over"):
                suspended.set_meta("known", "2")
            with pytest.raises(DriverReplaced):
                suspended.plan(EpochPlan(1, LogRange(Offset(4), Offset(100)), ()))
            successor.set_meta("other", "3")
            assert (successor.meta("known"), successor.pending()) == ("1", [])


def test_every_table_that_is_to_be_read_again_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = TableState(SCHEMA, Offset(4), READ)
    with closing(StateStore(tmp_path)) as state:
        state.put_table(table)
        state.put_table(table.read_again("its key changed"))
        state.put_table(replace(table.read_again("its key changed"), last_epoch=4))
        state.put_table(table)
        state.put_table(table.read_again("its key changed"))
        state.park(ORDERS, offset=Offset(9), reason="It does not fit.", hint="", resnapshot="again")
    said = [one.getMessage() for one in caplog.records]
    assert said == [*["shop.orders is read again: its key changed"] * 2, "shop.orders is read again: again"]


def test_a_partial_snapshot_that_is_stopped_by_parking_tells_what_was_placed_before(tmp_path: Path) -> None:
    state = StateStore(tmp_path)
    state.put_table(TableState(SCHEMA, Offset(4), READ))
    number = state.begin_partial("signal", ORDERS, Offset(4), Part(("0",)))
    [partial] = state.partials()
    state.set_partial_chunks(partial, [replace(one, snapshot=number) for one in chunks(2)])
    first = replace(staged(0, "a"), chunk=replace(chunk(0), snapshot=number))
    state.chunk_staged(first)
    state.chunks_placed([first])
    state.park(ORDERS, offset=Offset(9), reason="why", hint="")
    [ended] = state.partials(signal="signal")
    assert (ended.status, ended.reason) == ("stopped", "the table was parked: why")
    assert (ended.chunks, ended.rows) == (1, 10)
    assert state.chunks(ORDERS, snapshot=number) == []
