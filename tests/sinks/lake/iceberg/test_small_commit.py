"""Commits without a Spark job. Spark's own reading judges."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from tests.sinks.conftest import SEEDS, Place, column

from penstock.errors import TableError
from penstock.model.schema import TableId
from penstock.sinks.files import field_id
from penstock.sinks.lake import vectors
from penstock.sinks.lake.iceberg import maintenance, puffin
from penstock.sinks.lake.iceberg.files import description, file_writer, key_writer
from penstock.sinks.lake.iceberg.fold_deletes import fold
from penstock.sinks.lake.iceberg.format import IcebergFormat
from penstock.sinks.lake.iceberg.maintenance import MIB, file_sizes
from penstock.sinks.lake.iceberg.pack_files import Tier
from penstock.sinks.lake.iceberg.small_commit import SMALL
from penstock.sinks.lake.vectors import Vector
from penstock.sinks.rows import Newer, Rows
from penstock.store.files import Folder

Make = Callable[..., Place]


def few(it: Place, *rows: tuple[Any, ...]) -> Rows:
    """Newer rows that the driver makes itself. A Spark job that needs their DataFrame fails."""
    own = [pa.field("_penstock_deleted", pa.bool_()), pa.field("_sequence", pa.int64())]
    schema = pa.schema([*it.arrow, *own])
    arrays = [pa.array([row[place] for row in rows], field.type)
              for place, field in enumerate(schema)]  # fmt: skip
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)

    def never() -> Any:
        raise AssertionError("a Spark job for this")

    return Rows(never, Newer(driver_side=lambda: iter([batch])))


def iceberg(it: Place) -> IcebergFormat:
    assert isinstance(it.sink.format, IcebergFormat)
    return it.sink.format


def target(it: Place) -> Any:
    return iceberg(it).load(it.table)


def folded(it: Place, seen: Any = None) -> bool:
    return fold(it.spark, iceberg(it)._classes, seen or target(it))


def files(it: Place) -> set[Path]:
    """Data files, also those that no snapshot names."""
    return set((iceberg(it)._path(it.table) / "data").iterdir())


def summary(it: Place) -> dict[str, str]:
    found = target(it).currentSnapshot().summary()
    return {str(name): str(found[name]) for name in found}


def replaced_by_keys(it: Place, *rows: tuple[Any, ...]) -> None:
    """Replaces rows as earlier versions of Penstock did, and as Flink does: by a file with the new rows, and
    one with the keys of all, which are equality deletes. Rows: values, whether deleted, `_sequence`."""
    found, classes = target(it), iceberg(it)._classes
    writer = file_writer(classes, found)
    keys = key_writer(writer, it.key) if writer is not None else None
    assert writer is not None and keys is not None
    names = [*it.arrow.names, "_penstock_deleted", "_sequence"]
    kinds = [*[field.type for field in it.arrow], pa.bool_(), pa.int64()]
    arrays = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(kinds)]
    batch = pa.RecordBatch.from_arrays(arrays, names)
    change, spec = found.newRowDelta(), found.spec()
    for file in list(writer.files([batch])) or [writer.empty_file()]:
        change.addRows(classes.described(description(spec.specId(), file, writer.fields), spec))
    whole = next(one for one in found.specs().values() if one.isUnpartitioned())
    ids = [field_id(field) for field in keys.fields]
    for file in keys.files([batch.select(list(it.key))]):
        form = description(whole.specId(), file, keys.fields)
        form |= {"content": "EQUALITY_DELETES", "equality-ids": ids}
        change.addDeletes(classes.described(form, whole))
    change.commit()


def test_small_rows_replace_those_of_their_keys_without_a_spark_job(place: Make) -> None:
    it = place("iceberg").create()
    assert it.sink.append(it.table, few(it, (1, "a", False, 1), (2, "b", False, 2)), it.commit(1))
    changed = few(it, (1, "A", False, 5), (2, None, True, 6), (3, "c", False, 7), (9, None, True, 8))
    assert it.sink.merge(it.table, changed, it.key, it.commit(2))
    assert not it.sink.merge(it.table, changed, it.key, it.commit(2)), "it is recorded"
    assert it.rows() == [(1, "A", 5), (3, "c", 7)]
    found = summary(it)
    assert found[SMALL] == "true" and found["added-dvs"] == "1" and found["total-equality-deletes"] == "0"


def test_rows_and_deletes_of_one_commit_do_not_meet(place: Make) -> None:
    it = place("iceberg").create()
    for epoch in range(1, 6):
        it.sink.merge(it.table, few(it, (1, f"v{epoch}", False, epoch)), it.key, it.commit(epoch))
        assert it.rows() == [(1, f"v{epoch}", epoch)]


def test_a_file_that_cannot_be_written_is_in_no_commit(place: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files become durable while the commit is prepared, so the error comes late."""
    it = place("iceberg").create()
    it.sink.append(it.table, few(it, (1, "a", False, 1), (2, "b", False, 2)), it.commit(1))
    before, changed = files(it), few(it, (1, "A", False, 3), (3, "c", False, 4))

    def full(descriptor: int) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            it.sink.merge(it.table, changed, it.key, it.commit(2))
        with pytest.raises(OSError, match="No space left"):
            it.sink.append(it.table, changed, it.commit(2))
    assert files(it) == before and it.rows() == [(1, "a", 1), (2, "b", 2)]
    assert it.sink.merge(it.table, changed, it.key, it.commit(2))
    assert it.rows() == [(1, "A", 3), (2, "b", 2), (3, "c", 4)]


