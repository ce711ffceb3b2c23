"""Targets that are written to a branch, for write-audit-publish. Spark's own reading judges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.conftest import Place, column
from tests.sinks.lake.iceberg.test_shaping import shaped
from tests.sinks.lake.iceberg.test_small_commit import few, folded, iceberg, target
from tests.sinks.lake.test_file_merge import newer
from tests.sinks.lake.test_shards import Merged

from penstock.errors import ConfigError
from penstock.model.schema import TableId
from penstock.sinks.lake.iceberg import expire
from penstock.sinks.lake.iceberg.branch import OnBranch
from penstock.sinks.lake.iceberg.small_commit import SMALL

Make = Callable[..., Place]

ARROW = pa.schema([("id", pa.int64()), ("name", pa.string())])


def on_branch(place: Make, **options: Any) -> Place:
    it = shaped(place, arrow=ARROW, branch="audit", **options).create()
    assert isinstance(target(it), OnBranch)
    return it


def main(it: Place) -> list[tuple[Any, ...]]:
    found = it.spark.sql(f"SELECT * FROM {it.sink.name(it.table)}").collect()
    return sorted(tuple(row) for row in found)


def test_small_files_are_merged_before_anything_is_published(place: Make) -> None:
    it = on_branch(place)
    for number in range(4):
        it.sink.append(it.table, it.latest((number, "a", False, number)), it.commit(number + 1))
    done = it.sink.compact(it.table)
    assert (done.before, done.after) == (4, 1)
    assert len(it.rows()) == 4 and main(it) == []
    publish(it)
    assert main(it) == it.rows()


def publish(it: Place) -> None:
    catalog, *rest = it.sink.name(it.table).replace("`", "").split(".")
    it.spark.sql(f"CALL {catalog}.system.fast_forward('{'.'.join(rest)}', 'main', 'audit')")


def summary(it: Place) -> dict[str, str]:
    found = target(it).currentSnapshot().summary()
    return {str(name): str(found[name]) for name in found}


def test_every_kind_of_write_goes_to_the_branch_until_it_is_published(place: Make) -> None:
    it = on_branch(place, partition_by="bucket(2, id)")
    it.sink.append(it.table, it.latest((1, "a", False, 1), (2, "b", False, 1)), it.commit(1))
    assert main(it) == [] and it.rows() == [(1, "a", 1), (2, "b", 1)]
    publish(it)
    assert main(it) == it.rows()
    published = main(it)
    it.sink.merge(it.table, few(it, (1, "A", False, 2), (3, "c", False, 3)), it.key, it.commit(2))
    assert summary(it)[SMALL] == "true"
    it.sink.merge(it.table, newer(it, (2, "B", False, 4)), it.key, it.commit(3))
    assert "spark.app.id" not in summary(it) and int(summary(it)["added-dvs"]) == 1
    it.sink.merge(it.table, it.latest((4, "d", False, 5)), it.key, it.commit(4))
    assert "spark.app.id" in summary(it), "Spark's MERGE"
    assert folded(it) or summary(it)["total-equality-deletes"] == "0"
    it.sink.delete_older(it.table, 3, it.commit(5))
    expected = [(2, "B", 4), (3, "c", 3), (4, "d", 5)]
    assert it.rows() == expected and main(it) == published
    done = it.sink.compact(it.table)
    assert done.before > 2 >= done.after, "one file for each partition"
    assert it.rows() == expected and main(it) == published, "main is maintained by nobody"
    version = it.sink.hold(it.table)
    it.sink.truncate(it.table, it.commit(6), sequence=9)
    assert it.rows() == [] and it.rows(version) == expected and main(it) == published
    assert it.sink.open(it.table).last_commit == it.commit(6)
    publish(it)
    assert main(it) == []


def test_a_commit_is_found_on_the_branch_whatever_happens_to_it(place: Make) -> None:
    it = on_branch(place)
    rows = few(it, (1, "a", False, 1))
    assert it.sink.merge(it.table, rows, it.key, it.commit(1))
    assert not it.sink.merge(it.table, rows, it.key, it.commit(1))
    publish(it)
    name = it.sink.name(it.table)
    it.spark.sql(f"ALTER TABLE {name} DROP BRANCH audit")
    assert it.sink.open(it.table).last_commit == it.commit(1)
    assert not it.sink.merge(it.table, rows, it.key, it.commit(1))
    assert it.sink.merge(it.table, few(it, (2, "b", False, 2)), it.key, it.commit(2))
    assert main(it) == [(1, "a", 1)] and it.rows() == [(1, "a", 1), (2, "b", 2)]
    it.spark.sql(f"ALTER TABLE {name} DROP BRANCH audit")
    assert it.sink.open(it.table).last_commit == it.commit(1), "what was not published is gone, and it shows"


def test_columns_change_on_the_branch_and_the_table(place: Make) -> None:
    it = on_branch(place)
    it.sink.append(it.table, it.latest((1, "7", False, 1)), it.commit(1))
    publish(it)
    wanted = [column("id", pa.int64(), "id"), column("n", pa.int32(), "name"), column("x", pa.string())]
    assert it.evolve(2, *wanted) and not it.evolve(2, *wanted)
    assert it.rows() == [(1, 7, None, 1)]
    it.sink.merge(it.table, it.latest((2, 8, "x", False, 3)), it.key, it.commit(3))
    assert it.rows() == [(1, 7, None, 1), (2, 8, "x", 3)]
    assert main(it) == [(1, None, None, 1)], "a converted column is NULL in main until the next publishing"
    publish(it)
    assert main(it) == it.rows()


@pytest.mark.parametrize("snapshots_max", [500, 4])
def test_expiry_keeps_what_a_fast_forward_needs(place: Make, snapshots_max: int) -> None:
    limits = {"snapshots_keep": 1, "snapshots_age": 0, "files_age": 0, "snapshots_max": snapshots_max}
    it = on_branch(place)
    it.sink.merge(it.table, few(it, (0, "a", False, 1)), it.key, it.commit(1))
    publish(it)
    for number in range(2, 10):
        it.sink.merge(it.table, few(it, (number % 3, f"v{number}", False, number)), it.key, it.commit(number))
    before = it.rows()
    options = iceberg(it)._options.model_copy(update=limits)
    expire.expire(iceberg(it)._classes, target(it), options)
    expire.expire(iceberg(it)._classes, target(it), options)
    assert it.rows() == before and main(it) == [(0, "a", 1)]
    left = it.spark.sql(f"SELECT count(*) FROM {it.sink.name(it.table)}.snapshots").collect()[0][0]
    assert left == (9 if snapshots_max == 500 else 5), "main's, and those of the branch since"
    if snapshots_max == 500:
        publish(it)
    else:
        catalog, *rest = it.sink.name(it.table).replace("`", "").split(".")
        call = f"CALL {catalog}.system.set_current_snapshot(table => '{'.'.join(rest)}', ref => 'audit')"
        it.spark.sql(call)
    assert main(it) == before


def test_a_session_that_diverts_what_spark_writes_is_refused(place: Make) -> None:
    it = place("iceberg")
    it.sink.check()
    it.spark.conf.set("spark.wap.branch", "audit")
    try:
        with pytest.raises(ConfigError, match=r"spark\.wap\.branch") as refused:
            it.sink.check()
    finally:
        it.spark.conf.unset("spark.wap.branch")
    assert "`branch` in `sink.tables`" in refused.value.hint


def test_a_shard_that_is_dropped_takes_its_rows_from_the_branch(place: Make) -> None:
    config = {"tables": [{"match": "shop.*", "branch": "audit"}]}
    it = Merged(place("iceberg", config=config))
    one, two = it.shard(1).create(), it.shard(2).create()
    one.append(1, (1, False, 10))
    two.append(1, (1, False, 10))
    one.sink.drop(one.table)
    one.create()
    one.append(9, (2, False, 90))
    name = it.place.sink.name(TableId("shop", "orders"))
    found = it.place.spark.sql(f"SELECT _shard, id FROM {name}.branch_audit").collect()
    assert sorted(map(tuple, found)) == [("shop_1.orders_1", 2), ("shop_2.orders_2", 1)]
