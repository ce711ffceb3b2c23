"""Epochs merged by files and deletion vectors, without Spark's MERGE. Spark's own reading judges."""

from __future__ import annotations

import json
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
from tests.sinks.conftest import SEEDS, Place, both, column, iceberg_first
from tests.sinks.lake.iceberg.test_small_commit import (
    KEYS,
    few,
    files,
    iceberg,
    replaced_by_keys,
    summary,
    target,
)

from penstock.sinks.base import Commit
from penstock.sinks.files import FIELD_ID, WrittenFile
from penstock.sinks.lake import lookup
from penstock.sinks.lake.delta.format import DeltaFormat
from penstock.sinks.lake.delta.local import LocalDelta
from penstock.sinks.lake.iceberg.format import IcebergFormat
from penstock.sinks.lake.iceberg.manifests import Content, KeySpan
from penstock.sinks.rows import Newer, Rows, ShardOf

Make = Callable[..., Place]


def newer(it: Place, *rows: tuple[Any, ...]) -> Rows:
    return replace(it.latest(*rows), kind=Newer())


def by_files(it: Place) -> bool:
    """Whether the last commit is one of ours; Spark says what its own are."""
    if isinstance(it.sink.format, DeltaFormat):
        last = it.spark.sql(f"DESCRIBE HISTORY {it.sink.name(it.table)} LIMIT 1").collect()[0]
        return bool(last["operation"] == "STREAMING UPDATE")
    found = summary(it)
    return "spark.app.id" not in found and "penstock.commit" in found


def files_of(it: Place) -> set[str]:
    """Data files that lie there, named by a commit or not."""
    form = it.sink.format
    folder = form.path(it.table) if isinstance(form, LocalDelta) else iceberg(it)._path(it.table) / "data"
    return {path.name for path in folder.rglob("*.parquet") if "_delta_log" not in path.parts}


def named_files(it: Place) -> set[str]:
    """Data files that commits name, also those that later ones removed."""
    if isinstance(it.sink.format, LocalDelta):
        log = sorted((it.sink.format.path(it.table) / "_delta_log").glob("*.json"))
        actions = [json.loads(line) for path in log for line in path.read_text().splitlines()]
        return {Path(action["add"]["path"]).name for action in actions if "add" in action}
    found = it.spark.sql(f"SELECT file_path FROM {iceberg(it).name(it.table)}.all_data_files").collect()
    return {Path(row[0]).name for row in found}


def seen(it: Place) -> Any:
    """What a merge starts from."""
    return it.sink.format.load(it.table) if isinstance(it.sink.format, DeltaFormat) else target(it)


def merge_from(it: Place, state: Any, rows: Rows, commit: Commit) -> bool:
    assert isinstance(it.sink.format, (DeltaFormat, IcebergFormat))
    return it.sink.format._merges.write(it.table, state, rows, it.key, commit)


@both
def test_rows_take_the_place_of_those_with_their_keys(place: Make, kind: str) -> None:
    it = place(kind).create()
    it.sink.append(it.table, it.latest(*[(n, "a", False, 1) for n in range(1000)]), it.commit(1))
    changed = [(n, "b", n % 5 == 0, 1000 + n) for n in range(500, 1500)]
    assert it.sink.merge(it.table, newer(it, *changed), it.key, it.commit(2))
    assert by_files(it)
    assert not it.sink.merge(it.table, newer(it, *changed), it.key, it.commit(2)), "it is recorded"
    expected = [(n, "a", 1) for n in range(500)] + [(n, "b", at) for n, _, gone, at in changed if not gone]
    assert it.rows() == expected
    if kind == "iceberg":
        assert summary(it)["total-equality-deletes"] == "0"
        assert int(summary(it)["added-dvs"]) >= 1


@iceberg_first
def test_no_file_of_keys_stays_behind(place: Make, kind: str) -> None:
    it = place(kind).create()
    it.sink.append(it.table, it.latest((1, "a", False, 1)), it.commit(1))
    it.sink.merge(it.table, newer(it, (1, "b", False, 2), (2, "c", False, 2)), it.key, it.commit(2))
    assert files_of(it) == named_files(it)


@pytest.mark.slow_for(*[f"{type_}-delta" for type_ in KEYS if type_ not in ("text", "datetime")])
@both
@pytest.mark.parametrize("type_", KEYS)
def test_keys_of_every_type_are_found(place: Make, kind: str, type_: str) -> None:
    arrow, values = KEYS[type_]
    it = place(kind, arrow=pa.schema([("id", arrow), ("name", pa.string())])).create()
    it.sink.append(it.table, it.latest(*[(value, "old", False, 1) for value in values]), it.commit(1))
    rows = [(value, "new", n == 0, 5) for n, value in enumerate(values)]
    it.sink.merge(it.table, newer(it, *rows), it.key, it.commit(2))
    assert by_files(it)
    assert [row[1:] for row in it.rows()] == [("new", 5)] * 3


