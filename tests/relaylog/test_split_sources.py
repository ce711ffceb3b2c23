"""What executors of other machines decode of a split is what the driver decodes of the segment's file."""

from __future__ import annotations

import pickle
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from tests.core.logs import events, schema_of
from tests.relaylog.conftest import TABLES, Received

from penstock._core import RangeDecoder
from penstock.model.offset import LogRange, Offset, Split
from penstock.model.plan import ApplyEvents, EpochPlan, PlaceChunks, Scan, TablePlan
from penstock.model.schema import TableId, TableSchema
from penstock.relaylog import segment_bytes
from penstock.relaylog.archive import MANIFEST, Archive, Archived, Manifest
from penstock.relaylog.segment import SegmentName, read_relay
from penstock.relaylog.segment_bytes import Carried, InStore, opened
from penstock.relaylog.split_sources import SplitSources
from penstock.store.base import Store
from penstock.store.opening import open_store
from penstock.testing.servers import MySqlServer


@pytest.fixture
def staging(tmp_path: Path) -> Store:
    return open_store((tmp_path / "staging").as_uri())


def plan_of(schema: TableSchema, splits: Sequence[Split], end: Offset) -> EpochPlan:
    steps = (ApplyEvents(tuple(splits), "merge", 1), PlaceChunks((), (Scan(tuple(splits), None),), "merge"))
    table = TablePlan(schema, steps, Offset(0), None)
    return EpochPlan(7, LogRange(Offset(0), end), (table,))


def splits_of(plan: EpochPlan) -> list[Split]:
    events, chunks = plan.tables[0].steps
    assert isinstance(events, ApplyEvents)
    assert isinstance(chunks, PlaceChunks)
    assert [one.source for one in chunks.scans[0].splits] == [one.source for one in events.splits]
    return list(events.splits)


def decode(schema: TableSchema, split: Split) -> pa.Table:
    part = opened(split)
    decoder = RangeDecoder(schema.to_json(), *part.place, preamble=part.preamble)
    return pa.Table.from_batches(list(decoder), decoder.schema)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[Split], Path], list[Split]]:
    """The splits as an executor gets them, on a machine without the folder of the log."""

    def send(splits: list[Split], folder: Path) -> list[Split]:
        data = pickle.dumps(splits)
        folder.rename(folder.with_name("away"))
        segment_bytes._open.clear()
        return list(pickle.loads(data))

    return send


def planned_splits(received: Received, table: TableId) -> list[Split]:
    """Of random ranges that were planned while the segments were open: some begin in transactions."""
    chance = random.Random(3)
    splits = [split for one in received.planned if one.table == table for split in one.splits]
    assert any(split.preamble for split in splits)
    return chance.sample(splits, min(25, len(splits)))