def test_a_column_of_the_users_own_is_null_in_new_rows(place: Make) -> None:
    it = place("iceberg").create()
    it.sink.append(it.table, few(it, (1, "a", False, 1), (2, "b", False, 2)), it.commit(1))
    it.spark.sql(f"ALTER TABLE {iceberg(it).name(it.table)} ADD COLUMN remark STRING")
    it.sink.merge(it.table, few(it, (1, "A", False, 3)), it.key, it.commit(2))
    it.sink.append(it.table, it.latest((3, "c", False, 4)), it.commit(3))
    assert it.rows() == [(1, "A", 3, None), (2, "b", 2, None), (3, "c", 4, None)]


@pytest.mark.parametrize("change", ["DROP COLUMN name", "RENAME COLUMN name TO other"])
def test_a_column_that_somebody_takes_away_stops_the_table(place: Make, change: str) -> None:
    """Otherwise its values would be left out, and nobody would know."""
    it = place("iceberg").create()
    it.sink.append(it.table, few(it, (1, "a", False, 1)), it.commit(1))
    it.spark.sql(f"ALTER TABLE {iceberg(it).name(it.table)} {change}")
    with pytest.raises(TableError, match="lacks the column name") as refused:
        it.sink.merge(it.table, few(it, (1, "A", False, 3)), it.key, it.commit(2))
    assert "--recreate" in refused.value.hint


def test_turned_off_every_commit_has_a_spark_job(place: Make) -> None:
    it = place("iceberg", config={"key_index": False}).create()
    rows = replace(it.latest((1, "a", False, 1)), kind=few(it, (1, "no", False, 1)).kind)
    it.sink.merge(it.table, rows, it.key, it.commit(1))
    assert it.rows() == [(1, "a", 1)] and SMALL not in summary(it)


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_a_floating_point_key_is_merged_by_spark(place: Make, kind: pa.DataType) -> None:
    it = place("iceberg", arrow=pa.schema([("id", kind), ("name", pa.string())])).create()
    rows = replace(it.latest((1.5, "a", False, 1)), kind=few(it, (1.5, "no", False, 1)).kind)
    it.sink.merge(it.table, rows, it.key, it.commit(1))
    assert it.rows() == [(1.5, "a", 1)]


def test_a_null_in_the_key_is_merged_by_spark(place: Make) -> None:
    """A zero date has no value in Arrow."""
    it = place("iceberg", arrow=pa.schema([("id", pa.date32()), ("name", pa.string())])).create()
    rows = replace(it.latest((None, "a", False, 1)), kind=few(it, (None, "no", False, 1)).kind)
    it.sink.merge(it.table, rows, it.key, it.commit(1))
    assert it.rows() == [(None, "a", 1)]


def test_a_target_that_a_user_partitions_keeps_its_small_commits(place: Make) -> None:
    it = place("iceberg").create()
    it.sink.merge(it.table, few(it, (1, "a", False, 1), (2, "a", False, 1)), it.key, it.commit(1))
    it.spark.sql(f"ALTER TABLE {iceberg(it).name(it.table)} ADD PARTITION FIELD name")
    it.sink.merge(it.table, few(it, (1, "b", False, 2)), it.key, it.commit(2))
    assert it.rows() == [(1, "b", 2), (2, "a", 1)] and summary(it)[SMALL] == "true"
    it.sink.merge(it.table, few(it, (1, "c", False, 3), (2, None, True, 3)), it.key, it.commit(3))
    assert it.rows() == [(1, "c", 3)] and summary(it)["total-equality-deletes"] == "0"


def test_a_writer_that_was_replaced_meanwhile_adds_nothing(place: Make) -> None:
    """It has loaded the table and found its commit missing; then another adds it."""
    it = place("iceberg").create()
    it.sink.merge(it.table, few(it, (1, "a", False, 1)), it.key, it.commit(1))
    sink, stale = iceberg(it), target(it)
    it.sink.merge(it.table, few(it, (2, "b", False, 2)), it.key, it.commit(2))
    present = files(it)
    with pytest.raises(Py4JJavaError, match="conflict"):
        sink._small.write(it.table, stale, few(it, (2, "b", False, 2)), it.key, it.commit(2))
    assert it.rows() == [(1, "a", 1), (2, "b", 2)] and files(it) == present


KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int32(), [-5, 0, 7, 2**31 - 1]),
    "tiny": (pa.int8(), [-128, 0, 7, 127]),
    "decimal": (pa.decimal128(20, 0), [Decimal(0), Decimal(2**64 - 1), Decimal(5), Decimal(6)]),
    "text": (pa.string(), ["", "a", "A", "ä\n"]),
    "bytes": (pa.binary(), [b"", b"\0", b"a\0", b"\xff"]),
    "date": (pa.date32(), [date(1, 1, 1), date(1970, 1, 1), date(2026, 2, 3), date(9999, 12, 31)]),
    "datetime": (pa.timestamp("us"), [datetime(1000, 1, 1, 0, 0, 0, 1), datetime(2026, 1, 1),
                                      datetime(2026, 1, 1, 0, 0, 0, 1), datetime(1969, 1, 1)]),
    "timestamp": (pa.timestamp("us", "UTC"), [datetime(y, 1, 1, tzinfo=timezone.utc)
                                              for y in (1970, 1999, 2026, 2037)]),
}  # fmt: skip


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_type_are_found(place: Make, kind: str) -> None:
    arrow, values = KEYS[kind]
    it = place("iceberg", arrow=pa.schema([("id", arrow), ("name", pa.string())])).create()
    first = [(value, "old", False, 1) for value in values]
    it.sink.append(it.table, it.latest(*first), it.commit(1))
    it.sink.merge(it.table, few(it, *[(v, "new", n == 0, 5) for n, v in enumerate(values)]), it.key,
                  it.commit(2))  # fmt: skip
    expected = sorted((value, "new", 5) for value in values[1:])
    assert [row[1:] for row in it.rows()] == [("new", 5)] * 3
    assert summary(it)[SMALL] == "true"
    if kind not in ("bytes", "timestamp"):  # Spark gives bytearrays, and times without their zone
        assert it.rows() == expected


def test_a_key_that_was_widened_is_found_in_older_files(place: Make) -> None:
    it = place("iceberg", arrow=pa.schema([("id", pa.int32()), ("name", pa.string())])).create()
    it.sink.append(it.table, it.latest(*[(n, "a", False, 1) for n in (1, 2, 3)]), it.commit(1))
    it.sink.merge(it.table, few(it, (3, "d", False, 2)), it.key, it.commit(2))
    it.evolve(3, column("id", pa.int64(), "id"), column("label", pa.string(), "name"))
    it.sink.merge(it.table, few(it, (1, "b", False, 5), (2**40, "c", False, 6)), it.key, it.commit(4))
    assert it.rows() == [(1, "b", 5), (2, "a", 1), (3, "d", 2), (2**40, "c", 6)]


def test_a_key_column_that_older_files_lack_has_its_default_there(place: Make) -> None:
    it = place("iceberg").create()
    it.sink.append(it.table, it.latest((1, "a", False, 1), (2, "a", False, 1)), it.commit(1))
    it.evolve(2, *[column(n, k, n) for n, k in (("id", pa.int64()), ("name", pa.string()))],
              column("part", pa.int64(), default="7"))  # fmt: skip
    key = ("id", "part")
    it.sink.merge(it.table, few(it, (1, "b", 7, False, 5), (2, "c", 8, False, 6)), key, it.commit(3))
    assert it.rows() == [(1, "b", 7, 5), (2, "a", 7, 1), (2, "c", 8, 6)]
    assert summary(it)[SMALL] == "true"


def test_compacting_changes_no_row_and_leaves_few_files(place: Make) -> None:
    it = place("iceberg").create()
    for epoch in range(1, 21):
        it.sink.merge(it.table, few(it, (epoch, "a", False, epoch), (epoch - 1, "b", False, epoch)), it.key,
                      it.commit(epoch))  # fmt: skip
    rows = it.rows()
    done = it.sink.compact(it.table)
    assert (done.before, done.after) == (20, 1)
    assert it.rows() == rows == sorted([*[(n, "b", n + 1) for n in range(20)], (20, "a", 20)])
    again = it.commit(20)
    assert not it.sink.merge(it.table, few(it, (1, "z", False, 99)), it.key, again), "still recorded"


def test_many_small_commits_are_tidied_in_the_background(place: Make) -> None:
    it = place("iceberg", config={"fold_commits": 4, "snapshots_max": 3, "snapshots_keep": 2}).create()
    for epoch in range(1, 10):
        it.sink.merge(it.table, few(it, (epoch % 3, str(epoch), False, epoch)), it.key, it.commit(epoch))
    it.sink.close()  # what is going on is waited for
    assert it.rows() == [(0, "9", 9), (1, "7", 7), (2, "8", 8)]
    left = [one for one in target(it).history() if one is not None]
    assert len(left) < 9 + 1, "old snapshots went"


