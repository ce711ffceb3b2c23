"""Targets with partitions and a sort order. Spark's own reading judges."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.conftest import Place, column
from tests.sinks.lake.iceberg.test_small_commit import iceberg, summary, target
from tests.sinks.lake.test_fence import WRITES

from penstock.errors import TableError
from penstock.sinks import registry
from penstock.sinks.lake.iceberg.shaping import present_partitions
from penstock.sinks.rows import Newer

Make = Callable[..., Place]

ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("region", pa.string()),
        ("created", pa.timestamp("us")),
        ("price", pa.float64()),
        ("code", pa.string()),
    ]
)


def shaped(place: Make, *, arrow: pa.Schema = ARROW, **entry: Any) -> Place:
    config = {"tables": [{"match": "shop.*", **entry}]}
    return place("iceberg", arrow=arrow, config=config)


def test_a_new_target_gets_what_its_entry_says(place: Make) -> None:
    it = shaped(
        place,
        partition_by=["days(CREATED)", "bucket(16, id)", "truncate(4, code)", "region"],
        sort_by=["created desc", "bucket(4, id)"],
        properties={"write.parquet.compression-codec": "gzip"},
    ).create()
    made = target(it)
    assert list(map(str, present_partitions(iceberg(it)._classes, made))) == [
        "days(created)", "bucket(16, id)", "truncate(4, code)", "region",
    ]  # fmt: skip
    assert [one.name() for one in made.spec().fields()] == [
        "created_day", "id_bucket_16", "code_trunc_4", "region",
    ]  # fmt: skip
    assert [one.isUnpartitioned() for one in made.specs().values()] == [True, False]
    assert made.sortOrder().toString().count("DESC NULLS LAST") == 1
    assert made.properties()["write.parquet.compression-codec"] == "gzip"
    assert made.properties()["penstock.pipeline"] == it.pipeline
    assert it.create().rows() == [], "creating it again changes nothing"


def test_a_partition_may_be_called_like_a_column(place: Make) -> None:
    arrow = pa.schema([("id", pa.int64()), ("created", pa.date32()), ("created_day", pa.int32())])
    it = shaped(place, arrow=arrow, partition_by="days(created)").create()
    assert [one.name() for one in target(it).spec().fields()] == ["created_day_partition"]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"partition_by": "days(born)"}, "`days(born)`, but there is no column born"),
        ({"partition_by": "days(id)"}, "`days(id)`, but the column id is of type bigint"),
        ({"partition_by": "bucket(3, price)"}, "`bucket(3, price)`, but the column price is of type double"),
        ({"sort_by": "truncate(3, created) desc"}, "`sort_by` of the entry for shop.*"),
    ],
)
def test_an_entry_that_does_not_fit_the_table_names_pattern_expression_and_column(
    place: Make, entry: dict[str, Any], words: str
) -> None:
    it = shaped(place, **entry)
    with pytest.raises(TableError) as refused:
        it.create()
    assert words in str(refused.value) and "shop.*" in str(refused.value)
    assert not iceberg(it)._catalog.exists(iceberg(it)._levels(it.table)), "nothing is left of it"


def test_a_property_that_iceberg_refuses_is_told(place: Make) -> None:
    it = shaped(place, properties={"commit.retry.num-retries": "many"})
    with pytest.raises(TableError, match=r"as `sink.tables` says: .*commit.retry.num-retries"):
        it.create()
    assert not iceberg(it)._catalog.exists(iceberg(it)._levels(it.table)), "nothing is left of it"


def test_other_partitions_than_those_of_the_target_are_said_once(
    place: Make, caplog: pytest.LogCaptureFixture
) -> None:
    it = place("iceberg", arrow=ARROW).create()
    entry = {"match": "shop.*", "partition_by": ["bucket(4, id)"]}
    config = it.config.model_copy(
        update={"tables": (type(it.config).model_validate({"tables": [entry]}).tables)}
    )
    sink: Any = registry.open_sink(config, it.spark, it.pipeline)
    with caplog.at_level(logging.WARNING):
        sink.open(it.table)
        sink.open(it.table)
    assert [one.message.count("(no partitions)") for one in caplog.records] == [1]
    it.spark.sql(f"ALTER TABLE {it.sink.name(it.table)} ADD PARTITION FIELD bucket(4, id)")
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        registry.open_sink(config, it.spark, it.pipeline).open(it.table)
    assert caplog.records == [], "the target has them by now"


def test_a_target_of_format_version_2_has_position_deletes_alone(place: Make) -> None:
    it = shaped(place, partition_by="bucket(2, id)", format_version=2).create()
    first = [row(n, "north", 1, n) for n in range(1, 9)]
    it.sink.append(it.table, it.latest(*first), it.commit(1))
    changed = [row(1, "south", 2, 20), row(2, None, 2, 21, gone=True), row(9, "west", 3, 22)]
    rows = replace(it.latest(*changed), kind=Newer())
    it.sink.merge(it.table, rows, it.key, it.commit(2))
    assert it.rows() == kept(changed[0], *first[2:], changed[2])
    name = it.sink.name(it.table)
    deletes = it.spark.sql(f"SELECT content, file_format FROM {name}.delete_files").collect()
    assert deletes and {(one[0], one[1]) for one in deletes} == {(1, "PARQUET")}
    same = [column(one.name, one.type, one.name) for one in ARROW]
    it.evolve(3, *same, column("note", pa.string(), default="'x'"))
    iceberg(it)._maintenance.maintain(it.table)
    assert {one[5] for one in it.rows()} == {"x"} and len(it.rows()) == 8
    assert summary(it)["total-equality-deletes"] == "0"


def row(id_: int, region: str | None, day: int, sequence: int, *, gone: bool = False) -> tuple[Any, ...]:
    created = datetime(1969 + id_ % 3, 12, day, 3)
    return (id_, region, created, id_ / 2, f"c{id_}", gone, sequence)


def kept(*rows: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    return sorted((*one[:-2], one[-1]) for one in rows)


def test_rows_that_change_their_partition_end_equal(place: Make) -> None:
    it = shaped(place, partition_by=["region", "days(created)", "bucket(4, id)"], sort_by="id desc").create()
    first = [row(n, "north" if n % 2 else None, 1 + n % 28, n) for n in range(1, 40)]
    it.sink.append(it.table, it.latest(*first), it.commit(1))
    moved = [row(n, "south", 1 + (n + 5) % 28, 100 + n) for n in range(1, 20)]
    gone = [row(n, None, 1, 200 + n, gone=True) for n in range(20, 30)]
    new = [row(n, "west", 7, 300 + n) for n in range(50, 60)]
    it.sink.merge(it.table, it.latest(*moved, *gone, *new), it.key, it.commit(2))
    assert it.rows() == kept(*moved, *first[29:], *new)
    it.sink.delete_older(it.table, 35, it.commit(3))
    assert it.rows() == kept(*moved, *first[34:], *new)
    it.sink.truncate(it.table, it.commit(4), sequence=1000)
    assert it.rows() == []


def test_columns_change_around_partitions(place: Make) -> None:
    it = shaped(place, partition_by=["region", "bucket(4, id)"]).create()
    it.sink.append(it.table, it.latest(row(1, "north", 1, 1), row(2, None, 2, 2)), it.commit(1))
    same = [column(one.name, one.type, one.name) for one in ARROW]
    same[1] = column("area", pa.string(), "region")
    it.evolve(2, *same[:3], column("note", pa.string(), default="'x'"), *same[3:])
    found = [(1, "north"), (2, None)]
    assert [(one[0], one[1]) for one in it.rows()] == found
    changed = (1, "south", datetime(2020, 1, 1), "n", 1.0, "c", False, 10)
    it.sink.merge(it.table, it.latest(changed), it.key, it.commit(3))
    assert [(one[0], one[1], one[3]) for one in it.rows()] == [(1, "south", "n"), (2, None, "x")]
    with pytest.raises(TableError, match=r"cannot be changed.*partition") as refused:
        it.evolve(4, *[column(one, it.arrow.field(one).type, one) for one in it.arrow.names if one != "area"])
    assert "partitions" in str(refused.value.hint)


def test_another_column_may_not_get_the_name_of_a_partition_by_value(place: Make) -> None:
    """Iceberg raises another class than for a dropped column, which PySpark replaces by its own."""
    it = shaped(place, partition_by=["region"]).create()
    same = {one.name: column(one.name, one.type, one.name) for one in ARROW}
    same["region"] = column("area", pa.string(), "region")
    same["code"] = column("region", pa.string(), "code")
    with pytest.raises(TableError, match=r"cannot be changed.*identity partition.*: region") as refused:
        it.evolve(1, *same.values())
    assert "--recreate" in refused.value.hint


@pytest.mark.parametrize("name", WRITES)
def test_partitions_that_a_user_changes_during_a_commit_are_not_those_of_its_files(
    place: Make, name: str
) -> None:
    """The files' values are those of `bucket(4, id)`. A reader that looks for them as `bucket(8, id)` would
    not find their rows."""
    numbers = range(20)
    it = shaped(place, arrow=pa.schema([("id", pa.int64())]), partition_by="bucket(4, id)").create()
    it.sink.append(it.table, it.latest((-1, False, 1)), it.commit(1))
    named = it.sink.name(it.table)

    def change() -> None:
        it.spark.sql(f"ALTER TABLE {named} REPLACE PARTITION FIELD bucket(4, id) WITH bucket(8, id)")

    rows, write = WRITES[name]
    assert write(it, rows(it, *[(n, False, 5) for n in numbers], meanwhile=change))
    found = [it.spark.sql(f"SELECT id FROM {named} WHERE id = {n}").collect() for n in numbers]
    assert [[row[0] for row in one] for one in found] == [[n] for n in numbers]


def test_a_user_may_change_the_partitions_of_a_target(place: Make) -> None:
    it = shaped(place, partition_by="region").create()
    it.sink.append(it.table, it.latest(row(1, "north", 1, 1), row(2, None, 2, 2)), it.commit(1))
    name = it.sink.name(it.table)
    it.spark.sql(f"ALTER TABLE {name} REPLACE PARTITION FIELD region WITH bucket(4, id)")
    it = replace(it)
    changed = [row(1, "south", 3, 10), row(2, None, 2, 11, gone=True), row(3, "east", 1, 12)]
    it.sink.merge(it.table, it.latest(*changed), it.key, it.commit(2))
    assert it.rows() == kept(changed[0], changed[2])
