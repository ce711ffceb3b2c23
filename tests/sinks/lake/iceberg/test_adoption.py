"""Tables that others made are taken over with their rows. Spark's own reading judges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.conftest import Place
from tests.sinks.lake.iceberg.test_shaping import shaped
from tests.sinks.lake.iceberg.test_small_commit import few, summary, target
from tests.sinks.lake.test_file_merge import by_files, newer

from penstock.errors import ConfigError, TableError
from penstock.model.schema import Column, TableSchema
from penstock.sinks.base import Commit, EvolvedColumn, Foreign, Ours
from penstock.sinks.lake.iceberg.small_commit import SMALL

Make = Callable[..., Place]

ARROW = pa.schema([("id", pa.int64()), ("region", pa.string()), ("n", pa.int32())])
V3 = "TBLPROPERTIES ('format-version' = '3')"


def others(
    place: Make, columns: str = "id BIGINT NOT NULL, region STRING, n INT", rest: str = V3, **entry: Any
) -> Place:
    """A place at which somebody else has made a table."""
    it = shaped(place, arrow=ARROW, adopt=True, **entry)
    name = it.sink.name(it.table)
    it.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name.rpartition('.')[0]}")
    it.spark.sql(f"CREATE TABLE {name} ({columns}) USING iceberg {rest}")
    return it


def filled(it: Place) -> Place:
    it.spark.sql(f"INSERT INTO {it.sink.name(it.table)} VALUES (1, 'eu', 1), (2, 'us', 2), (3, 'us', 3)")
    return it


def schema_of(it: Place) -> TableSchema:
    return TableSchema(it.table, tuple(Column(name, "varchar") for name in it.arrow.names), it.key)


def adopted(it: Place) -> Place:
    it.sink.adopt(schema_of(it), it.arrow)
    columns = [EvolvedColumn(one, one.name, refills=True, key=one.name in it.key) for one in it.arrow]
    it.evolve(1, *columns)
    return it


def different(it: Place, *, rows: bool = True) -> list[str]:
    found = it.sink.differences(schema_of(it), it.arrow, rows=rows)
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize(
    "partitions",
    ["", "PARTITIONED BY (bucket(4, id), region)", "PARTITIONED BY (truncate(1, region), truncate(10, n))"],
)
def test_rows_of_others_count_as_older_than_every_change(place: Make, partitions: str) -> None:
    it = adopted(filled(others(place, rest=f"{partitions} {V3}")))
    assert it.sink.open(it.table) == Ours(it.commit(1), ("id", "region", "n"), False)
    assert it.rows() == [(1, "eu", 1, None), (2, "us", 2, None), (3, "us", 3, None)]
    assert target(it).spec().isUnpartitioned() == (not partitions), "it keeps its partitions"
    assert it.sink.merge(it.table, few(it, (1, "us", 10, False, 5)), it.key, it.commit(2))
    assert summary(it)[SMALL] == "true", "without a Spark job"
    assert it.sink.merge(it.table, newer(it, (2, "eu", 20, False, 6)), it.key, it.commit(3)) and by_files(it)
    assert it.rows() == [(1, "us", 10, 5), (2, "eu", 20, 6), (3, "us", 3, None)]
    assert it.sink.merge(it.table, it.latest((3, "eu", 30, False, 7), (9, "x", 9, False, 7)), it.key,
                         it.commit(4))  # fmt: skip
    assert it.rows()[2:] == [(3, "eu", 30, 7), (9, "x", 9, 7)], "by Spark's MERGE"


def test_rows_that_no_snapshot_found_are_deleted_at_its_end(place: Make) -> None:
    it = adopted(filled(others(place)))
    it.sink.merge(it.table, newer(it, (2, "us", 2, False, 6)), it.key, it.commit(2))
    assert it.sink.delete_older(it.table, 6, it.commit(3))
    assert it.rows() == [(2, "us", 2, 6)]


def test_without_the_option_the_table_is_refused(place: Make) -> None:
    it = others(place)
    other = shaped(place, arrow=ARROW)
    other.sink.format._options = it.sink.format._options.model_copy(update={"tables": ()})
    found = other.sink.open(it.table)
    assert isinstance(found, Foreign) and not found.adoptable and "`adopt: true`" in found.cure
    with pytest.raises(ConfigError, match="did not create"):
        other.sink.adopt(schema_of(it), it.arrow)
    found = it.sink.open(it.table)
    assert isinstance(found, Foreign) and found.adoptable
    with pytest.raises(ConfigError):
        it.create()  # a plan that expected no table


def test_each_difference_is_named(place: Make) -> None:
    it = others(place, "id STRING, N DECIMAL(10,2), extra DOUBLE, note STRUCT<a: INT>", "")
    assert different(it) == [
        "its column id is of type string, and bigint is needed",
        "it has no column region",
        "its column N is of type decimal(10,2), and int is needed",
        "its column extra is not in the source",
        "its column note is not in the source",
    ]
    with pytest.raises(TableError, match="cannot be adopted: its column id is of type string") as error:
        adopted(it)
    assert "penstock resnapshot" in str(error.value.hint)
    assert isinstance(it.sink.open(it.table), Foreign), "nothing was done"


def test_a_wider_or_narrower_number_fits(place: Make) -> None:
    it = others(place, "ID INT, region STRING, n BIGINT")
    assert different(it) == []
    adopted(it)
    it.sink.merge(it.table, newer(it, (2**40, "eu", 1, False, 6)), it.key, it.commit(2))
    assert it.rows() == [(2**40, "eu", 1, 6)]
    assert [one.dataType.simpleString() for one in it.sink.columns(it.table)][:3] == [
        "bigint",
        "string",
        "bigint",
    ]


def test_lists_fit_whose_elements_may_be_null(place: Make) -> None:
    arrow = pa.schema([("id", pa.int64()), ("words", pa.list_(pa.string())), ("n", pa.list_(pa.int32()))])
    it = shaped(place, arrow=arrow, adopt=True)
    name = it.sink.name(it.table)
    it.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name.rpartition('.')[0]}")
    it.spark.sql(f"CREATE TABLE {name} (id BIGINT, words ARRAY<STRING>, n ARRAY<BIGINT>) USING iceberg {V3}")
    assert different(it) == ["its column n is of type array<bigint>, and array<int> is needed"]
    it.spark.sql(f"ALTER TABLE {name} DROP COLUMN n")
    it.spark.sql(f"ALTER TABLE {name} ADD COLUMN n ARRAY<INT>")
    assert different(it) == []
    it.spark.sql(f"INSERT INTO {name} VALUES (1, array('a', NULL), array(1)), (2, NULL, array())")
    adopted(it)
    assert it.sink.merge(it.table, few(it, (2, ["b"], [None], False, 5)), it.key, it.commit(2))
    assert summary(it)[SMALL] == "true", "without a Spark job"
    assert it.sink.merge(it.table, newer(it, (3, [], None, False, 6)), it.key, it.commit(3)) and by_files(it)
    assert it.rows() == [(1, ["a", None], [1], None), (2, ["b"], [None], 5), (3, [], None, 6)]


def test_rows_with_one_key_do_not_fit(place: Make) -> None:
    it = filled(others(place))
    assert different(it) == []
    it.spark.sql(f"INSERT INTO {it.sink.name(it.table)} VALUES (1, 'again', 1)")
    assert different(it, rows=False) == []
    assert different(it) == ["several of its rows have the same key (id)"]


def test_identifier_fields_are_the_key_or_it_does_not_fit(place: Make) -> None:
    it = others(place, "id BIGINT NOT NULL, region STRING NOT NULL, n INT NOT NULL")
    name = it.sink.name(it.table)
    it.spark.sql(f"ALTER TABLE {name} SET IDENTIFIER FIELDS id, region")
    assert different(it) == ["its identifier fields are (id, region), and the key of the source is (id)"]
    it.spark.sql(f"ALTER TABLE {name} DROP IDENTIFIER FIELDS region")
    assert different(it) == []
    adopted(it)
    assert [field.nullable for field in it.sink.columns(it.table)] == [False, True, True, True]
    it.sink.merge(it.table, it.latest((1, None, None, False, 6)), it.key, it.commit(2))
    assert it.rows() == [(1, None, None, 6)]


def test_the_table_of_a_lost_pipeline_starts_anew(place: Make) -> None:
    """Its `_sequence` counts in the offsets of a log that is gone, and may be greater than any to come."""
    it = others(place)
    it.spark.sql(f"DROP TABLE {it.sink.name(it.table)}")
    it.create()
    it.sink.append(it.table, few(it, (1, "old", 1, False, 10**15), (2, "gone", 2, False, 9)), it.commit(900))
    new = Place(it.spark, it.config, arrow=ARROW)
    new.table = it.table
    found = new.sink.open(it.table)
    assert isinstance(found, Foreign) and not found.adoptable and "penstock adopt" in found.cure
    it.spark.sql(f"ALTER TABLE {it.sink.name(it.table)} UNSET TBLPROPERTIES ('penstock.pipeline')")
    adopted(new)
    assert new.sink.open(it.table).last_commit == Commit(new.pipeline, 1)
    assert new.rows() == [(1, "old", 1, None), (2, "gone", 2, None)]
    new.sink.merge(it.table, new.latest((1, "new", 1, False, 20)), it.key, new.commit(2))
    new.sink.delete_older(it.table, 20, new.commit(3))
    assert new.rows() == [(1, "new", 1, 20)]


def test_adopting_twice_changes_nothing(place: Make) -> None:
    it = adopted(filled(others(place)))
    version = it.sink.version(it.table)
    it.sink.adopt(schema_of(it), it.arrow)
    assert it.sink.version(it.table) == version and it.rows()[0] == (1, "eu", 1, None)


@pytest.mark.parametrize("form", ["orc", "avro"])
def test_files_of_other_formats_are_merged_by_spark(place: Make, form: str) -> None:
    rest = f"TBLPROPERTIES ('format-version' = '3', 'write.format.default' = '{form}')"
    it = filled(others(place, rest=rest))
    it.spark.sql(f"ALTER TABLE {it.sink.name(it.table)} UNSET TBLPROPERTIES ('write.format.default')")
    adopted(it)
    it.sink.merge(it.table, newer(it, (2, "eu", 20, False, 6)), it.key, it.commit(2))
    assert it.sink.merge(it.table, newer(it, (3, None, None, True, 7)), it.key, it.commit(3))
    assert it.rows() == [(1, "eu", 1, None), (2, "eu", 20, 6)]
    it.sink.compact(it.table)
    assert it.rows() == [(1, "eu", 1, None), (2, "eu", 20, 6)]
