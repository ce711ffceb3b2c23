"""Small files of Iceberg tables put together without Spark. Spark's own reading judges."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from tests.sinks.conftest import SEEDS, Place, column
from tests.sinks.lake.iceberg.test_shaping import shaped
from tests.sinks.lake.iceberg.test_small_commit import (
    few,
    files,
    folded,
    iceberg,
    replaced_by_keys,
    summary,
    target,
)
from tests.sinks.lake.test_file_merge import newer

from penstock.sinks.lake.iceberg import maintenance
from penstock.sinks.lake.iceberg import pack_files as packing
from penstock.sinks.lake.iceberg.files import description, file_writer
from penstock.sinks.lake.iceberg.maintenance import MIB, file_sizes, rewrite
from penstock.sinks.lake.iceberg.pack_files import Tier, pack

Make = Callable[..., Place]

REGIONS = pa.schema([("id", pa.int64()), ("region", pa.string()), ("name", pa.string())])
TIER = Tier(MIB, 4 * MIB, 2)


def packed(it: Place, seen: Any = None) -> bool:
    form = iceberg(it)
    seen = target(it) if seen is None else seen
    return pack(it.spark, form._classes, seen, TIER, form._maintenance.stream(it.table))


def whole(it: Place) -> list[tuple[Any, ...]]:
    """All rows with what Iceberg knows them by."""
    name = iceberg(it).name(it.table)
    it.spark.catalog.refreshTable(name)
    found = it.spark.sql(f"SELECT *, _row_id, _last_updated_sequence_number FROM {name}").collect()
    return sorted(map(tuple, found), key=str)


def live(it: Place) -> set[str]:
    """The data files of the newest snapshot."""
    found = it.spark.sql(f"SELECT file_path FROM {iceberg(it).name(it.table)}.data_files")
    return {row[0] for row in found.collect()}


Write = Callable[..., None]


def small(it: Place, epoch: int, *rows: tuple[Any, ...]) -> None:
    it.sink.merge(it.table, few(it, *rows), it.key, it.commit(epoch))


def by_keys(it: Place, epoch: int, *rows: tuple[Any, ...]) -> None:
    replaced_by_keys(it, *rows)


def commits(it: Place, numbers: range, text: str = "a", write: Write = small) -> None:
    """Each of three rows, two of which the one before had."""
    for n in numbers:
        write(it, n, *[(key, text, False, n) for key in range(n, n + 3)])


def test_rows_and_their_identity_stay_while_files_become_one(place: Make) -> None:
    it = place("iceberg").create()
    it.sink.append(it.table, it.latest(*[(n, "s", False, 1) for n in range(100, 110)]), it.commit(1))
    commits(it, range(2, 5))
    commits(it, range(5, 8), write=by_keys)
    before = whole(it)
    assert len({row[-2] for row in before}) == len(before), "each has an id of its own"
    assert packed(it), "with equality deletes"
    assert len(file_sizes(target(it))) == 1
    assert whole(it) == before
    assert folded(it)
    commits(it, range(8, 12), "b")
    before = whole(it)
    assert packed(it), "a file that says itself what its rows are known by, and some that do not"
    assert len(file_sizes(target(it))) == 1
    assert whole(it) == before
    assert summary(it)["total-position-deletes"] == "0", "vectors of files that went are gone"


def test_lists_stay_while_files_become_one(place: Make) -> None:
    it = place("iceberg", arrow=pa.schema([("id", pa.int64()), ("n", pa.list_(pa.int32()))])).create()
    it.sink.append(it.table, it.latest((100, [1, None], False, 1), (101, None, False, 1)), it.commit(1))
    for n in range(2, 6):
        small(it, n, (n, [n, None], False, n), (n + 1, [], False, n), (n + 2, None, False, n))
    before = whole(it)
    assert packed(it) and len(file_sizes(target(it))) == 1
    assert whole(it) == before and (2, [2, None]) in [row[:2] for row in before]


def test_files_from_before_columns_changed_are_read_as_the_table_is_now(place: Make) -> None:
    it = place("iceberg", arrow=pa.schema([("id", pa.int32()), ("name", pa.string())])).create()
    commits(it, range(1, 5))
    it.sink.append(it.table, it.latest((50, "spark's", False, 5)), it.commit(5))
    changed = [("id", pa.int64(), "id", None), ("label", pa.string(), "name", None),
               ("count", pa.int64(), None, "7"), ("price", pa.decimal128(9, 2), None, "1.50"),
               ("note", pa.string(), None, "'new'"), ("nothing", pa.int32(), None, None)]  # fmt: skip
    it.evolve(6, *[column(name, kind, old, default=default) for name, kind, old, default in changed])
    it.sink.merge(it.table, few(it, (2**40, "b", 8, 2, "n", None, False, 7)), it.key, it.commit(7))
    before = whole(it)
    assert packed(it)
    assert len(file_sizes(target(it))) == 1
    assert whole(it) == before


def test_what_cannot_be_taken_over_as_it_is_goes_through_spark(
    place: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = place("iceberg").create()
    commits(it, range(1, 5))
    it.evolve(5, *[column(n, k, n) for n, k in (("id", pa.int64()), ("name", pa.string()))],
              column("day", pa.date32(), default="DATE '2020-02-02'"))  # fmt: skip
    before = it.rows()
    assert before[0][2] == date(2020, 2, 2)
    assert not packed(it), "a default that is not told as the value itself"
    monkeypatch.setattr(maintenance, "TIERS", (TIER,))
    iceberg(it)._maintenance.maintain(it.table)
    assert len(file_sizes(target(it))) == 1
    assert it.rows() == before


def test_files_from_before_partitions_were_removed_go_through_spark(
    place: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = place("iceberg").create()
    name = iceberg(it).name(it.table)
    it.spark.sql(f"ALTER TABLE {name} ADD PARTITION FIELD bucket(2, id)")
    for n in (1, 2):
        rows = [(key, "a", False, n) for key in range(n, n + 3)]
        it.sink.merge(it.table, newer(it, *rows), it.key, it.commit(n))
    it.spark.sql(f"ALTER TABLE {name} DROP PARTITION FIELD bucket(2, id)")
    commits(it, range(3, 6))
    before = it.rows()
    assert not packed(it)
    monkeypatch.setattr(maintenance, "TIERS", (TIER,))
    iceberg(it)._maintenance.maintain(it.table)
    assert len(file_sizes(target(it))) == 1
    assert it.rows() == before and summary(it)["total-equality-deletes"] == "0"


@pytest.mark.parametrize("partitioned", [False, True])
def test_files_that_were_made_without_iceberg_go_through_spark(
    place: Make, tmp_path: Path, partitioned: bool
) -> None:
    """They have no field ids, and may lack the columns of their partition."""
    it = shaped(place, arrow=REGIONS, partition_by="region" if partitioned else ()).create()
    small(it, 1, (1, "north", "a", False, 1), (2, "north", "a", False, 1))
    folder = tmp_path / "others" / ("region=north" if partitioned else "")
    folder.mkdir(parents=True)
    columns = {"id": [3, 4], "region": ["north"] * 2, "name": ["b"] * 2, "_sequence": [1] * 2}
    rows = pa.table(columns).drop_columns(["region"] if partitioned else [])
    for number in range(2):
        pq.write_table(rows.slice(number, 1), folder / f"{number}.parquet")
    catalog, *rest = it.sink.name(it.table).replace("`", "").split(".")
    it.spark.sql(f"CALL {catalog}.system.add_files('{'.'.join(rest)}', '`parquet`.`{tmp_path / 'others'}`')")
    expected = [(n, "north", "a" if n < 3 else "b", 1) for n in range(1, 5)]
    assert it.rows() == expected
    assert not packed(it)
    it.sink.compact(it.table)
    assert it.rows() == expected
    it.sink.merge(it.table, newer(it, (3, "south", "c", False, 5)), it.key, it.commit(2))
    expected[2] = (3, "south", "c", 5)
    assert it.rows() == expected


def test_a_file_that_lacks_the_column_of_its_partition_goes_through_spark(place: Make) -> None:
    it = shaped(place, arrow=REGIONS, partition_by="region").create()
    found, classes = target(it), iceberg(it)._classes
    writer = file_writer(classes, found)
    assert writer is not None
    lacking = replace(
        writer, layout=None, fields=pa.schema([one for one in writer.fields if one.name != "region"])
    )
    batch = pa.RecordBatch.from_pydict({"id": [1], "name": ["a"], "_sequence": pa.array([1], pa.int64())})
    change = found.newAppend()
    for file in [*lacking.files([batch]), *lacking.files([batch])]:
        form = description(found.spec().specId(), replace(file, partition=("north",)), lacking.fields)
        change.appendFile(classes.described(form, found.spec()))
    change.commit()
    assert it.rows() == [(1, "north", "a", 1)] * 2
    assert not packed(it)
    it.sink.compact(it.table)
    assert it.rows() == [(1, "north", "a", 1)] * 2


def test_small_commits_meanwhile_stand(place: Make) -> None:
    it = place("iceberg").create()
    commits(it, range(1, 5))
    before = target(it)
    commits(it, range(5, 8), "b")
    expected = whole(it)
    assert packed(it, before), "it knows nothing of the last three"
    assert len(file_sizes(target(it))) == 4
    assert whole(it) == expected
    assert packed(it)
    assert whole(it) == expected


Rewrite = Callable[[Place, Any], object]

rewritten = pytest.mark.parametrize(
    ("rewrites", "write"),
    [
        (packed, small),
        (packed, by_keys),
        (lambda it, seen: rewrite(it.spark, seen, {"rewrite-all": "true"}), by_keys),
    ],
    ids=["ours", "ours, equality deletes", "Iceberg's action"],
)


@rewritten
def test_rows_deleted_meanwhile_stay_deleted_when_newer_ones_have_come(
    place: Make, rewrites: Rewrite, write: Write
) -> None:
    it = place("iceberg").create()
    commits(it, range(1, 5))
    before = target(it)
    write(it, 5, (3, "", True, 5))
    write(it, 6, (90, "new", False, 6))
    expected = it.rows()
    rewrites(it, before)
    assert it.rows() == expected and len(expected) == 6
    folded(it)
    assert packed(it)
    assert it.rows() == expected


@rewritten
def test_rows_deleted_meanwhile_stay_deleted_when_others_are_deleted(
    place: Make, rewrites: Rewrite, write: Write
) -> None:
    it = place("iceberg").create()
    commits(it, range(1, 5))
    before = target(it)
    for n in (5, 6, 7):
        write(it, n, (n - 3, "", True, n))
    expected = it.rows()
    rewrites(it, before)
    assert it.rows() == expected and len(expected) == 3
    folded(it)
    packed(it)
    assert it.rows() == expected and len(file_sizes(target(it))) == 1


def test_rows_that_others_delete_meanwhile_stay_deleted(place: Make) -> None:
    it = place("iceberg").create()
    commits(it, range(1, 6))
    before = target(it)
    it.spark.sql(f"DELETE FROM {iceberg(it).name(it.table)} WHERE id IN (2, 4)")
    small(it, 6, (5, "c", False, 6))
    expected = whole(it)
    assert packed(it, before)
    assert whole(it) == expected and len(file_sizes(target(it))) == 2
    small(it, 7, (1, "d", False, 7), (7, "d", False, 7))
    assert [row[:2] for row in it.rows()] == [(1, "d"), (3, "a"), (5, "c"), (6, "a"), (7, "d")]


def test_rows_that_larger_epochs_replace_meanwhile_stay_replaced(place: Make) -> None:
    """As when another process compacts."""
    it = place("iceberg", config={"key_index": False}).create()
    for n in range(1, 5):
        it.sink.merge(it.table, newer(it, *[(key, "a", False, n) for key in range(n, n + 3)]), it.key,
                      it.commit(n))  # fmt: skip
    before = target(it)
    it.sink.merge(it.table, newer(it, (3, "b", False, 5)), it.key, it.commit(5))
    expected = whole(it)
    assert packed(it, before)
    assert whole(it) == expected
    assert packed(it)
    assert whole(it) == expected and len(file_sizes(target(it))) == 1


def test_files_that_others_put_together_meanwhile_are_left(place: Make) -> None:
    it = place("iceberg").create()
    commits(it, range(1, 5))
    before = target(it)
    rewrite(it.spark, target(it), {"rewrite-all": "true"})
    expected, present = whole(it), files(it)
    with pytest.raises(Py4JJavaError, match="Missing required files to delete"):
        packed(it, before)
    assert whole(it) == expected and files(it) == present


def test_files_of_which_no_row_is_left_go(place: Make) -> None:
    it = place("iceberg").create()
    for n in range(1, 5):
        it.sink.merge(it.table, few(it, (1, "a", False, n)), it.key, it.commit(n))
    it.sink.merge(it.table, few(it, (1, "a", True, 9)), it.key, it.commit(9))
    assert packed(it)
    assert file_sizes(target(it)) == [] and it.rows() == []


@pytest.mark.parametrize(("replaced", "anew"), [(1, False), (2, True), (10, True)])
def test_a_file_of_which_many_rows_are_deleted_is_written_anew(
    place: Make, replaced: int, anew: bool
) -> None:
    it = place("iceberg").create()
    it.sink.append(it.table, few(it, *[(n, "a", False, 1) for n in range(10)]), it.commit(1))
    old = live(it)
    small(it, 2, *[(n, "b", False, 2) for n in range(replaced)])
    before = whole(it)
    iceberg(it)._maintenance.maintain(it.table)
    assert whole(it) == before
    assert old.isdisjoint(live(it)) == anew
    assert summary(it)["total-position-deletes"] == ("0" if anew else str(replaced))


def test_so_much_at_a_time(place: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    it = place("iceberg").create()
    commits(it, range(1, 9))
    before, size = whole(it), file_sizes(target(it))[0]
    monkeypatch.setattr(packing, "INPUT_BYTES_MAX", 4 * size + size // 2)
    assert packed(it)
    assert len(file_sizes(target(it))) == 5
    assert whole(it) == before


@pytest.mark.parametrize("seed", SEEDS)
def test_any_mixture_of_ways_gives_the_same_rows(place: Make, seed: int) -> None:
    choose = random.Random(seed)
    it = place("iceberg").create()
    model: dict[int, tuple[str, int]] = {}
    stale = target(it)
    for epoch in range(1, 25):
        ways = ["small", "small", "small", "by keys", "pack", "pack an older state", "remember"]
        way = choose.choice(ways)
        if way == "pack":
            packed(it)
        elif way == "pack an older state":
            try:
                packed(it, stale)
            except Py4JJavaError as error:
                assert "ValidationException" in str(error)
            stale = target(it)
        elif way == "remember":
            stale = target(it)
        else:
            rows = [(n, f"{epoch}", choose.random() < 0.3, epoch) for n in choose.sample(range(12), 4)]
            (by_keys if way == "by keys" else small)(it, epoch, *rows)
            for number, text, deleted, at in rows:
                model.pop(number, None)
                if not deleted:
                    model[number] = (text, at)
        assert it.rows() == sorted((n, *value) for n, value in model.items()), (seed, epoch, way)
