"""Targets behind `transforms`: the judge is what Spark says of the same rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.sinks.conftest import Place, column, iceberg_first
from tests.sinks.conftest import place as place  # a fixture

from penstock.errors import TableError
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.transforms import TransformRule, Transforms
from penstock.secret import Secret
from penstock.sinks import registry
from penstock.sinks.base import ChangeSink, Commit, Fencing, Ours, Readable, TableSink
from penstock.sinks.rows import Newer, Rows
from penstock.spark.transformed_sink import transformed
from penstock.store.folder import StoreFolder
from penstock.store.opening import open_store

Make = Callable[..., Place]
ARROW = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.string())])


def behind(it: Place, tmp_path: Path, *rules: dict[str, Any]) -> Any:
    """The place's sink with these rules in front of it."""
    made = Transforms(TransformRule(tables="shop.*", **rule) for rule in rules)
    key = tmp_path / "key"  # as `secret.lent` lends it
    key.write_text("k" * 16)
    secret = Secret("k" * 16, file=key)
    scratch = StoreFolder(open_store(tmp_path.as_uri()), "scratch")
    return transformed(it.sink, made, it.spark, secret, letters=tmp_path / "letters", scratch=scratch)


def schema(arrow: pa.Schema = ARROW) -> TableSchema:
    return TableSchema(TableId("shop", "orders"), tuple(Column(n, "varchar") for n in arrow.names), ("id",))


def small(rows: Rows) -> Rows:
    """The same rows, which the driver may write itself."""
    batches = rows.frame.toArrow().to_batches()
    return replace(rows, kind=Newer(lambda: iter(batches)))


def read(it: Place, sink: Any) -> list[dict[str, Any]]:
    return sorted((row.asDict() for row in sink.read(it.table).collect()), key=str)


SQL = {"where": "id < 100", "columns": {"upper": "upper(name)"}, "cast": {"price": "decimal(10,2)"}}
REST = {"exclude": ["name"], "rename": {"price": "amount"}}


@iceberg_first
def test_small_and_large_writes_and_the_snapshot_are_transformed_alike(
    place: Make,
    kind: str,
    tmp_path: Path,
    spark: SparkSession,
) -> None:
    it = place(kind, arrow=ARROW)
    sink = behind(it, tmp_path, SQL, REST)
    assert isinstance(sink, TableSink) and isinstance(sink, Readable) and isinstance(sink, Fencing)
    assert not isinstance(sink, ChangeSink)
    sink.create(schema(), ARROW)
    first = it.latest((1, "a", "1.5", False, 1), (2, "b", None, False, 1), (200, "c", "3", False, 1))
    assert sink.append(it.table, first, it.commit(1))
    large = it.latest((2, "bb", "2", False, 2), (3, "c", "7", False, 2), (4, "d", "x", True, 2))
    assert sink.merge(it.table, large, ("id",), it.commit(2))
    assert not sink.merge(it.table, large, ("id",), it.commit(2))
    tiny = it.latest((1, "aa", "9.125", False, 3), (3, "c", "7", True, 3), (201, "z", "1", False, 3))
    assert sink.merge(it.table, small(tiny), ("id",), it.commit(3))
    expected = spark.sql(
        "SELECT id, CAST(price AS DECIMAL(10,2)) amount, upper(name) upper, seq _sequence "
        "FROM VALUES (1L, 'aa', '9.125', 3L), (2L, 'bb', '2', 2L) AS t(id, name, price, seq)"
    )
    assert read(it, sink) == sorted((row.asDict() for row in expected.collect()), key=str)


@iceberg_first
def test_a_row_that_leaves_is_deleted_and_one_that_enters_is_inserted(
    place: Make,
    kind: str,
    tmp_path: Path,
) -> None:
    it = place(kind, arrow=ARROW)
    sink = behind(it, tmp_path, {"where": "price = 'open'"})
    sink.create(schema(), ARROW)
    sink.append(it.table, it.latest((1, "a", "open", False, 1), (2, "b", "done", False, 1)), it.commit(1))
    assert [row["id"] for row in read(it, sink)] == [1]
    for number, make in enumerate((small, lambda rows: rows)):
        states = ("done", "open") if number % 2 == 0 else ("open", None)
        changes = it.latest((1, "a", states[0], False, 2 + number), (2, "b", states[1], False, 2 + number))
        sink.merge(it.table, make(changes), ("id",), it.commit(2 + number))
        assert [row["id"] for row in read(it, sink)] == [2 if number % 2 == 0 else 1]


