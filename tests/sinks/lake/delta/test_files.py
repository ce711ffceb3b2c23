"""Delta tables whose files and deletion vectors are written here. Spark's own reading judges."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyroaring import BitMap64
from tests.sinks.conftest import SEEDS, Place, column
from tests.sinks.lake.iceberg.test_small_commit import few
from tests.sinks.lake.test_file_merge import by_files, files_of, merge_from, newer, seen

from penstock.errors import InternalError, TableError
from penstock.sinks.base import Commit
from penstock.sinks.files import WrittenFile
from penstock.sinks.lake.delta import format as delta_format
from penstock.sinks.lake.delta import vectors
from penstock.sinks.lake.delta.files import file_writer, statistics
from penstock.sinks.lake.delta.local import LocalDelta
from penstock.sinks.lake.delta.merge import KeySpan
from penstock.sinks.lake.lookup import Unsearchable
from penstock.sinks.lake.vectors import Inline, Vector, framed, read
from penstock.sinks.rows import Rows
from penstock.store.files import Folder, LocalFiles

Make = Callable[..., Place]


def delta(it: Place) -> LocalDelta:
    assert isinstance(it.sink.format, LocalDelta)
    return it.sink.format


def sql(it: Place, statement: str) -> None:
    """`{}` is the target."""
    it.spark.sql(statement.format(delta(it).name(it.table)))


def gets_files_of_ours(it: Place) -> bool:
    """What appends and merges decide by."""
    return file_writer(it.spark, delta(it)._access, delta(it).load(it.table)) is not None


def live_files(it: Place) -> list[dict[str, Any]]:
    return list(delta(it)._commits.checksums.files(delta(it).load(it.table)))


@pytest.mark.parametrize("make", [newer, few], ids=["by tasks", "by the driver"])
def test_rows_are_added_without_sparks_writer(place: Make, make: Callable[..., Rows]) -> None:
    it = place("delta").create()
    rows = make(it, (1, "a", False, 1), (2, None, False, 2), (3, "c", True, 3))
    assert it.sink.append(it.table, rows, it.commit(1))
    assert by_files(it) and it.rows() == [(1, "a", 1), (2, None, 2)]
    assert not it.sink.append(it.table, rows, it.commit(1)), "it is recorded"


def test_few_rows_are_merged_without_a_spark_job_for_them(place: Make) -> None:
    it = place("delta").create()
    it.sink.append(it.table, few(it, (1, "a", False, 1), (2, "b", False, 1)), it.commit(1))
    rows = few(it, (1, "A", False, 5), (2, None, True, 5), (3, "c", False, 5))
    assert it.sink.merge(it.table, rows, it.key, it.commit(2))
    assert by_files(it) and it.rows() == [(1, "A", 5), (3, "c", 5)]


def test_a_commit_without_a_row_is_recorded(place: Make) -> None:
    it = place("delta").create()
    assert it.sink.append(it.table, it.latest((1, "a", True, 1)), it.commit(1))
    assert it.sink.merge(it.table, newer(it, (1, "a", True, 2)), it.key, it.commit(2))
    assert not it.sink.append(it.table, it.latest((1, "a", False, 1)), it.commit(1))
    assert not it.sink.merge(it.table, newer(it, (1, "a", False, 2)), it.key, it.commit(2))
    assert it.rows() == []


def test_a_file_whose_rows_are_all_gone_goes(place: Make) -> None:
    it = place("delta").create()
    for epoch, rows in enumerate([[1, 2], [3, 4, 5]], start=1):
        it.sink.append(it.table, few(it, *[(n, "a", False, 1) for n in rows]), it.commit(epoch))
    it.sink.merge(it.table, newer(it, *[(n, "", True, 5) for n in (1, 3)]), it.key, it.commit(3))
    assert sorted(file["deletionVector"]["cardinality"] for file in live_files(it)) == [1, 1]
    it.sink.merge(it.table, newer(it, (2, "", True, 6), (5, "", True, 6)), it.key, it.commit(4))
    assert [file["deletionVector"]["cardinality"] for file in live_files(it)] == [2]
    assert by_files(it) and it.rows() == [(4, "a", 1)]


STATEMENTS = (
    "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
    "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
    "ALTER TABLE {} ADD CONSTRAINT low CHECK (id < 100)",
    "ALTER TABLE {} ADD COLUMNS (more STRUCT<a: INT>)",
)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_target_that_asks_something_of_its_writers_gets_no_files_of_ours(
    place: Make, statement: str
) -> None:
    it = place("delta").create()
    assert gets_files_of_ours(it)
    sql(it, statement)
    assert not gets_files_of_ours(it)


@pytest.mark.slow  # the test before says that they get no files; how Spark merges is tested without vectors
@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_target_that_asks_something_of_its_writers_is_written_by_spark(place: Make, statement: str) -> None:
    it = place("delta").create()
    sql(it, statement)
    it.sink.append(it.table, newer(it, (1, "a", False, 1), (2, "b", False, 2)), it.commit(1))
    assert not by_files(it)
    it.sink.merge(it.table, newer(it, (1, "A", False, 5)), it.key, it.commit(2))
    assert not by_files(it)
    assert [row[:2] for row in it.rows()] == [(1, "A"), (2, "b")]
    assert it.sink.last_commit(it.table, "") == it.commit(2)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("ALTER TABLE {} ADD CONSTRAINT low CHECK (id < 100)", "CHECK constraints"),
        ("ALTER TABLE {} SET TBLPROPERTIES ('delta.appendOnly' = 'true')", "delta.appendOnly is true"),
    ],
)
def test_what_makes_a_target_refuse_a_row_is_told_without_the_row(
    place: Make, statement: str, reason: str
) -> None:
    it = place("delta").create()
    it.sink.append(it.table, few(it, (1, "secret", False, 1)), it.commit(1))
    sql(it, statement)
    rows = newer(it, (1, "secret", False, 5), (100, "secret", False, 6))
    with pytest.raises(TableError, match=reason) as refused:
        it.sink.merge(it.table, rows, it.key, it.commit(2))
    assert "secret" not in str(refused.value) and "penstock unpark" in refused.value.hint


FORMS = (
    "_sequence BIGINT) USING delta PARTITIONED BY (name)",
    "_sequence BIGINT, more BIGINT GENERATED ALWAYS AS (id + 1)) USING delta",
)


def made_as(it: Place, form: str) -> None:
    """The target is made again, by SQL of a user."""
    known = it.sink.properties(it.table)
    known.pop("delta.columnMapping.maxColumnId")
    shutil.rmtree(delta(it).path(it.table))
    delta(it)._forget_paths()
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in known.items())
    sql(it, f"CREATE TABLE {{}} (id BIGINT, name STRING, {form} TBLPROPERTIES ({properties})")


@pytest.mark.parametrize("form", FORMS)
def test_a_target_that_was_made_in_another_way_gets_no_files_of_ours(place: Make, form: str) -> None:
    it = place("delta").create()
    made_as(it, form)
    assert not gets_files_of_ours(it)


@pytest.mark.slow  # as above
@pytest.mark.parametrize("form", FORMS)
def test_a_target_that_was_made_in_another_way_is_written_by_spark(place: Make, form: str) -> None:
    it = place("delta").create()
    made_as(it, form)
    it.sink.append(it.table, newer(it, (1, "a", False, 1), (2, "b", False, 2)), it.commit(1))
    it.sink.merge(it.table, newer(it, (1, "A", False, 5)), it.key, it.commit(2))
    assert not by_files(it) and [row[:3] for row in it.rows()] == [(1, "A", 5), (2, "b", 2)]


def test_without_deletion_vectors_only_merges_are_done_by_spark(place: Make) -> None:
    it = place("delta").create()
    sql(it, "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')")
    it.sink.append(it.table, it.latest((1, "a", False, 1)), it.commit(1))
    assert by_files(it)
    it.sink.merge(it.table, newer(it, (1, "A", False, 5)), it.key, it.commit(2))
    assert not by_files(it) and it.rows() == [(1, "A", 5)]


def test_a_column_of_the_users_own_is_null_in_new_rows(place: Make) -> None:
    it = place("delta").create()
    sql(it, "ALTER TABLE {} ADD COLUMNS (remark STRING)")
    it.sink.append(it.table, it.latest((1, "a", False, 1)), it.commit(1))
    assert by_files(it) and it.rows() == [(1, "a", 1, None)]


def test_no_column_of_the_rows_is_left_out_silently(place: Make) -> None:
    it = place("delta").create()
    it.arrow = pa.schema([*it.arrow, pa.field("more", pa.int32())])
    with pytest.raises(Exception, match="lacks the column more") as caught:
        it.sink.append(it.table, few(it, (1, "a", 7, False, 1)), it.commit(1))
    assert isinstance(caught.value, TableError)


def test_a_target_may_have_wider_types_than_the_rows(place: Make) -> None:
    it = place("delta", arrow=pa.schema([("id", pa.int64()), ("name", pa.decimal128(12, 2))])).create()
    it.arrow = pa.schema([("id", pa.int16()), ("name", pa.int32())])
    it.sink.append(it.table, it.latest((1, 7, False, 1)), it.commit(1))
    it.sink.merge(it.table, newer(it, (1, 8, False, 5), (2, 9, False, 5)), it.key, it.commit(2))
    assert by_files(it) and [(row[0], str(row[1])) for row in it.rows()] == [(1, "8.00"), (2, "9.00")]


@pytest.mark.slow  # a wrong statistic would be a wrong answer in the next test
def test_spark_skips_files_by_what_is_told_of_them(place: Make) -> None:
    it = place("delta").create()
    for epoch in range(4):
        rows = [(epoch * 10 + n, f"name {epoch}", False, 1) for n in range(10)]
        it.sink.append(it.table, few(it, *rows), it.commit(epoch + 1))
    frame = it.sink.read(it.table)
    for condition, number in [("id = 25", 1), ("name = 'name 3'", 1), ("id >= 20", 2), ("id > 99", 0)]:
        found = frame.where(condition)
        assert len(found.inputFiles()) == number, condition
    assert frame.where("id = 25").count() == 1 and frame.where("name IS NULL").count() == 0
    it.sink.merge(it.table, newer(it, (25, "new", False, 5)), it.key, it.commit(9))
    assert [row.name for row in frame.sparkSession.sql(
        f"SELECT name FROM {delta(it).name(it.table)} WHERE id = 25").collect()] == ["new"]  # fmt: skip


def test_what_delta_answers_from_statistics_is_right(place: Make) -> None:
    it = place("delta", arrow=pa.schema([("id", pa.int64()), ("day", pa.date32())])).create()
    it.sink.append(it.table, few(it, (1, 5, False, 1), (2, None, False, 1)), it.commit(1))
    it.sink.append(it.table, few(it, (3, -719528, False, 1), (4, 7, False, 1)), it.commit(2))
    wanted = ["COUNT(*)", "MIN(id)", "MAX(id)", "CAST(MIN(day) AS STRING)", "CAST(MAX(day) AS STRING)"]

    def found() -> tuple[Any, ...]:
        return tuple(it.sink.read(it.table).selectExpr(*wanted).collect()[0])

    assert found() == (4, 1, 4, "0000-01-01", "1970-01-08")
    it.sink.merge(it.table, newer(it, (4, None, True, 5)), it.key, it.commit(3))
    assert by_files(it) and found() == (3, 1, 3, "0000-01-01", "1970-01-06")


@pytest.mark.slow
def test_other_versions_and_other_housekeeping_see_the_same_rows(place: Make) -> None:
    it = place("delta").create()
    it.sink.append(it.table, it.latest(*[(n, "a", False, 1) for n in range(100)]), it.commit(1))
    first = it.sink.version(it.table)
    it.sink.merge(it.table, newer(it, *[(n, "b", n % 2 == 0, 5) for n in range(90, 120)]), it.key,
                  it.commit(2))  # fmt: skip
    second, expected = it.sink.version(it.table), it.rows()
    sql(it, "DELETE FROM {} WHERE id < 10")
    expected = [row for row in expected if row[0] >= 10]
    assert it.rows() == expected
    it.sink.compact(it.table)
    assert it.rows() == expected
    it.sink.merge(it.table, newer(it, (50, "c", False, 9)), it.key, it.commit(3))
    assert by_files(it)
    expected = sorted([row for row in expected if row[0] != 50] + [(50, "c", 9)])
    assert len(it.rows(first)) == 100 and len(it.rows(second)) == 90 + 15
    it.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        before = len(files_of(it))
        sql(it, "VACUUM {} RETAIN 0 HOURS")
    finally:
        it.spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    assert len(files_of(it)) < before
    assert it.rows() == expected
    sql(it, "REORG TABLE {} APPLY (PURGE)")
    assert it.rows() == expected and all("deletionVector" not in file for file in live_files(it))


def test_small_files_are_put_together_now_and_then(place: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_format, "PACK_COMMITS", 5)
    it = place("delta").create()
    it.sink.append(it.table, few(it, *[(n, "a", False, 1) for n in range(20)]), it.commit(1))
    for epoch in range(2, 6):
        assert len(live_files(it)) == epoch - 1
        it.sink.merge(it.table, newer(it, (epoch, "b", False, epoch)), it.key, it.commit(epoch))
    assert len(live_files(it)) == 1
    expected = dict.fromkeys(range(20), ("a", 1)) | {n: ("b", n) for n in range(2, 6)}
    assert it.rows() == sorted((n, *value) for n, value in expected.items())
    assert not it.sink.merge(it.table, newer(it, (1, "z", False, 99)), it.key, it.commit(5)), "still recorded"


@pytest.mark.slow  # where vectors are is tested below, without Spark
def test_a_directory_that_was_moved_takes_its_vectors_along(place: Make) -> None:
    it = place("delta").create()
    it.sink.append(
        it.table, it.latest((1, "a", False, 1), (2, "a", False, 1), (3, "a", False, 1)), it.commit(1)
    )
    it.sink.merge(it.table, newer(it, (1, "b", False, 5)), it.key, it.commit(2))
    path = delta(it).path(it.table)
    other = path.with_name("elsewhere")
    path.rename(other)
    it.table = replace(it.table, table="elsewhere")
    assert it.rows() == [(1, "b", 5), (2, "a", 1), (3, "a", 1)]
    it.sink.merge(it.table, newer(it, (2, "c", False, 6)), it.key, it.commit(3))
    assert by_files(it) and it.rows() == [(1, "b", 5), (2, "c", 6), (3, "a", 1)]


def test_a_merge_is_refused_if_anybody_has_added_rows_meanwhile(place: Make) -> None:
    """Also one that found none of its keys, and so removes nothing."""
    it = place("delta").create()
    stale = seen(it)
    sql(it, "INSERT INTO {} VALUES (1, 'z', 1)")
    with pytest.raises(Py4JJavaError, match=r"(?i)concurrent"):
        merge_from(it, stale, newer(it, (1, "b", False, 5)), it.commit(1))
    assert it.rows() == [(1, "z", 1)]
    it.sink.merge(it.table, newer(it, (1, "b", False, 5)), it.key, it.commit(1))
    assert it.rows() == [(1, "b", 5)]


def test_an_append_is_refused_if_it_was_made_meanwhile(place: Make) -> None:
    it = place("delta").create()
    stale = seen(it)
    it.sink.append(it.table, it.latest((1, "a", False, 1)), it.commit(1))
    with pytest.raises(Py4JJavaError, match=r"(?i)concurrent"):
        delta(it)._commits.write(stale, it.commit(1), [], reads=False)


def test_an_append_goes_beside_those_of_others(place: Make) -> None:
    it = place("delta").create()
    stale = seen(it)
    sql(it, "INSERT INTO {} VALUES (1, 'z', 1)")
    delta(it)._commits.write(stale, it.commit(1), [], reads=False)
    assert it.sink.last_commit(it.table, "") == it.commit(1)


@pytest.mark.slow  # Iceberg has a quick one (tests/sinks/lake/test_file_merge.py)
def test_a_key_column_that_older_files_lack_is_merged_by_spark(place: Make) -> None:
    it = place("delta").create()
    it.sink.append(it.table, it.latest((1, "a", False, 1)), it.commit(1))
    it.evolve(2, *[column(n, k, n) for n, k in (("id", pa.int64()), ("name", pa.string()))],
              column("part", pa.int64()))  # fmt: skip
    before = files_of(it)
    it.sink.merge(it.table, newer(it, (1, "b", 7, False, 5), (2, "c", 8, False, 6)), ("id", "part"),
                  it.commit(3))  # fmt: skip
    assert not by_files(it)
    assert all(name in before or name.startswith("part-") for name in files_of(it)), "what was begun is gone"
    assert it.rows() == [(1, "a", None, 1), (1, "b", 7, 5), (2, "c", 8, 6)]


@pytest.mark.slow  # Iceberg's has a quick seed
@pytest.mark.parametrize("seed", SEEDS)
def test_any_mixture_of_ways_gives_the_same_rows(place: Make, seed: int) -> None:
    choose = random.Random(seed)
    it = place("delta", arrow=pa.schema([("id", pa.int32()), ("part", pa.string()), ("v", pa.string())]),
               key=("id", "part")).create()  # fmt: skip
    model: dict[tuple[int, str], tuple[Any, ...]] = {}
    more = False
    for epoch in range(1, 21):
        keys = choose.sample([(n, p) for n in range(8) for p in "ab"], choose.randint(1, 8))
        way = choose.choice(["files", "files", "files", "driver", "spark", "compact", "truncate", "evolve"])
        if way == "compact":
            it.sink.compact(it.table)
        elif way == "truncate":
            it.sink.truncate(it.table, it.commit(epoch), sequence=epoch * 10)
            model = {}
        elif way == "evolve" and not more:
            it.evolve(epoch, column("id", pa.int64(), "id"), column("part", pa.string(), "part"),
                      column("w", pa.string(), "v"), column("x", pa.int16(), default="3"))  # fmt: skip
            more, model = True, {key: (value[0], 3, value[1]) for key, value in model.items()}
        else:
            rows: list[tuple[Any, ...]] = [
                (*key, f"{epoch}", *([epoch] * more), choose.random() < 0.3, epoch * 10) for key in keys
            ]
            made = it.latest(*rows) if way == "spark" else newer(it, *rows)
            if way == "driver":
                made = few(it, *rows)
            it.sink.merge(it.table, made, it.key, it.commit(epoch))
            assert by_files(it) == (way != "spark")
            for number, part, *values, deleted, at in rows:
                model.pop((number, part), None)
                if not deleted:
                    model[number, part] = (*values, at)
        assert it.rows() == sorted((*key, *value) for key, value in model.items()), (seed, epoch, way)


def parquet_file(folder: Path, name: str, table: pa.Table, **options: Any) -> WrittenFile:
    path = folder / name
    pq.write_table(table, path, **options)
    return WrittenFile.of(str(path), path.stat().st_size, pq.read_metadata(path), table.schema)


def test_statistics_tell_only_what_is_the_same_everywhere(tmp_path: Path) -> None:
    table = pa.table({
        "n": pa.array([3, None, -2], pa.int8()),
        "t": ["b", "é", None],
        "long": ["a" * 33, "b", "c"],
        "day": [date(1, 1, 1), date(2026, 1, 2), None],
        "zero": pa.array([-719528 - 366, 0, 1], pa.int32()).cast(pa.date32()),
        "none": pa.nulls(3, pa.int64()),
        "f": [1.5, 2.5, 3.5],
    })  # fmt: skip
    file = parquet_file(tmp_path, "1", table, row_group_size=1)
    found = statistics(file, table.schema)
    assert found == {
        "numRecords": 3,
        "minValues": {"n": -2, "t": "b", "day": "0001-01-01"},
        "maxValues": {"n": 3, "t": "é", "day": "2026-01-02"},
        "nullCount": {"n": 1, "t": 1, "long": 0, "day": 1, "zero": 0, "none": 3, "f": 0},
        "tightBounds": True,
    }
    json.dumps(found)
    few = statistics(file, table.schema, columns_max=2)
    assert list(few["nullCount"]) == ["n", "t"]


def test_only_files_whose_bounds_meet_the_keys_are_looked_at(tmp_path: Path) -> None:
    tables = [
        pa.table({"a": numbers, "b": texts, "c": [0.5, 0.5]})
        for numbers, texts in [([-5, 10], ["b", "c" * 40]), ([20, 30], ["c", "é"])]
    ]
    files = [parquet_file(tmp_path, str(n), table) for n, table in enumerate(tables)]
    span = KeySpan.of(files, tables[0].schema)
    assert (span.least, span.greatest) == ({"a": -5, "b": "b"}, {"a": 30, "b": "é"})

    def stats(**bounds: tuple[Any, Any]) -> dict[str, Any]:
        return {side: {name: pair[place] for name, pair in bounds.items()}
                for place, side in enumerate(("minValues", "maxValues"))}  # fmt: skip

    assert span.may_be_in({}), "nothing is known of it"
    assert span.may_be_in(stats(a=(30, 99))) and span.may_be_in(stats(a=(-9, -5)))
    assert not span.may_be_in(stats(a=(31, 99))) and not span.may_be_in(stats(a=(-99, -6)))
    assert span.may_be_in(stats(a=(0, 0), b=("a", "b"))) and not span.may_be_in(
        stats(a=(0, 0), b=("a", "az"))
    )
    assert span.may_be_in(stats(a=("0", "1"))), "the column had another type"
    assert span.may_be_in(stats(c=(9.5, 9.5))), "its order is not looked at"


def test_vectors_are_found_where_their_descriptors_say(tmp_path: Path) -> None:
    bitmaps = [BitMap64([1, 5]), BitMap64([2**33])]
    folder = Folder.local(tmp_path)
    placed = vectors.write(folder, [(bitmap.serialize(), len(bitmap)) for bitmap in bitmaps])
    assert [read(vectors.place(folder, one), folder.files) for one in placed] == bitmaps
    (path,) = tmp_path.iterdir()
    moved = tmp_path / "ab"
    moved.mkdir()
    path.rename(moved / path.name)
    prefixed = {**placed[0], "pathOrInlineDv": "ab" + placed[0]["pathOrInlineDv"]}
    assert read(vectors.place(folder, prefixed), folder.files) == bitmaps[0]
    inline = framed(bitmaps[0].serialize())[4:-4]
    text = vectors.z85(inline + bytes(-len(inline) % 4))
    found = vectors.place(folder, {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(inline)})
    assert isinstance(found, Inline) and read(found, folder.files) == bitmaps[0]
    with pytest.raises(Unsearchable):
        vectors.place(folder, {"storageType": "p", "pathOrInlineDv": "file:/x", "sizeInBytes": 1})


def test_what_is_no_vector_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(framed(BitMap64([1]).serialize())[:-1] + b"\0")
    size = (tmp_path / "file").stat().st_size
    with pytest.raises(InternalError, match="no intact deletion vector"):
        read(Vector(str(tmp_path / "file"), 0, size), LocalFiles())
    with pytest.raises(InternalError, match="deletion vector in a table's log is damaged"):
        read(Inline(b"abcd"), LocalFiles())


def test_base_85_is_that_of_zeromq() -> None:
    """The example of RFC 32."""
    data = bytes([0x86, 0x4F, 0xD2, 0x6F, 0xB5, 0x59, 0xF7, 0x5B])
    assert vectors.z85(data) == "HelloWorld" and vectors.from_z85("HelloWorld") == data


def test_commits_are_told_apart_by_their_source_table(place: Make) -> None:
    it = place("delta").create()
    one, other = (Commit(it.pipeline, 3, 0, source) for source in ("a.t", "b.t"))
    assert it.sink.append(it.table, it.latest((1, "a", False, 1)), one)
    assert it.sink.append(it.table, it.latest((2, "b", False, 1)), other)
    assert not it.sink.append(it.table, it.latest((2, "b", False, 1)), other)
    assert it.rows() == [(1, "a", 1), (2, "b", 1)]
