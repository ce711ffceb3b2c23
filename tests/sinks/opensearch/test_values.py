"""Ids, fields and mappings of documents."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.types import DecimalType, DoubleType, IntegerType, LongType, StringType

from penstock.model.schema import TableId
from penstock.sinks.names import index_name
from penstock.sinks.opensearch.evolve import widens
from penstock.sinks.opensearch.options import OpenSearchOptions
from penstock.sinks.opensearch.values import ID_BYTES_MAX, documents, field_name, ids, mapped

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=64)


def ids_of(*keys: tuple[str | None, str | None]) -> list[str]:
    columns = [pa.array(column, pa.string()) for column in zip(*keys, strict=True)]
    return ids(pa.RecordBatch.from_arrays(columns, ["a", "b"]), ["a", "b"])


@given(st.lists(st.tuples(names | st.none(), names | st.none()), min_size=2, max_size=2, unique=True))
@example([("a:b", "c"), ("a", "b:c")])
@example([("x" * 600, "a"), ("x" * 600, "b")])
@example([("%-", "a"), (None, "a")])
@example([("%.", "a"), ("", "a")])
def test_different_keys_have_different_ids_of_a_length_that_the_server_takes(
    two: list[tuple[str | None, str | None]],
) -> None:
    one, other = ids_of(*two)
    assert one != other
    assert max(len(one.encode()), len(other.encode())) <= ID_BYTES_MAX


@given(st.lists(names, min_size=2, max_size=2, unique=True))
@example(["", "%."])
@example(["", "%25."])
def test_a_key_of_one_text_has_an_id_that_is_not_empty(two: list[str]) -> None:
    one, other = ids(pa.RecordBatch.from_arrays([pa.array(two)], ["a"]), ["a"])
    assert one and other and one != other


@given(st.lists(names, min_size=2, max_size=2, unique=True))
@example(["_id", "%5Fid"])
@example(["a.b", "a%2Eb"])
def test_different_columns_have_different_fields_without_points(two: list[str]) -> None:
    assert field_name(two[0]) != field_name(two[1])
    assert "." not in field_name(two[0]) and field_name(two[0]) != "_id"


@given(names)
@example("..")
@example("_x")
@example("日" * 64)
@example("İ")
def test_an_index_has_a_name_that_the_server_takes(name: str) -> None:
    made = OpenSearchOptions(type="opensearch", url="http://h:1").alias(TableId(name, name))
    assert made[0] not in "_-+." and not set(made) & set('\\/*?"<>| ,#:')
    assert len(made.encode()) <= 190
    assert index_name("Shop.Orders") == "shop.orders"


def test_values_keep_every_digit() -> None:
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)
    batch = pa.RecordBatch.from_pydict(
        {
            "d": pa.array([Decimal("1.50")], pa.decimal128(10, 2)),
            "at": pa.array([when], pa.timestamp("us")),
            "seen": pa.array([when], pa.timestamp("us", "UTC")),
            "bytes": pa.array([b"\x00\xff"]),
            "none": pa.array([None], pa.string()),
            "_sequence": pa.array([7]),
        }
    )
    assert documents(batch, ["d", "at", "seen", "bytes", "none"]) == [
        {
            "d": "1.50",
            "at": "2026-01-02T03:04:05.678901",
            "seen": "2026-01-02T03:04:05.678901Z",
            "bytes": "AP8=",
            "_sequence": 7,
        }
    ]


def test_documents_are_written_again_only_if_their_values_or_mappings_change() -> None:
    assert widens(IntegerType(), LongType())
    assert widens(DecimalType(19, 2), DecimalType(30, 2))
    assert not widens(DecimalType(10, 2), DecimalType(12, 4)), "1.50 becomes 1.5000"
    assert not widens(IntegerType(), DecimalType(10, 0)), "a number becomes a text"
    assert not widens(StringType(), DoubleType())
    assert mapped(DecimalType(20, 0)) == {"type": "double", "ignore_malformed": True}