def test_target_follows_schema_changes_through_the_rules(place: Make, tmp_path: Path) -> None:
    it = place("iceberg", arrow=ARROW)
    sink = behind(it, tmp_path, {"rename": {"name": "label"}, "exclude": ["price"]})
    sink.create(schema(), ARROW)
    sink.append(it.table, it.latest((1, "a", "5", False, 1)), it.commit(1))
    wider = [
        column("id", pa.int64(), "id"), column("name", pa.string(), "name"),
        column("price", pa.int64(), "price"), column("note", pa.string(), default="'n'"),
    ]  # fmt: skip
    assert sink.evolve(it.table, wider, it.commit(2), narrowing="keep")
    it.arrow = pa.schema([one.field for one in wider])
    sink.merge(it.table, it.latest((2, "b", 6, "new", False, 3)), ("id",), it.commit(3))
    assert read(it, sink) == [
        {"id": 1, "label": "a", "note": "n", "_sequence": 1},
        {"id": 2, "label": "b", "note": "new", "_sequence": 3},
    ]
    # The column that was left out gets another name: it would belong to the target now, without old values.
    back = [*wider[:2], column("cost", pa.int64(), "price"), column("note", pa.string(), "note")]
    renamed = behind(it, tmp_path, {"rename": {"name": "label"}})
    with pytest.raises(TableError, match="left out") as caught:
        renamed.evolve(it.table, back, it.commit(4), narrowing="keep")
    assert caught.value.details["read_again"]
    with pytest.raises(TableError, match="names the column `name`"):
        sink.evolve(it.table, [wider[0], wider[2], wider[3]], it.commit(4), narrowing="keep")


def test_a_column_whose_default_would_be_masked_is_read_again(place: Make, tmp_path: Path) -> None:
    it = place("iceberg", arrow=ARROW)
    sink = behind(it, tmp_path, {"python": f"{__name__}:as_it_is"})
    sink.create(schema(), ARROW)
    added = [*[column(n, ARROW.field(n).type, n) for n in ARROW.names], column("x", pa.int64(), default="1")]
    with pytest.raises(TableError, match="default") as caught:
        sink.evolve(it.table, added, it.commit(1), narrowing="keep")
    assert caught.value.details["read_again"]


@pytest.mark.parametrize("make", [small, lambda rows: rows], ids=["driver", "tasks"])
@pytest.mark.parametrize("rule", [{"cast": {"price": "int"}}, {"python": f"{__name__}:as_number"}])
def test_a_row_that_fails_parks_its_table_or_is_listed(
    place: Make,
    tmp_path: Path,
    rule: dict[str, Any],
    make: Callable[[Rows], Rows],
) -> None:
    it = place("iceberg", arrow=ARROW)
    strict, lists = (behind(it, tmp_path, {**rule, "on_error": how}) for how in ("park", "dead_letter"))
    strict.create(schema(), ARROW)
    strict.append(it.table, make(it.latest(*[(n, "a", str(n), False, 1) for n in range(5)])), it.commit(1))
    bad = make(it.latest((0, "z", "7", False, 2), (1, "b", "secret", False, 2), (9, "n", "8", False, 2)))
    with pytest.raises(TableError, match="could not be transformed") as caught:
        strict.merge(it.table, bad, ("id",), it.commit(2))
    assert "secret" not in str(caught.value)
    for _ in range(2):
        lists.merge(it.table, bad, ("id",), it.commit(2))
    assert {row["id"]: row["price"] for row in read(it, lists)} == {0: 7, 2: 2, 3: 3, 4: 4, 9: 8}
    [file] = (tmp_path / "letters").glob("*/*.jsonl")
    [letter] = [json.loads(line) for line in file.read_text().splitlines()]
    assert not [one for one in tmp_path.glob("scratch/**/*") if one.is_file()], "removed with the commit"
    assert {**letter, "reason": ""} == {
        "table": "shop.orders", "key": {"id": 1}, "reason": "", "offset": 2, "epoch": 2,
    }  # fmt: skip


def test_a_row_of_a_snapshot_or_a_change_log_is_listed_with_its_key(place: Make, tmp_path: Path) -> None:
    rule = {"cast": {"price": "int"}, "rename": {"id": "number"}, "on_error": "dead_letter"}
    bad = (7, "a", "secret")
    for kind in ("iceberg", "parquet"):
        it = place(kind, arrow=ARROW)
        (tmp_path / kind).mkdir()
        sink = behind(it, tmp_path / kind, rule)
        sink.create(schema(), ARROW)
        for number in (1, 2):
            if number == 2:  # the next start
                sink = behind(it, tmp_path / kind, rule)
                sink.knows(schema())
            if kind == "iceberg":
                sink.append(it.table, it.latest((*bad, False, 1)), it.commit(number))
            else:
                sink.write_changes(it.table, it.changelog((*bad, "read", 1)), it.commit(number))
            [file] = (tmp_path / kind / "letters").glob("*/*.jsonl")
            assert json.loads(file.read_text())["key"] == {"id": 7}, (kind, number)
            file.unlink()


