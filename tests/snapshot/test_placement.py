"""The placement rule, case by case. Random histories: `tests/properties/test_placement_model.py`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pytest

from penstock import _core
from penstock.model.chunk import Chunk, StagedChunk
from penstock.model.offset import LogRange, Offset, SourcePosition
from penstock.model.schema import Column, TableId, TableSchema
from penstock.relaylog import segment_format
from penstock.snapshot.placement import (
    Break,
    EpochEnd,
    KeyScan,
    Placed,
    PlacementLimits,
    ReadAgain,
    TableAtEnd,
    Void,
    Waiting,
    place,
    place_rows,
    shared_scans,
)
from penstock.sources.mysql.binlog_position import BinlogPosition
from penstock.sources.mysql.snapshot.window import MySqlWindow, MySqlWindows
from penstock.sources.windows import LogState, Window

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
LOW = f"{UUID}:1-50"


@dataclass
class Index:
    """A log of which everything up to `visible` is in any low watermark."""

    visible: int = 500
    bytes_per_offset: int = 1

    def offset_within(self, position: SourcePosition) -> Offset:
        raise AssertionError("only watermarks without GTIDs are placed by their position")

    def window(self, chunk: StagedChunk) -> Window:
        return MySqlWindows().of(chunk.watermarks)

    def window_start(self, gtids: str) -> Offset:
        return Offset(self.visible)

    def table_bytes(self, table: str, log_range: LogRange) -> int:
        return log_range.bytes * self.bytes_per_offset


CHUNK = StagedChunk(
    Chunk(TableId("d", "t"), 3, None, None), "attempt", "/x", 1, 1, "", 2,
    MySqlWindow(LOW, BinlogPosition("binlog.000009", 700)).watermarks, UUID,
)  # fmt: skip
EPOCH = EpochEnd(
    LogRange(Offset(600), Offset(900)), LogState(segment_format.position("binlog.000010", 4)), UUID
)
TABLE = TableAtEnd(Offset(100), LogState(None, _core.GtidSet(f"{UUID}:1-10")), 2, target_is_empty=False)
LIMITS = PlacementLimits(window_bytes_max=10_000, append_bytes_max=10_000)


def scan(start: int, end: int, exclude: str | None = None) -> KeyScan:
    return KeyScan(LogRange(Offset(start), Offset(end)), exclude)


def test_a_chunk_waits_until_the_log_has_reached_its_high_mark() -> None:
    before = replace(EPOCH, state=LogState(segment_format.position("binlog.000009", 699)))
    assert place(CHUNK, before, TABLE, Index(), LIMITS) == Waiting(CHUNK)
    reached = replace(EPOCH, state=LogState(segment_format.position("binlog.000009", 700)))
    assert isinstance(place(CHUNK, reached, TABLE, Index(), LIMITS), Placed)


def test_a_merge_drops_what_is_not_in_low_and_all_keys_of_the_epoch() -> None:
    found = place(CHUNK, EPOCH, TABLE, Index(visible=500), LIMITS)
    assert found == Placed(CHUNK, "merge", (scan(500, 600, LOW), scan(600, 900)), Offset(500))
    found = place(CHUNK, EPOCH, TABLE, Index(visible=800), LIMITS)
    assert found == Placed(CHUNK, "merge", (scan(600, 900),), Offset(800))


def test_a_merge_drops_no_key_for_what_the_epoch_holds_from_before_the_start_of_the_table() -> None:
    # A table that begins anew in the middle of a backlog: those events are not emitted for it.
    found = place(CHUNK, EPOCH, replace(TABLE, start=Offset(750)), Index(visible=500), LIMITS)
    assert found == Placed(CHUNK, "merge", (scan(750, 900),), Offset(750))


def test_an_append_drops_every_key_since_the_start_of_the_table() -> None:
    found = place(CHUNK, EPOCH, replace(TABLE, target_is_empty=True), Index(), LIMITS)
    assert found == Placed(CHUNK, "append", (scan(100, 900),), Offset(500))


def test_nothing_is_appended_if_events_since_the_start_have_other_columns() -> None:
    found = place(CHUNK, EPOCH, replace(TABLE, redefined=True), Index(), LIMITS)
    assert isinstance(found, Placed) and found.mode == "merge"
    assert min(scan.range.start for scan in found.scans) >= 500, (
        "events since its view are read, and no others"
    )


def test_an_append_that_costs_too_much_becomes_a_merge() -> None:
    limits = replace(LIMITS, append_bytes_max=799)
    found = place(CHUNK, EPOCH, replace(TABLE, target_is_empty=True), Index(), limits)
    assert isinstance(found, Placed) and found.mode == "merge"


def test_a_window_that_has_grown_too_large_is_read_again() -> None:
    assert isinstance(place(CHUNK, EPOCH, TABLE, Index(bytes_per_offset=100), LIMITS), ReadAgain)


def test_a_break_behind_what_the_chunk_has_seen_voids_and_one_within_it_does_not() -> None:
    def with_break(end: int) -> object:
        table = replace(TABLE, breaks=(Break(Offset(end), "TRUNCATE"),))
        return place(CHUNK, EPOCH, table, Index(visible=500), LIMITS)

    assert isinstance(with_break(501), Void)
    assert isinstance(with_break(900), Void)
    assert isinstance(with_break(500), Placed)
    assert isinstance(with_break(901), Placed), "of a later epoch"


def test_another_schema_version_voids() -> None:
    assert isinstance(place(CHUNK, EPOCH, replace(TABLE, schema_version=3), Index(), LIMITS), Void)


def test_marks_of_another_server_or_before_the_start_are_read_again() -> None:
    other = replace(CHUNK, server_uuid="another")
    assert isinstance(place(other, EPOCH, TABLE, Index(), LIMITS), ReadAgain)
    late = replace(TABLE, start_state=LogState(None, _core.GtidSet(f"{UUID}:1-51")))
    assert isinstance(place(CHUNK, EPOCH, late, Index(), LIMITS), ReadAgain)


def test_a_chunk_from_a_replica_waits_until_the_log_holds_all_of_its_high_set() -> None:
    marks = MySqlWindow(LOW, BinlogPosition("", 0), high_gtids=f"{UUID}:1-60:65").watermarks
    chunk = replace(CHUNK, watermarks=marks)

    def at(gtids: str | None, server_uuid: str = UUID) -> object:
        held = None if gtids is None else _core.GtidSet(gtids)
        epoch = replace(EPOCH, state=LogState(EPOCH.state.position, held), server_uuid=server_uuid)
        return place(chunk, epoch, TABLE, Index(), LIMITS)

    assert at(f"{UUID}:1-64") == Waiting(chunk), "greater than most of the set is not all of it"
    assert at(f"{UUID}:1-59:61-70") == Waiting(chunk)
    assert at(None) == Waiting(chunk)
    assert at(f"{UUID}:1-65") == Placed(chunk, "merge", (scan(500, 600, LOW), scan(600, 900)), Offset(500))
    # After a failover what it waits for may be lost; what it waited for is not.
    assert isinstance(at(f"{UUID}:1-64", "another"), ReadAgain)
    assert isinstance(at(f"{UUID}:1-65", "another"), Placed)


def test_marks_of_a_replica_survive_the_manifest() -> None:
    marks = MySqlWindow(LOW, BinlogPosition("", 0), high_gtids=f"{UUID}:1-60").watermarks
    chunk = replace(CHUNK, watermarks=marks, bytes_read=7)
    assert StagedChunk.from_json(chunk.to_json()) == chunk
    assert StagedChunk.from_json(CHUNK.to_json()) == CHUNK


def test_shared_scans_cover_each_of_theirs() -> None:
    one = Placed(CHUNK, "merge", (scan(500, 600, LOW), scan(600, 900)))
    other = Placed(CHUNK, "merge", (scan(400, 600, f"{UUID}:1-30:40-60"), scan(600, 900)))
    assert shared_scans([one, other], MySqlWindows().common) == (
        scan(400, 600, f"{UUID}:1-30:40-50"),
        scan(600, 900),
    )
    assert shared_scans([], MySqlWindows().common) == ()


@pytest.mark.parametrize("layout", ["latest", "changelog"])
def test_placed_rows_have_the_end_of_their_epoch_as_sequence(layout: str) -> None:
    schema = TableSchema(
        TableId("d", "t"), (Column("k", "int", False), Column("v", "text", charset="utf8mb4")), ("k",)
    )
    rows = pa.RecordBatch.from_pydict(
        {"k": [1, 2], "v": ["a", None]}, schema=_core.arrow_schema(schema.to_json(), "rows")
    )
    keys = _core.KeySet(schema.to_json())
    batches = [rows, rows.slice(0, 0)]
    [placed] = place_rows(batches, keys, Offset(900), schema, layout=layout)  # type: ignore[arg-type]
    assert placed.schema == _core.arrow_schema(schema.to_json(), layout)
    listed = {"_change_type": "read", "_commit_timestamp": None}
    added = {"_penstock_deleted": False} if layout == "latest" else listed
    expected = {"k": 1, "v": "a", **added, "_sequence": 900}
    assert placed.to_pylist()[0] == expected
