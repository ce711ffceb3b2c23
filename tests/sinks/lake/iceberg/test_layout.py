"""Partitioned and sorted targets without Spark's own writer. Spark's own reading judges."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.sinks.conftest import SEEDS, Place, column
from tests.sinks.lake.iceberg.test_pack_files import TIER, packed, whole
from tests.sinks.lake.iceberg.test_shaping import shaped
from tests.sinks.lake.iceberg.test_small_commit import few, folded, iceberg, summary, target
from tests.sinks.lake.test_file_merge import by_files, newer

from penstock.sinks import files as writing
from penstock.sinks.files import FileWriter, Partition, WrittenFile
from penstock.sinks.lake.iceberg import maintenance
from penstock.sinks.lake.iceberg.layout import Layout
from penstock.sinks.lake.iceberg.maintenance import file_sizes
from penstock.sinks.lake.iceberg.small_commit import SMALL
from penstock.sinks.lake.terms import Order, Term
from penstock.store.files import Folder, local_path

Make = Callable[..., Place]

PLAIN = pa.schema([("id", pa.int64()), ("region", pa.string())])
KINDS = pa.schema(
    [
        ("id", pa.int64()),
        ("number", pa.int32()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us")),
        ("instant", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(30, 2)),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("flag", pa.bool_()),
    ]
)
VALUES = [
    (1, -7, date(1969, 12, 31), datetime(1969, 12, 31, 23, 59, 59, 999999),
     datetime(1969, 7, 20, tzinfo=timezone.utc), Decimal("-1.50"), "ä😀b", b"\xff\x00", True),
    (2, 2**31 - 1, date(9999, 12, 31), datetime(9999, 12, 31, 23), datetime(2037, 1, 1, tzinfo=timezone.utc),
     Decimal(10**27), "", b"", False),
    (-(2**63), -(2**31), date(1, 1, 1), datetime(1000, 1, 1, 0, 0, 0, 1),
     datetime(1970, 1, 1, tzinfo=timezone.utc), Decimal("0.01"), "a/b=c%?#\n'", b"'", None),
    (4, None, None, None, None, None, None, None, None),
]  # fmt: skip
FINDS = {
    "number": "{}", "day": "DATE '{}'", "moment": "TIMESTAMP_NTZ '{}'", "price": "{}BD", "flag": "{}",
}  # fmt: skip


@pytest.mark.parametrize(
    "partition_by",
    [
        ["number", "day", "moment", "instant", "price", "text", "bytes", "flag"],
        ["bucket(7, number)", "bucket(5, day)", "bucket(3, moment)", "bucket(4, text)", "bucket(9, price)"],
        ["truncate(10, number)", "truncate(2, text)", "truncate(1, bytes)", "truncate(50, price)"],
        pytest.param(
            ["years(day)", "months(moment)", "days(instant)", "bucket(3, bytes)"], marks=pytest.mark.slow
        ),
        pytest.param(
            ["hours(moment)", "months(day)", "years(instant)", "truncate(3, id)"], marks=pytest.mark.slow
        ),
    ],
)
def test_spark_finds_each_row_in_its_partition(place: Make, partition_by: list[str]) -> None:
    it = shaped(place, arrow=KINDS, partition_by=partition_by).create()
    rows = [(*row, False, number) for number, row in enumerate(VALUES)]
    assert it.sink.append(it.table, few(it, *rows[:2]), it.commit(1)) and summary(it)[SMALL] == "true"
    assert it.sink.merge(it.table, newer(it, *rows[2:]), it.key, it.commit(2)) and by_files(it)
    name = it.sink.name(it.table)
    for row in VALUES:
        value = dict(zip(KINDS.names, row, strict=True))
        for one, form in FINDS.items():
            found = value[one]
            condition = f"{one} IS NULL" if found is None else f"{one} = {form.format(found)}"
            ids = {found[0] for found in it.spark.sql(f"SELECT id FROM {name} WHERE {condition}").collect()}
            assert value["id"] in ids, condition
    partitions = {str(one[0]) for one in it.spark.sql(f"SELECT partition FROM {name}.files").collect()}
    it.spark.sql(f"INSERT OVERWRITE {name} SELECT * FROM {name}")
    own = {str(one[0]) for one in it.spark.sql(f"SELECT partition FROM {name}.files").collect()}
    assert own == partitions, "those that Spark gives the same rows"


def test_rows_are_sorted_by_columns_of_every_type() -> None:
    by_column = zip(zip(*VALUES, strict=True), KINDS, strict=True)
    columns = [pa.array(list(values) * 2, field.type) for values, field in by_column]
    rows = pa.table([*columns, pa.array([0.5, -1.0, None, 2.0] * 2)], [*KINDS.names, "ratio"])
    for name in rows.column_names:
        for descending, nulls_first in itertools.product([False, True], repeat=2):
            order = Order(Term("identity", name), descending, nulls_first)
            [(partition, found)] = Layout((), (order,)).parts(rows)
            values = [one for one in rows[name].to_pylist() if one is not None]
            nulls = [None] * (len(rows) - len(values))
            values.sort(reverse=descending)
            assert partition == ()
            assert found[name].to_pylist() == ([*nulls, *values] if nulls_first else [*values, *nulls])


def test_a_file_that_cannot_be_written_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout((Term("identity", "id"),), ())
    writer = FileWriter(Folder.local(tmp_path), pa.schema([("id", pa.int64())]), layout=layout)
    written = writer._write_part

    def failing(partition: Partition, rows: pa.Table) -> list[WrittenFile]:
        if partition == (3,):
            raise OSError("the disk is full")
        return written(partition, rows)

    monkeypatch.setattr(FileWriter, "_write_part", lambda self, *part: failing(*part))
    with pytest.raises(OSError, match="disk is full"):
        list(writer.files([pa.record_batch([pa.array(range(5))], ["id"])]))
    assert list(tmp_path.iterdir()) == []


def test_a_partition_column_may_be_widened_and_renamed(place: Make) -> None:
    arrow = pa.schema([("id", pa.int64()), ("size", pa.int32())])
    it = shaped(place, arrow=arrow, partition_by=["size", "bucket(2, size)"]).create()
    it.sink.append(it.table, few(it, (1, 7, False, 1), (2, 8, False, 1), (3, 7, False, 1)), it.commit(1))
    it.evolve(2, column("id", pa.int64(), "id"), column("length", pa.int64(), "size"))
    it.sink.merge(it.table, few(it, (1, 2**40, False, 3)), it.key, it.commit(3))
    it.sink.merge(it.table, newer(it, (2, 7, False, 4)), it.key, it.commit(4))
    assert by_files(it) and it.rows() == [(1, 2**40, 3), (2, 7, 4), (3, 7, 1)]


def test_a_row_that_changes_its_partition_is_found_in_all(place: Make) -> None:
    it = shaped(place, arrow=PLAIN, partition_by="region").create()
    it.sink.append(it.table, it.latest(*[(n, "north", False, 1) for n in range(10)]), it.commit(1))
    it.sink.merge(it.table, few(it, (1, "south", False, 2), (2, None, True, 2)), it.key, it.commit(2))
    assert summary(it)[SMALL] == "true"
    expected = {n: ("north", 1) for n in range(10) if n != 2} | {1: ("south", 2)}
    assert it.rows() == sorted((n, *value) for n, value in expected.items())
    it.sink.merge(it.table, newer(it, (1, "north", False, 3), (3, "west", False, 3)), it.key, it.commit(3))
    assert by_files(it)
    expected |= {1: ("north", 3), 3: ("west", 3)}
    assert it.rows() == sorted((n, *value) for n, value in expected.items())


def test_a_commit_that_only_deletes_is_small_too(place: Make) -> None:
    it = shaped(place, arrow=PLAIN, partition_by=["region", "bucket(2, id)"]).create()
    it.sink.append(it.table, few(it, (1, "a", False, 1), (2, "b", False, 1)), it.commit(1))
    it.sink.merge(it.table, few(it, (1, None, True, 2)), it.key, it.commit(2))
    assert summary(it)[SMALL] == "true" and it.rows() == [(2, "b", 1)]


def test_a_target_that_never_was_without_partitions_has_small_commits(place: Make) -> None:
    it = place("iceberg").create()
    name = it.sink.name(it.table)
    properties = {str(key): str(value) for key, value in target(it).properties().items()}
    properties |= {"format-version": "3"}
    del properties["owner"]
    it.spark.sql(f"DROP TABLE {name}")
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    it.spark.sql(
        f"CREATE TABLE {name} (id bigint, name string, _sequence bigint) USING iceberg "
        f"PARTITIONED BY (name) TBLPROPERTIES ({listed})"
    )
    it.sink.merge(it.table, newer(it, (1, "a", False, 1)), it.key, it.commit(1))
    assert by_files(it)
    it.sink.merge(it.table, few(it, (1, "b", False, 2)), it.key, it.commit(2))
    assert summary(it)[SMALL] == "true" and it.rows() == [(1, "b", 2)]


def test_files_are_sorted(place: Make) -> None:
    it = shaped(place, arrow=PLAIN, partition_by="bucket(2, id)", sort_by=["region desc", "id"]).create()
    texts = [None, "b", "a", "b"]
    rows = [(n, texts[n % 4], False, 1) for n in random.Random(1).sample(range(40), 40)]
    it.sink.append(it.table, few(it, *rows), it.commit(1))
    name = it.sink.name(it.table)
    listed = it.spark.sql(f"SELECT file_path, sort_order_id FROM {name}.files").collect()
    assert len(listed) == 2 and {one[1] for one in listed} == {1}
    for path, _ in listed:
        found = pq.read_table(local_path(path), columns=["region", "id"]).to_pylist()
        keys = [(one["region"] or "", one["id"]) for one in found]
        assert keys == sorted(keys, key=lambda key: ([-ord(c) for c in key[0]] or [0], key[1]))
    assert len(it.rows()) == 40


def test_a_task_writes_one_file_for_each_partition_of_so_many_rows(
    place: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "LAID_OUT_BYTES", 1)
    it = shaped(place, arrow=PLAIN, partition_by="bucket(4, id)").create()
    for commit in range(3):
        rows = [(n, "x", False, 1) for n in range(commit * 100, commit * 100 + 100)]
        it.sink.append(it.table, few(it, *rows), it.commit(commit + 1))
    assert len(file_sizes(target(it))) == 12
    assert len(it.rows()) == 300


def test_small_files_of_each_partition_become_one(place: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    it = shaped(place, arrow=PLAIN, partition_by="region").create()
    for epoch in range(1, 7):
        rows = [(n, "ab"[n % 2], False, epoch) for n in range(epoch, epoch + 4)]
        it.sink.merge(it.table, few(it, *rows), it.key, it.commit(epoch))
    before = whole(it)
    assert packed(it) and len(file_sizes(target(it))) == 2
    assert whole(it) == before
    it.spark.sql(f"ALTER TABLE {it.sink.name(it.table)} REPLACE PARTITION FIELD region WITH bucket(1, id)")
    for epoch in range(7, 10):
        it.sink.merge(it.table, few(it, (epoch, "b", False, epoch)), it.key, it.commit(epoch))
    before = whole(it)
    assert packed(it), "files with the present partitions"
    assert len(file_sizes(target(it))) == 3 and whole(it) == before
    rows_before = it.rows()
    monkeypatch.setattr(maintenance, "TIERS", (replace(TIER, count=1),))
    iceberg(it)._maintenance.maintain(it.table)
    assert it.rows() == rows_before


@pytest.mark.slow  # tests/sinks/lake/test_file_merge.py has quick ones
@pytest.mark.parametrize("seed", SEEDS)
def test_any_mixture_of_ways_gives_the_same_rows(place: Make, seed: int) -> None:
    choose = random.Random(seed)
    it = shaped(place, arrow=PLAIN, partition_by=["region", "bucket(2, id)"], sort_by="id").create()
    name = it.sink.name(it.table)
    alters = ["REPLACE PARTITION FIELD region WITH truncate(1, region)", "DROP PARTITION FIELD bucket(2, id)",
              "ADD PARTITION FIELD bucket(3, id)"]  # fmt: skip
    model: dict[int, tuple[str | None, int]] = {}
    for epoch in range(1, 25 if seed else 13):
        rows = [
            (n, choose.choice(["aa", "ab", "b", None]), choose.random() < 0.3, epoch * 10)
            for n in choose.sample(range(12), choose.randint(1, 6))
        ]
        way = choose.choice(["files", "files", "small", "small", "spark", "fold", "pack", "alter"])
        match way:
            case "fold":
                folded(it)
                continue
            case "pack":
                packed(it)
                continue
            case "alter":
                if alters:
                    it.spark.sql(f"ALTER TABLE {name} {alters.pop(0)}")
                continue
        made = it.latest(*rows) if way == "spark" else {"files": newer, "small": few}[way](it, *rows)
        it.sink.merge(it.table, made, it.key, it.commit(epoch))
        assert way != "files" or by_files(it)
        for number, region, deleted, at in rows:
            model.pop(number, None)
            if not deleted:
                model[number] = (region, at)
        assert it.rows() == sorted(((n, *value) for n, value in model.items())), (seed, epoch, way)