@pytest.mark.slow_for("a zero date-delta", "floating point-delta")
@both
@pytest.mark.parametrize(
    ("arrow", "key"), [(pa.float64(), 1.5), (pa.date32(), None)], ids=["floating point", "a zero date"]
)
def test_keys_that_are_compared_otherwise_elsewhere_are_merged_by_spark(
    place: Make, kind: str, arrow: pa.DataType, key: Any
) -> None:
    it = place(kind, arrow=pa.schema([("id", arrow), ("name", pa.string())])).create()
    it.sink.append(it.table, it.latest((key, "a", False, 1)), it.commit(1))
    it.sink.merge(it.table, newer(it, (key, "b", False, 5)), it.key, it.commit(2))
    assert it.rows() == [(key, "b", 5)] and not by_files(it)
    left = files_of(it) - named_files(it)  # Spark leaves empty ones behind
    assert all(name.startswith("part-") for name in left), "what was begun is gone"


def test_a_target_that_a_user_partitions_is_still_merged_by_files(place: Make) -> None:
    it = place("iceberg").create()
    it.sink.merge(it.table, newer(it, (1, "a", False, 1), (2, "a", False, 1)), it.key, it.commit(1))
    it.spark.sql(f"ALTER TABLE {iceberg(it).name(it.table)} ADD PARTITION FIELD name")
    for text, at in (("b", 2), ("c", 3)):
        it.sink.merge(it.table, newer(it, (1, text, False, at)), it.key, it.commit(at))
        assert it.rows() == [(1, text, at), (2, "a", 1)] and by_files(it)


def test_a_target_with_floating_point_partitions_is_merged_by_spark(place: Make) -> None:
    it = place("iceberg", arrow=pa.schema([("id", pa.int64()), ("price", pa.float64())])).create()
    it.spark.sql(f"ALTER TABLE {iceberg(it).name(it.table)} ADD PARTITION FIELD price")
    it.sink.merge(it.table, newer(it, (1, 0.5, False, 1)), it.key, it.commit(1))
    it.sink.merge(it.table, newer(it, (1, float("inf"), False, 2)), it.key, it.commit(2))
    assert it.rows() == [(1, float("inf"), 2)] and not by_files(it)


@iceberg_first
def test_rows_that_may_be_older_are_merged_by_spark(place: Make, kind: str) -> None:
    it = place(kind).create()
    it.sink.append(it.table, it.latest((1, "a", False, 9)), it.commit(1))
    it.sink.merge(it.table, it.latest((1, "b", False, 5)), it.key, it.commit(2))
    assert it.rows() == [(1, "a", 9)]


@iceberg_first
def test_a_writer_that_was_replaced_meanwhile_adds_nothing(place: Make, kind: str) -> None:
    it = place(kind).create()
    it.sink.append(it.table, it.latest((1, "a", False, 1)), it.commit(1))
    stale = seen(it)
    it.sink.merge(it.table, newer(it, (1, "b", False, 2), (2, "b", False, 2)), it.key, it.commit(2))
    present = files(it) if kind == "iceberg" else set()  # Delta's own VACUUM removes what it does not name
    with pytest.raises(Py4JJavaError, match=r"(?i)conflict|concurrent"):
        merge_from(it, stale, newer(it, (1, "b", False, 2), (2, "b", False, 2)), it.commit(2))
    assert it.rows() == [(1, "b", 2), (2, "b", 2)]
    assert kind != "iceberg" or files(it) == present


@iceberg_first
def test_a_data_file_that_others_put_together_meanwhile_is_not_marked(place: Make, kind: str) -> None:
    """Compaction by somebody else removes a file between our look at the table and our commit."""
    it = place(kind).create()
    for epoch in (1, 2):
        it.sink.append(it.table, it.latest((epoch, "a", False, epoch)), it.commit(epoch))
    stale = seen(it)
    it.sink.compact(it.table)
    with pytest.raises(Py4JJavaError):
        merge_from(it, stale, newer(it, (1, "b", False, 5)), it.commit(3))
    assert it.rows() == [(1, "a", 1), (2, "a", 2)]
    it.sink.merge(it.table, newer(it, (1, "b", False, 5)), it.key, it.commit(3))
    assert it.rows() == [(1, "b", 5), (2, "a", 2)]