def test_small_files_are_put_together_in_the_background(place: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a thread that has no active session of Spark's, unlike that of a test."""
    monkeypatch.setattr(maintenance, "TIERS", (Tier(MIB, 4 * MIB, 4),))
    it = place("iceberg", config={"fold_commits": 8}).create()
    for epoch in range(1, 9):
        it.sink.merge(it.table, few(it, (epoch, "a", False, epoch)), it.key, it.commit(epoch))
    deadline = time.monotonic() + 60
    while len(file_sizes(target(it))) > 1 and time.monotonic() < deadline:
        time.sleep(0.05)  # polls a condition, with a limit
    assert len(file_sizes(target(it))) == 1
    assert it.rows() == [(epoch, "a", epoch) for epoch in range(1, 9)]


def test_a_version_that_is_held_outlives_the_others(place: Make) -> None:
    it = place("iceberg", config={"snapshots_max": 1, "snapshots_keep": 1}).create()
    it.sink.merge(it.table, few(it, (1, "a", False, 1)), it.key, it.commit(1))
    held = it.sink.hold(it.table)
    assert held == it.sink.version(it.table) == it.sink.hold(it.table)
    for epoch in range(2, 6):
        it.sink.merge(it.table, few(it, (1, str(epoch), False, epoch)), it.key, it.commit(epoch))
    unheld = it.sink.version(it.table)
    for epoch in (8, 9):
        it.sink.merge(it.table, few(it, (1, "z", False, epoch)), it.key, it.commit(epoch))
    iceberg(it)._maintenance.maintain(it.table)
    assert it.rows(held) == [(1, "a", 1)]
    with pytest.raises(Exception, match="snapshot"):
        it.rows(unheld)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_mixture_of_ways_gives_the_same_rows(place: Make, seed: int) -> None:
    choose = random.Random(seed)
    it = place("iceberg").create()
    model: dict[int, tuple[str, int]] = {}
    for epoch in range(1, 25):
        sequence = epoch * 10
        ids = choose.sample(range(12), choose.randint(1, 6))
        rows = [(n, f"{epoch}", choose.random() < 0.3, sequence) for n in ids]
        way = choose.choice(["small", "small", "small", "spark", "by keys", "compact", "truncate"])
        if way == "compact":
            iceberg(it)._maintenance.maintain(it.table)
            continue
        if way == "truncate":
            if choose.random() < 0.3:
                it.sink.truncate(it.table, it.commit(epoch), sequence=sequence)
                model = {}
            continue
        if way == "by keys":
            replaced_by_keys(it, *rows)
        else:
            it.sink.merge(it.table, (few(it, *rows) if way == "small" else it.latest(*rows)), it.key,
                          it.commit(epoch))  # fmt: skip
        for number, text, deleted, at in rows:
            model.pop(number, None)
            if not deleted:
                model[number] = (text, at)
        assert it.rows() == sorted((n, *value) for n, value in model.items()), (seed, epoch, way)


def test_a_vector_file_reads_back_what_was_written(tmp_path: Path) -> None:
    from pyroaring import BitMap64

    maps = [BitMap64([0, 5, 2**33, 2**40]), BitMap64(range(100_000))]
    folder = Folder.local(tmp_path)
    placed, size = puffin.write(folder, [(f"f{n}", m.serialize(), len(m)) for n, m in enumerate(maps)])
    assert size == Path(placed[0].location).stat().st_size
    assert [vectors.read(one, folder.files) for one in placed] == maps
    damaged = Vector(placed[0].location, placed[0].offset + 1, placed[0].size)
    with pytest.raises(Exception, match=r"-deletes\.puffin has no intact deletion vector at byte 5"):
        vectors.read(damaged, folder.files)


@pytest.mark.parametrize("name", ["%2F..%2F..%2Fx", "x?y", "x#y", "%41"])
def test_a_table_has_its_files_in_its_own_folder_whatever_it_is_called(place: Make, name: str) -> None:
    """Read as a URL, these would be names of other folders, also outside of the warehouse."""
    it = place("iceberg", table=TableId("shop", name)).create()
    before = set(it.config.path.parent.rglob("*.parquet")) if it.config.path else set()
    assert it.sink.append(it.table, few(it, (1, "a", False, 1)), it.commit(1))
    assert it.sink.merge(it.table, few(it, (1, "b", False, 2)), it.key, it.commit(2))
    assert it.rows() == [(1, "b", 2)]
    assert it.config.path is not None
    new = set(it.config.path.parent.rglob("*.parquet")) - before
    assert new and new <= files(it)
