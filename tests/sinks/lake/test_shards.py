"""Several source tables in one target: the same tests over Iceberg and Delta.

Shards are written as pipelines write them; the judge reads the target as a whole, without the sink.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark import inheritable_thread_target
from tests.sinks.conftest import Place, column, iceberg_first

from penstock.errors import TableError
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.shards import ShardRule
from penstock.sinks.base import Commit, EvolvedColumn, Foreign, Missing, Ours, TableSink
from penstock.sinks.lake.delta.location import hadoop_url
from penstock.sinks.registry import open_sink
from penstock.sinks.rows import Incomplete, Rows

Make = Callable[..., Place]
ID = ("id", pa.int32())
RULE = ShardRule("shop_*.orders_*", "shop.orders")


@dataclass
class Shard:
    """One source table; `place` makes its frames."""

    place: Place
    sink: TableSink
    table: TableId
    fields: list[tuple[str, pa.DataType]]
    key: tuple[str, ...] = ("id",)

    def create(self) -> Shard:
        columns = tuple(Column(name, "varchar") for name, _ in self.fields)
        self.sink.create(TableSchema(self.table, columns, self.key), pa.schema(self.fields))
        return self

    def commit(self, epoch: int, step: int = 0) -> Commit:
        return Commit(self.place.pipeline, epoch, step)

    def rows(self, *rows: tuple[Any, ...]) -> Rows:
        self.place.arrow = pa.schema(self.fields)
        return self.place.latest(*rows)

    def append(self, epoch: int, *rows: tuple[Any, ...]) -> bool:
        return self.sink.append(self.table, self.rows(*rows), self.commit(epoch))

    def merge(self, epoch: int, *rows: tuple[Any, ...]) -> bool:
        return self.sink.merge(self.table, self.rows(*rows), self.key, self.commit(epoch))

    def evolve(self, epoch: int, *columns: EvolvedColumn) -> bool:
        done = self.sink.evolve(self.table, columns, self.commit(epoch), narrowing="keep")
        self.fields = [(one.field.name, one.field.type) for one in columns]
        return done

    def last_commit(self) -> Commit | None:
        found = self.sink.open(self.table)
        assert isinstance(found, Ours), found
        return found.last_commit


@dataclass
class Merged:
    place: Place
    rule: ShardRule = RULE
    shards: list[Shard] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sink = self.anew()

    def anew(self) -> TableSink:
        sink = open_sink(self.place.config, self.place.spark, self.place.pipeline, [self.rule])
        assert isinstance(sink, TableSink)
        return sink

    def shard(self, number: int, *fields: tuple[str, pa.DataType], key: tuple[str, ...] = ("id",)) -> Shard:
        name = TableId(f"shop_{number}", f"orders_{number}")
        return Shard(self.place, self.sink, name, [ID, *fields], key)

    def all(self, *columns: str) -> list[tuple[Any, ...]]:
        """(number of the shard, columns) of all rows of the target."""
        frame = self.whole().select("_shard", *[f"`{name}`" for name in columns])
        rows = [(int(row[0].rpartition("_")[2]), *tuple(row)[1:]) for row in frame.collect()]
        return sorted(rows, key=lambda row: tuple((value is not None, value) for value in row))

    def whole(self) -> Any:
        """The target, read by Spark alone."""
        config, spark = self.place.config, self.place.spark
        namespace = config.namespace.replace("{database}", "shop")
        if config.type == "iceberg":
            return spark.newSession().sql(f"SELECT * FROM lake.{namespace}.orders")
        return spark.read.format("delta").load(hadoop_url(f"{config.path}/{namespace}/orders"))

    def columns(self) -> dict[str, str]:
        return {one.name: one.dataType.simpleString() for one in self.whole().schema}


@pytest.fixture
def merged(place: Make) -> Callable[..., Merged]:
    return lambda kind, **options: Merged(place(kind), **options)


NAME = ("name", pa.string())


@iceberg_first
def test_equal_keys_of_two_shards_are_rows_of_their_own_in_every_write(merged: Any, kind: str) -> None:
    it = merged(kind)
    one, two = it.shard(1, NAME).create(), it.shard(2, NAME).create()
    assert one.append(1, (1, "a", False, 10), (2, "b", False, 10), (3, "c", False, 10))
    assert two.append(1, (1, "A", False, 10), (2, "B", False, 10))
    assert one.merge(2, (1, None, True, 20), (2, "bb", False, 20), (4, "d", False, 20))
    assert it.all("id", "name") == [(1, 2, "bb"), (1, 3, "c"), (1, 4, "d"), (2, 1, "A"), (2, 2, "B")]
    assert two.merge(2, (1, "AA", False, 20), (3, "C", False, 20))
    two.sink.delete_older(two.table, 15, two.commit(3))
    assert it.all("id", "name") == [
        (1, 2, "bb"), (1, 3, "c"), (1, 4, "d"), (2, 1, "AA"), (2, 3, "C"),
    ]  # fmt: skip
    one.sink.truncate(one.table, one.commit(4), sequence=40)
    assert it.all("id", "name") == [(2, 1, "AA"), (2, 3, "C")]
    assert sorted(tuple(row) for row in two.sink.read(two.table).collect()) == [(1, "AA", 20), (3, "C", 20)]
    assert one.sink.read(one.table).collect() == []


@iceberg_first
def test_what_one_shard_has_committed_says_nothing_of_the_others(merged: Any, kind: str) -> None:
    it = merged(kind)
    one, two = it.shard(1, NAME).create(), it.shard(2, NAME).create()
    assert one.append(7, (1, "a", False, 10))
    assert two.last_commit() is None
    # killed here: the epoch is done again, by another process
    it.sink = it.anew()
    one.sink = two.sink = it.sink
    assert not one.append(7, (1, "a", False, 10))
    assert two.append(7, (1, "A", False, 10))
    assert not two.append(7, (1, "A", False, 10))
    assert it.all("id", "name") == [(1, 1, "a"), (2, 1, "A")]
    assert two.merge(8, (1, "AA", False, 20))
    assert not two.merge(8, (1, "never", False, 30))
    assert two.merge(9)  # no row
    assert (one.last_commit(), two.last_commit()) == (
        Commit(it.place.pipeline, 7, 0, str(one.table)),
        Commit(it.place.pipeline, 9, 0, str(two.table)),
    )
    assert it.all("id", "name") == [(1, 1, "a"), (2, 1, "AA")]


@iceberg_first
def test_columns_are_the_union_with_types_that_hold_all_values(merged: Any, kind: str) -> None:
    it = merged(kind)
    one = it.shard(1, ("n", pa.int32()), ("d", pa.decimal128(6, 2)), ("f", pa.float32()), NAME).create()
    assert one.append(1, (1, 7, Decimal("1.25"), 0.1, "x", False, 10))
    two = it.shard(2, ("Name", pa.string()), ("n", pa.int64()), ("d", pa.decimal128(9, 4)),
                   ("f", pa.float64()), ("more", pa.string())).create()  # fmt: skip
    assert two.append(1, (1, "y", 2**60, Decimal("12345.6789"), 0.1, "m", False, 10))
    assert one.merge(2, (2, 8, Decimal("9999.99"), 0.5, "z", False, 20))
    assert it.columns() == {
        "id": "int", "n": "bigint", "d": "decimal(9,4)", "f": "double", "name": "string", "more": "string",
        "_shard": "string", "_sequence": "bigint",
    }  # fmt: skip
    single = 0.10000000149011612
    assert it.all("id", "n", "d", "f", "name", "more") == [
        (1, 1, 7, Decimal("1.2500"), single, "x", None),
        (1, 2, 8, Decimal("9999.9900"), 0.5, "z", None),
        (2, 1, 2**60, Decimal("12345.6789"), 0.1, "y", "m"),
    ]
    assert it.sink.read(two.table).columns == ["id", "Name", "n", "d", "f", "more", "_sequence"]


@iceberg_first
def test_a_type_or_a_key_that_does_not_go_with_the_others_stops_that_shard_and_changes_nothing(
    merged: Any, kind: str
) -> None:
    it = merged(kind)
    one = it.shard(1, ("v", pa.int32())).create()
    one.append(1, (1, 5, False, 10))
    columns = it.columns()
    with pytest.raises(TableError, match="no type holds both"):
        it.shard(2, ("v", pa.string())).create()
    with pytest.raises(TableError, match=r"The key of shop_3.orders_3 is \(v\)"):
        it.shard(3, ("v", pa.int32()), key=("v",)).create()
    with pytest.raises(TableError, match="a column `_shard`"):
        it.shard(4, ("_Shard", pa.string())).create()
    assert it.sink.open(TableId("shop_2", "orders_2")) == Missing()
    fine = it.shard(5, ("v", pa.int32())).create()
    fine.append(1, (1, 6, False, 10))
    with pytest.raises(TableError, match="no type holds both"):
        fine.evolve(2, column("id", pa.int32(), "id"), column("v", pa.string(), "v"))
    with pytest.raises(TableError, match=r"The key of shop_5\.orders_5"):
        fine.sink.merge(fine.table, fine.rows((1, 7, False, 20)), ("v",), fine.commit(3))
    assert (it.columns(), it.all("id", "v")) == (columns, [(1, 1, 5), (5, 1, 6)])


@iceberg_first
def test_a_column_added_or_dropped_in_one_shard_leaves_the_rows_of_the_others(merged: Any, kind: str) -> None:
    it = merged(kind)
    one, two = (it.shard(n, NAME, ("v", pa.int32())).create() for n in (1, 2))
    for shard in (one, two):
        shard.append(1, (1, "a", 5, False, 10))
    kept = [column("id", pa.int32(), "id"), column("name", pa.string(), "name")]
    assert one.evolve(2, *kept, column("c", pa.int32(), default="7"))
    assert not one.evolve(2, *kept, column("c", pa.int32(), default="8"))
    assert it.all("id", "name", "v", "c") == [(1, 1, "a", None, 7), (2, 1, "a", 5, None)]
    assert one.merge(3, (1, "b", 8, False, 30), (2, "c", None, False, 30))
    assert two.merge(3, (1, "B", 6, False, 30), (2, "C", None, False, 30))
    assert two.evolve(4, *kept, column("v", pa.int64(), "v"), column("c", pa.int32(), default="9"))
    assert it.all("id", "name", "v", "c") == [
        (1, 1, "b", None, 8), (1, 2, "c", None, None), (2, 1, "B", 6, 9), (2, 2, "C", None, 9),
    ]  # fmt: skip
    before = list(two.fields)
    assert two.merge(5, (3, "D", 1, 1, False, 50))
    two.sink.delete_older(two.table, 45, two.commit(6))
    assert two.evolve(7, *kept, column("c", pa.int32(), "c"))  # the last one that has v
    # killed here: the epochs are done again, with the columns they had
    two.fields, after = before, two.fields
    assert not two.append(1, (1, "a", 5, 1, False, 10)) and not two.merge(5, (3, "D", 1, 1, False, 50))
    two.fields = after
    assert list(it.columns()) == ["id", "name", "c", "_shard", "_sequence"]
    assert it.all("id", "c") == [(1, 1, 8), (1, 2, None), (2, 3, 1)]


@iceberg_first
def test_a_column_of_one_shard_alone_is_renamed_and_a_shared_one_has_the_shard_read_again(
    merged: Any, kind: str
) -> None:
    it = merged(kind)
    one, two = it.shard(1, NAME, ("own", pa.int32())).create(), it.shard(2, NAME).create()
    one.append(1, (1, "a", 5, False, 10))
    two.append(1, (1, "A", False, 10))
    same = column("id", pa.int32(), "id")
    assert one.evolve(2, same, column("name", pa.string(), "name"), column("mine", pa.int32(), "own"))
    assert it.all("id", "name", "mine") == [(1, 1, "a", 5), (2, 1, "A", None)]
    with pytest.raises(TableError, match="other shards have one of the two") as caught:
        two.evolve(3, same, column("title", pa.string(), "name"))
    assert caught.value.details["read_again"]
    # read again: its rows are all written anew, and those left are removed
    again = EvolvedColumn(pa.field("title", pa.string()), "title", refills=True)
    assert two.evolve(4, same, again)
    assert two.merge(5, (1, "B", False, 50))
    assert it.all("id", "name", "mine", "title") == [(1, 1, "a", 5, None), (2, 1, None, None, "B")]


@iceberg_first
def test_a_dropped_shard_takes_its_rows_and_columns_and_the_last_one_the_target(
    merged: Any, kind: str
) -> None:
    it = merged(kind)
    one, two = it.shard(1, NAME, ("own", pa.int32())).create(), it.shard(2, NAME).create()
    one.append(1, (1, "a", 5, False, 10))
    two.append(1, (1, "A", False, 10))
    one.sink.drop(one.table)
    one.sink.drop(one.table)
    assert it.sink.open(one.table) == Missing()
    assert (it.all("id", "name"), "own" in it.columns()) == ([(2, 1, "A")], False)
    one.create()
    assert one.append(9, (1, "again", 6, False, 90))
    assert it.all("id", "name", "own") == [(1, 1, "again", 6), (2, 1, "A", None)]
    one.sink.drop(one.table)
    two.sink.drop(two.table)
    assert it.sink.open(two.table) == Missing()
    two.create()
    assert it.all("id") == []


@iceberg_first
def test_shards_written_side_by_side_are_all_there(merged: Any, kind: str) -> None:
    it = merged(kind)
    shards = [it.shard(n, NAME, (f"c{n}", pa.int32())) for n in range(4)]
    frames = [shard.rows((1, "a", n, False, 10), (2, "b", n, False, 10)) for n, shard in enumerate(shards)]

    def live(number: int) -> None:
        shard = shards[number].create()
        shard.sink.append(shard.table, frames[number], shard.commit(1))
        shard.sink.merge(shard.table, frames[number], shard.key, shard.commit(2))

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(inheritable_thread_target(live), n) for n in range(4)]:
            future.result()
    assert it.all("id") == [(n, i) for n in range(4) for i in (1, 2)]
    assert [shard.last_commit().epoch for shard in shards] == [2, 2, 2, 2]


@iceberg_first
def test_rows_that_lack_columns_are_completed_by_rows_of_their_own_shard(merged: Any, kind: str) -> None:
    it = merged(kind)
    one, two = (it.shard(n, NAME, ("v", pa.int32())).create() for n in (1, 2))
    one.append(1, (1, "a", 5, False, 10))
    two.append(1, (2, "B", 6, False, 10))
    places = {"id": 0, "name": 1, "v": 2}

    def partial(shard: Shard, key: int, name: str) -> Rows:
        from pyspark.sql.functions import lit

        rows = shard.rows((key, name, None, False, 20))
        return Rows(
            rows.frame.withColumn("_penstock_present", lit("110")),
            Incomplete(places, target_is_complete=True),
        )

    assert one.sink.merge(one.table, partial(one, 1, "b"), one.key, one.commit(2))
    assert it.all("id", "name", "v") == [(1, 1, "b", 5), (2, 2, "B", 6)]
    with pytest.raises(TableError, match="The target has no such row"):
        one.sink.merge(one.table, partial(one, 2, "c"), one.key, one.commit(3))


@iceberg_first
def test_a_target_is_of_one_table_or_of_shards_and_never_becomes_the_other(
    merged: Any, place: Make, kind: str
) -> None:
    it = merged(kind)
    assert isinstance(it.sink.open(TableId("shop", "orders")), Foreign)
    it.shard(1, NAME).create()
    plain = open_sink(it.place.config, it.place.spark, it.place.pipeline)
    assert isinstance(plain.open(TableId("shop", "orders")), Foreign)
    other = open_sink(
        it.place.config, it.place.spark, it.place.pipeline, [ShardRule("shop_*.*", "shop.orders", "origin")]
    )
    assert isinstance(other.open(TableId("shop_1", "orders_1")), Foreign)
    single = place(kind).create()
    sharded = open_sink(single.config, single.spark, single.pipeline, [RULE])
    assert isinstance(sharded.open(TableId("shop_1", "orders_1")), Foreign)