@pytest.mark.parametrize("carried_max", [0, 1 << 30], ids=["staged", "carried"])
def test_the_newest_log_travels_to_executors_without_the_disk_of_the_driver(
    received: Received,
    folder: Path,
    staging: Store,
    elsewhere: Callable[[list[Split], Path], list[Split]],
    carried_max: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.relaylog.split_sources.CARRIED_BYTES_MAX", carried_max)
    table = TABLES[1]
    schema, splits = received.schemas[table], planned_splits(received, table)
    expected = [decode(schema, split) for split in splits]
    sources = SplitSources(folder, None, staging)
    plan = sources.located(plan_of(schema, splits, received.log.end))
    assert [decode(schema, split) for split in splits_of(plan)] == expected
    assert list(staging.objects()) == []  # the driver reads its own disk

    sent = elsewhere(splits_of(plan), folder)
    assert {type(split.source) for split in sent} == {InStore if carried_max == 0 else Carried}
    assert [decode(schema, split) for split in sent] == expected
    assert sum(rows.num_rows for rows in expected) > 100
    assert bool(list(staging.objects())) == (carried_max == 0)
    sources.applied(plan)
    assert list(staging.objects()) == []


def test_executors_read_archived_segments_from_the_archive(
    received: Received, folder: Path, tmp_path: Path, staging: Store,
    elsewhere: Callable[[list[Split], Path], list[Split]],
) -> None:  # fmt: skip
    archive = Archive(open_store((tmp_path / "archive").as_uri()))
    archived = []
    for path in sorted(folder.glob("*.binlog"))[:-1]:
        name = SegmentName.parse(path.name)
        assert name is not None
        archive.store.put(archive.data_key(name), path.read_bytes())
        archived.append(Archived(name, path.stat().st_size, 0.0))
    manifest = Manifest(read_relay(folder), 1, {}, tuple(archived))
    archive.store.put(MANIFEST, manifest.encode("x"))
    table = TABLES[1]
    schema, splits = received.schemas[table], planned_splits(received, table)
    expected = [decode(schema, split) for split in splits]
    sources = SplitSources(folder, archive, staging)
    sent = elsewhere(splits_of(sources.located(plan_of(schema, splits, received.log.end))), folder)
    assert {split.source.store.location.url() for split in sent if isinstance(split.source, InStore)} == {
        archive.store.location.url()
    }
    assert [decode(schema, split) for split in sent] == expected


def test_a_plan_of_another_folder_is_read_from_the_folder_of_today(received: Received, folder: Path) -> None:
    table = TABLES[0]
    schema, splits = received.schemas[table], planned_splits(received, table)
    before = folder.with_name("of yesterday")
    moved = [
        Split(
            str(before / Path(split.path).name), split.base, split.start, split.end,
            tuple((str(before / Path(path).name), base, offset) for path, base, offset in split.preamble),
        )
        for split in splits
    ]  # fmt: skip
    plan = SplitSources(folder).located(plan_of(schema, moved, received.log.end))
    assert [decode(schema, one) for one in splits_of(plan)] == [decode(schema, one) for one in splits]


def test_what_a_killed_run_staged_is_swept(staging: Store, tmp_path: Path) -> None:
    staging.put("3/left.part", b"x")
    SplitSources(tmp_path, None, staging).sweep()
    assert list(staging.objects()) == []


@pytest.fixture(scope="module")
def one_phase() -> Iterator[tuple[Path, TableSchema]]:
    """A binlog file with a large XA transaction that is committed in one phase."""
    with MySqlServer({"binlog_row_event_max_size": 1024}) as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v TEXT)", "FLUSH LOGS")
        rows = ",".join(f"({number}, REPEAT('v', 100))" for number in range(500))
        server.execute("XA START 'x'", f"INSERT INTO d.t VALUES {rows}", "XA END 'x'",
                       "XA COMMIT 'x' ONE PHASE")  # fmt: skip
        yield server.binlog_files()[-1], schema_of(server, "d.t")


@pytest.mark.parametrize("carried_max", [0, 1 << 30], ids=["staged", "carried"])
def test_a_split_that_ends_in_an_xa_transaction_takes_its_end_along(
    one_phase: tuple[Path, TableSchema],
    tmp_path: Path,
    staging: Store,
    elsewhere: Callable[[list[Split], Path], list[Split]],
    carried_max: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The decoder looks ahead whether the transaction was committed."""
    monkeypatch.setattr("penstock.relaylog.split_sources.CARRIED_BYTES_MAX", carried_max)
    binlog, schema = one_phase
    folder = tmp_path / "relay"
    folder.mkdir()
    path = folder / SegmentName(Offset(0), 1).file
    shutil.copy(binlog, path)
    rows = [event for event in events(str(path)) if event.kind in (23, 30)]
    begin = next(event for event in events(str(path)) if event.kind == 33)
    split = Split(str(path), Offset(0), Offset(begin.offset), Offset(rows[5].end))
    expected = decode(schema, split)
    assert 0 < expected.num_rows < 500
    plan = SplitSources(folder, None, staging).located(plan_of(schema, [split], Offset(path.stat().st_size)))
    [sent] = elsewhere([splits_of(plan)[0]], folder)
    assert decode(schema, sent) == expected


def test_a_segment_that_vanishes_from_disk_and_archive_is_named(
    received: Received, folder: Path, staging: Store
) -> None:
    table = TABLES[0]
    splits = planned_splits(received, table)[:1]
    plan = SplitSources(folder, None, staging).located(
        plan_of(received.schemas[table], splits, received.log.end)
    )
    (folder / Path(splits[0].path).name).unlink()
    with pytest.raises(Exception, match=Path(splits[0].path).name):
        pickle.dumps(splits_of(plan))
