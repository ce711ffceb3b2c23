"""Tables of format version 2 without Spark's MERGE. Spark's own reading judges."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.conftest import SEEDS, Place
from tests.sinks.lake.iceberg.test_pack_files import packed
from tests.sinks.lake.iceberg.test_shaping import shaped
from tests.sinks.lake.iceberg.test_small_commit import few, folded, iceberg, replaced_by_keys, summary, target
from tests.sinks.lake.test_file_merge import by_files, newer

from penstock.sinks.lake.iceberg.small_commit import SMALL

Make = Callable[..., Place]

ARROW = pa.schema([("id", pa.int64()), ("region", pa.string())])


def version2(place: Make, **entry: Any) -> Place:
    it = shaped(place, arrow=ARROW, format_version=2, **entry).create()
    assert iceberg(it)._classes.format_version(target(it)) == 2
    return it


def delete_files(it: Place) -> list[tuple[Any, ...]]:
    """Kind, format and the data file of each delete file."""
    name = it.sink.name(it.table)
    it.spark.catalog.refreshTable(name)
    found = it.spark.sql(f"SELECT content, file_format, referenced_data_file FROM {name}.delete_files")
    return sorted(map(tuple, found.collect()), key=str)


@pytest.mark.parametrize("partition_by", [(), "region"])
def test_every_way_of_writing_does_without_spark_and_leaves_position_deletes(
    place: Make, partition_by: Any
) -> None:
    it = version2(place, partition_by=partition_by)
    it.sink.append(it.table, it.latest(*[(n, "eu", False, 1) for n in range(6)]), it.commit(1))
    it.sink.merge(it.table, few(it, (0, "us", False, 2), (1, None, True, 2)), it.key, it.commit(2))
    assert summary(it)[SMALL] == "true"
    assert [one[:2] for one in delete_files(it)] == [(1, "PARQUET")]
    it.sink.merge(it.table, newer(it, (2, "us", False, 3), (0, "ap", False, 3)), it.key, it.commit(3))
    assert by_files(it)
    found = delete_files(it)
    assert len({one[2] for one in found}) == len(found) == 2, "each data file has one file of deletes"
    expected = [(0, "ap", 3), (2, "us", 3), (3, "eu", 1), (4, "eu", 1), (5, "eu", 1)]
    assert it.rows() == expected
    it.sink.merge(it.table, it.latest((3, "us", False, 4)), it.key, it.commit(4))
    assert "spark.app.id" in summary(it), "Spark's MERGE, whose deletes are taken over"
    it.sink.merge(it.table, newer(it, (4, "us", False, 5)), it.key, it.commit(5))
    assert by_files(it)
    expected = [(0, "ap", 3), (2, "us", 3), (3, "us", 4), (4, "us", 5), (5, "eu", 1)]
    assert it.rows() == expected
    assert packed(it) and it.rows() == expected
    it.sink.compact(it.table)
    assert it.rows() == expected and delete_files(it) == []


def test_a_table_that_becomes_version_3_keeps_what_was_deleted(place: Make) -> None:
    it = version2(place)
    it.sink.append(it.table, it.latest(*[(n, "eu", False, 1) for n in range(4)]), it.commit(1))
    it.sink.merge(it.table, newer(it, (0, None, True, 2)), it.key, it.commit(2))
    it.spark.sql(f"ALTER TABLE {it.sink.name(it.table)} SET TBLPROPERTIES ('format-version' = '3')")
    it.sink.merge(it.table, newer(it, (1, None, True, 3)), it.key, it.commit(3))
    assert by_files(it) and [one[1] for one in delete_files(it)] == ["PUFFIN"]
    assert it.rows() == [(2, "eu", 1), (3, "eu", 1)]


def test_where_older_snapshots_are_not_kept_small_epochs_need_no_spark_either(place: Make) -> None:
    """Nessie says so by this property."""
    it = version2(place, properties={"gc.enabled": False})
    it.sink.append(it.table, it.latest((1, "eu", False, 1)), it.commit(1))
    it.sink.merge(it.table, few(it, (1, "us", False, 2)), it.key, it.commit(2))
    assert it.rows() == [(1, "us", 2)] and summary(it)[SMALL] == "true"


@pytest.mark.slow  # tests/sinks/lake/test_file_merge.py has quick ones
@pytest.mark.parametrize("seed", SEEDS)
def test_any_mixture_of_ways_gives_the_same_rows(place: Make, seed: int) -> None:
    chance, model = random.Random(seed), dict[int, tuple[Any, ...]]()
    it = version2(place, partition_by="region" if seed % 2 else ())
    for epoch in range(1, 25 if seed else 13):
        rows = []
        for key in chance.sample(range(12), 4):
            deleted, region = chance.random() < 0.3, chance.choice(["eu", "us", "ap"])
            rows.append((key, region, deleted, epoch))
            model.pop(key, None)
            if not deleted:
                model[key] = (key, region, epoch)
        make = chance.choice([few, few, newer, lambda at, *them: at.latest(*them), None])
        if make is None:
            replaced_by_keys(it, *rows)
        else:
            it.sink.merge(it.table, make(it, *rows), it.key, it.commit(epoch))
        after = chance.choice([folded, packed, None, None])
        if after is not None:
            after(it)
        assert it.rows() == sorted(model.values()), f"epoch {epoch}"