def test_a_change_log_has_a_row_that_was_repaired(place: Make, tmp_path: Path) -> None:
    it = place("parquet", arrow=ARROW)
    sink = behind(it, tmp_path, {"cast": {"price": "int"}, "on_error": "dead_letter"})
    sink.create(schema(), ARROW)
    changes = it.changelog(
        (1, "a", "1", "insert", 1),
        (1, "a", "1", "update_preimage", 2), (1, "a", "bad", "update_postimage", 2),
        (1, "a", "bad", "update_preimage", 3), (1, "a", "worse", "update_postimage", 3),
        (1, "a", "worse", "update_preimage", 4), (1, "a", "4", "update_postimage", 4),
    )  # fmt: skip
    assert sink.write_changes(it.table, changes, it.commit(1))
    found = [(row["_sequence"], row["_change_type"], row["price"]) for row in sink.read(it.table).collect()]
    assert sorted(found) == [(1, "insert", 1), (4, "insert", 4)]
    [file] = (tmp_path / "letters").glob("*/*.jsonl")
    listed = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(one["offset"], one["change"]) for one in listed] == [
        (2, "update_postimage"), (3, "update_preimage"), (3, "update_postimage"), (4, "update_preimage"),
    ]  # fmt: skip


def test_a_sink_of_which_nothing_remains_follows_schema_changes_after_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    inner: Any = registry.open_sink(registry.kind("python").example(tmp_path), spark, "p")
    rule = TransformRule(tables="shop.*", rename={"id": "number"}, columns={"upper": "upper(name)"})
    secret = Secret("k" * 16)
    sink = transformed(inner, Transforms([rule]), spark, secret, letters=tmp_path / "letters")
    wider = [*[column(one.name, one.type, one.name) for one in ARROW], column("more", pa.int64())]
    assert sink.evolve(schema().table, wider, Commit("p", 2), narrowing="keep")
    found = sink.open(schema().table)
    assert isinstance(found, Ours) and found.columns == ("number", "name", "price", "more", "upper")


def test_a_change_log_has_the_changes_of_the_rows_that_match(place: Make, tmp_path: Path) -> None:
    it = place("parquet", arrow=ARROW, config={"before_images": False})
    sink = behind(it, tmp_path, {"where": "price = 'open'", "hash": ["id"], "select": ["id", "price"]})
    assert isinstance(sink, ChangeSink) and isinstance(sink, Readable) and not isinstance(sink, TableSink)
    assert sink.before_images
    sink.create(schema(), ARROW)
    changes = it.changelog(
        (1, "a", "open", "insert", 1), (2, "b", "done", "insert", 2),
        (1, "a", "open", "update_preimage", 3), (1, "a", "done", "update_postimage", 3),
        (2, "b", "done", "update_preimage", 4), (2, "b", "open", "update_postimage", 4),
        (2, "b", "open", "update_preimage", 5), (2, "c", "open", "update_postimage", 5),
    )  # fmt: skip
    assert sink.write_changes(it.table, changes, it.commit(1))
    found = sorted((row["_sequence"], row["_change_type"]) for row in sink.read(it.table).collect())
    assert found == [(1, "insert"), (3, "delete"), (4, "insert"), (5, "update_postimage")]


def test_the_target_may_have_another_name(place: Make, tmp_path: Path) -> None:
    it = place("iceberg", arrow=ARROW)
    sink = behind(it, tmp_path, {"to": "{database}_x.{table}_copy"})
    sink.create(schema(), ARROW)
    sink.append(it.table, it.latest((1, "a", "5", False, 1)), it.commit(1))
    assert [row["id"] for row in it.sink.read(TableId("shop_x", "orders_copy")).collect()] == [1]
    found = sink.open(it.table)
    assert isinstance(found, Ours) and found.last_commit == it.commit(1)
    assert sink.identity(it.table) is None


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("rand()", "depends on more than the row"), ("current_timestamp()", "depends on more than the row"),
        ("(SELECT 1)", "depends on more than the row"), ("sum(id) OVER ()", "not computed from one row"),
        ("count(*)", "not computed from one row"), ("nothing", "Spark refuses"), ("id +", "Spark refuses"),
    ],
)  # fmt: skip
def test_sql_that_is_no_function_of_the_row_is_refused(
    place: Make,
    tmp_path: Path,
    sql: str,
    why: str,
) -> None:
    with pytest.raises(TableError, match=why):
        behind(place("iceberg", arrow=ARROW), tmp_path, {"columns": {"x": sql}}).fits(schema(), ARROW)


@pytest.mark.parametrize("condition", ["id", "NULL", "name"])
def test_a_where_that_is_no_condition_is_refused(place: Make, tmp_path: Path, condition: str) -> None:
    with pytest.raises(TableError, match="no condition"):
        behind(place("iceberg", arrow=ARROW), tmp_path, {"where": condition}).fits(schema(), ARROW)


# functions that rules name --------------------------------------------------------------------------------


def as_it_is(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def as_number(batch: pa.RecordBatch) -> pa.RecordBatch:
    number = batch.schema.get_field_index("price")
    return batch.set_column(number, "price", batch.column(number).cast(pa.int32()))