@iceberg_first
def test_a_key_that_was_widened_is_found_in_older_files(place: Make, kind: str) -> None:
    it = place(kind, arrow=pa.schema([("id", pa.int32()), ("name", pa.string())])).create()
    it.sink.append(it.table, it.latest((1, "a", False, 1), (2, "a", False, 1)), it.commit(1))
    it.evolve(2, column("id", pa.int64(), "id"), column("label", pa.string(), "name"))
    it.sink.merge(it.table, newer(it, (1, "b", False, 5), (2**40, "c", False, 6)), it.key, it.commit(3))
    assert by_files(it)
    assert it.rows() == [(1, "b", 5), (2, "a", 1), (2**40, "c", 6)]


@iceberg_first
def test_a_key_column_that_older_files_lack_is_merged_by_spark(place: Make, kind: str) -> None:
    it = place(kind).create()
    it.sink.append(it.table, it.latest((1, "a", False, 1), (2, "a", False, 1)), it.commit(1))
    it.evolve(2, *[column(n, k, n) for n, k in (("id", pa.int64()), ("name", pa.string()))],
              column("part", pa.int64(), default="7"))  # fmt: skip
    it.sink.merge(it.table, newer(it, (1, "b", 7, False, 5), (2, "c", 8, False, 6)), ("id", "part"),
                  it.commit(3))  # fmt: skip
    assert it.rows() == [(1, "b", 7, 5), (2, "a", 7, 1), (2, "c", 8, 6)]


@iceberg_first
def test_rows_of_another_shard_with_the_same_key_stay(place: Make, kind: str) -> None:
    it = place(kind, arrow=pa.schema([("id", pa.int64()), ("shard", pa.string())])).create()
    it.sink.append(it.table, it.latest(*[(n, one, False, 1) for n in (1, 2) for one in "ab"]), it.commit(1))
    rows = newer(it, (1, "a", True, 5), (2, "a", False, 5), (3, "a", False, 5))
    it.sink.merge(it.table, replace(rows, shard=ShardOf("shard", "a")), it.key, it.commit(2))
    assert by_files(it)
    assert it.rows() == [(1, "b", 1), (2, "a", 5), (2, "b", 1), (3, "a", 5)]


@pytest.mark.slow_for("1-delta", "10000-delta")
@both
@pytest.mark.parametrize("limit", [1, 10_000])
def test_many_keys_are_looked_for_in_several_goes(
    place: Make, monkeypatch: pytest.MonkeyPatch, kind: str, limit: int
) -> None:
    monkeypatch.setattr(lookup, "KEYS_MAX", limit)
    monkeypatch.setattr(lookup, "BATCH_ROWS", 100)
    it = place(kind).create()
    it.sink.append(it.table, it.latest(*[(n, "a", False, 1) for n in range(1000)]), it.commit(1))
    rows = newer(it, *[(n, "b", False, 5) for n in range(0, 2000, 2)])
    it.sink.merge(it.table, replace(rows, source=rows.frame.repartition(3)), it.key, it.commit(2))
    assert by_files(it)
    assert it.rows() == sorted(
        [(n, "a", 1) for n in range(1, 1000, 2)] + [(n, "b", 5) for n in range(0, 2000, 2)]
    )


@iceberg_first
def test_many_rows_are_looked_through_by_tasks(
    place: Make, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(lookup, "LOCAL_ROWS_MAX", 0)
    it = place(kind).create()
    for epoch in (1, 2, 3):
        it.sink.append(
            it.table, it.latest((epoch, "a", False, epoch), (9, "a", False, epoch)), it.commit(epoch)
        )
    it.sink.merge(it.table, newer(it, (1, "b", False, 5), (9, "b", True, 5)), it.key, it.commit(4))
    assert by_files(it)
    assert it.rows() == [(1, "b", 5), (2, "a", 2), (3, "a", 3)]
    it.evolve(5, *[column(n, k, n) for n, k in (("id", pa.int64()), ("name", pa.string()))],
              column("part", pa.int64(), default="7"))  # fmt: skip
    it.sink.merge(it.table, newer(it, (2, "c", 7, False, 8)), ("id", "part"), it.commit(6))
    assert not (kind == "iceberg" and by_files(it)), "older files lack a column of the key"
    assert it.rows() == [(1, "b", 7, 5), (2, "c", 7, 8), (3, "a", 7, 3)]


@pytest.mark.parametrize("seed", SEEDS)
def test_any_mixture_of_ways_gives_the_same_rows(place: Make, seed: int) -> None:
    choose = random.Random(seed)
    it = place("iceberg", arrow=pa.schema([("id", pa.int64()), ("part", pa.string()), ("v", pa.string())]),
               key=("id", "part")).create()  # fmt: skip
    model: dict[tuple[int, str], tuple[str, int]] = {}
    for epoch in range(1, 25 if seed else 13):
        keys = choose.sample([(n, p) for n in range(8) for p in "ab"], choose.randint(1, 8))
        rows = [(*key, f"{epoch}", choose.random() < 0.3, epoch * 10) for key in keys]
        way = choose.choice(["files", "files", "small", "spark", "by keys", "compact"])
        if way == "compact":
            iceberg(it)._maintenance.maintain(it.table)
            continue
        if way == "by keys":
            replaced_by_keys(it, *rows)
        else:
            made = it.latest(*rows) if way == "spark" else {"files": newer, "small": few}[way](it, *rows)
            it.sink.merge(it.table, made, it.key, it.commit(epoch))
        is_nothing = not model and all(deleted for *_, deleted, _ in rows)  # and needs no commit
        assert way != "files" or is_nothing or by_files(it)
        for number, part, text, deleted, at in rows:
            model.pop((number, part), None)
            if not deleted:
                model[number, part] = (text, at)
        assert it.rows() == sorted((*key, *value) for key, value in model.items()), (seed, epoch, way)


def key_file(
    folder: Path, name: str, kinds: dict[int, pa.DataType], *values: list[Any]
) -> tuple[WrittenFile, pa.Schema]:
    fields = pa.schema([
        pa.field(f"k{number}", kind, metadata={FIELD_ID: str(number)}) for number, kind in kinds.items()
    ])  # fmt: skip
    path = folder / name
    pq.write_table(pa.table([pa.array(v, f.type) for v, f in zip(values, fields, strict=True)], fields), path)
    return WrittenFile.of(str(path), path.stat().st_size, pq.read_metadata(path), fields), fields


def data_file(**bounds: tuple[bytes, bytes]) -> Content:
    numbers = [int(name[1:]) for name in bounds]
    sides = [[pair[side].hex() for pair in bounds.values()] for side in (0, 1)]
    names = ("lower-bounds", "upper-bounds")
    return Content(
        {name: {"keys": numbers, "values": side} for name, side in zip(names, sides, strict=True)}, 1
    )


def little(value: int, size: int = 8) -> bytes:
    return value.to_bytes(size, "little", signed=True)


def test_only_files_whose_bounds_meet_the_keys_are_looked_at(tmp_path: Path) -> None:
    kinds = {1: pa.int64(), 2: pa.string(), 3: pa.decimal128(5, 0), 4: pa.date32()}
    days = [date(1970, 1, 11), date(1970, 1, 21)]
    one, fields = key_file(tmp_path, "1", kinds, [-5, 10], ["b", "c"], [1, 2], days)
    two, _ = key_file(tmp_path, "2", kinds, [20, 30], ["c", "é"], [1, 2], days)
    span = KeySpan.of_files([one, two], fields)
    assert (span.least, span.greatest) == ({1: -5, 2: b"b", 4: 10}, {1: 30, 2: "é".encode(), 4: 20})
    assert span.may_be_in(Content({}, 1)), "nothing is known of it"
    assert span.may_be_in(data_file(_1=(little(30), little(99))))
    assert span.may_be_in(data_file(_1=(little(-9, 4), little(-5, 4)))), "written before it was widened"
    assert not span.may_be_in(data_file(_1=(little(31), little(99))))
    assert not span.may_be_in(data_file(_1=(little(-99), little(-6))))
    assert span.may_be_in(data_file(_1=(little(0), little(0)), _2=(b"a", b"b")))
    assert not span.may_be_in(data_file(_1=(little(0), little(0)), _2=(b"a", b"az")))
    assert not span.may_be_in(data_file(_4=(little(21, 4), little(22, 4))))
    assert span.may_be_in(data_file(_3=(b"\x09", b"\x09"))), "its order is not looked at"


@both
def test_a_date_of_the_year_0_is_a_date(place: Make, kind: str) -> None:
    """Python has none, MySQL has."""
    it = place(kind, arrow=pa.schema([("id", pa.date32()), ("day", pa.date32())])).create()
    first = -719528
    it.sink.append(it.table, few(it, (first, first, False, 1), (first + 1, 0, False, 1)), it.commit(1))
    rows = few(it, (first, first + 2, False, 5), (first + 3, first, False, 5))
    it.sink.merge(it.table, rows, it.key, it.commit(2))
    assert by_files(it)
    found = it.sink.read(it.table).selectExpr("CAST(id AS STRING)", "CAST(day AS STRING)").collect()
    days = ["0000-01-01", "0000-01-02", "0000-01-03", "0000-01-04"]
    assert sorted(map(tuple, found)) == [(days[0], days[2]), (days[1], "1970-01-01"), (days[3], days[0])]
