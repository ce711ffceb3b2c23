"""The union of shards' columns, without Spark: which type holds what, and that nobody touches another's."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.errors import TableError
from penstock.model.schema import TableId
from penstock.sinks.base import EvolvedColumn
from penstock.sinks.lake.union import Claim, Joined, agree_on_key, common_type, joined
from penstock.sinks.spark_sql import spark_type

A, B = TableId("shop_1", "orders"), TableId("shop_2", "orders")

decimals = st.integers(1, 38).flatmap(
    lambda precision: st.builds(DecimalType, st.just(precision), st.integers(0, precision))
)
numbers: st.SearchStrategy[DataType] = decimals | st.sampled_from(
    [ByteType(), ShortType(), IntegerType(), LongType(), FloatType(), DoubleType()]
)
others = [StringType(), BooleanType(), DateType(), TimestampType(), TimestampNTZType()]
kinds = numbers | st.sampled_from(others)


def extremes(kind: DataType) -> pa.Array:
    """The greatest values of a type, and one that has all its digits."""
    arrow = to_arrow_type(kind)
    if pa.types.is_decimal(arrow):
        text = (
            ["9" * (arrow.precision - arrow.scale) + "." + "9" * arrow.scale]
            if arrow.scale
            else ["9" * arrow.precision]
        )
        return pa.array(text).cast(arrow)
    if pa.types.is_integer(arrow):
        top = 2 ** (arrow.bit_width - 1)
        return pa.array([top - 1, -top, 1], arrow)
    top = 3.4028234663852886e38 if pa.types.is_float32(arrow) else 1.7976931348623157e308
    return pa.array([top, -top, 0.1], arrow)


@settings(deadline=None)
@given(numbers, numbers)
def test_the_common_type_holds_every_value_of_both_exactly(one: DataType, other: DataType) -> None:
    wide = common_type(one, other)
    assert wide == common_type(other, one)
    if wide is None:
        return
    for kind in (one, other):
        values = extremes(kind)
        there = values.cast(to_arrow_type(wide), safe=True)
        assert there.cast(values.type, safe=True).equals(values)


@given(kinds)
def test_a_type_has_itself_in_common(kind: DataType) -> None:
    assert common_type(kind, kind) == kind


@given(kinds, kinds, kinds)
def test_the_order_in_which_shards_come_is_no_matter(one: DataType, two: DataType, three: DataType) -> None:
    def fold(*order: DataType) -> DataType | None:
        found: DataType | None = order[0]
        for kind in order[1:]:
            found = common_type(found, kind) if found is not None else None
        return found

    first, second = fold(one, two, three), fold(three, two, one)
    if first is not None and second is not None:
        assert first == second


@pytest.mark.parametrize(
    ("one", "other", "wide"),
    [
        (IntegerType(), LongType(), LongType()),
        (LongType(), DecimalType(20, 0), DecimalType(20, 0)),  # BIGINT and BIGINT UNSIGNED
        (IntegerType(), DecimalType(10, 2), DecimalType(12, 2)),
        (DecimalType(10, 2), DecimalType(8, 4), DecimalType(12, 4)),
        (FloatType(), DoubleType(), DoubleType()),
        (IntegerType(), FloatType(), DoubleType()),
        (LongType(), DoubleType(), None),  # 2^53 + 1 is no double
        (DecimalType(10, 2), DoubleType(), None),
        (DecimalType(38, 0), DecimalType(10, 10), None),  # 48 digits
        (IntegerType(), StringType(), None),
        (TimestampType(), TimestampNTZType(), None),  # TIMESTAMP and DATETIME
        (DateType(), TimestampNTZType(), None),
        (BooleanType(), IntegerType(), None),
    ],
)
def test_common_types(one: DataType, other: DataType, wide: DataType | None) -> None:
    assert common_type(one, other) == wide


def column(name: str, kind: DataType, before: str | None = "", default: str | None = None) -> EvolvedColumn:
    return EvolvedColumn(pa.field(name, to_arrow_type(kind)), name if before == "" else before, default)


def held(**columns: DataType) -> StructType:
    own = StructField("_sequence", LongType())
    return StructType([*[StructField(name, kind) for name, kind in columns.items()], own])


def shown(found: Joined) -> dict[str, tuple[str | None, str]]:
    return {one.field.name: (one.before, spark_type(one.field).simpleString()) for one in found.columns}


def claims(**columns: str) -> dict[TableId, Claim]:
    return {
        table: Claim(tuple(names.split()), ("id",))
        for table, names in zip((A, B), columns.values(), strict=True)
    }


INT, TEXT = IntegerType(), StringType()


def test_columns_that_only_others_have_stay_and_those_given_up_become_null() -> None:
    found = joined(A, held(id=INT, x=TEXT, y=TEXT), [column("id", INT)], claims(a="id x", b="id x y"))
    assert shown(found) == {"id": ("id", "int"), "x": ("x", "string"), "y": ("y", "string")}
    assert found.values == {"x": "NULL"}


def test_what_no_other_shard_has_goes_changes_its_type_and_is_renamed_freely() -> None:
    known = claims(a="id x y z", b="id")
    table = held(id=INT, x=INT, y=INT, z=INT)
    found = joined(A, table, [column("id", INT), column("x", TEXT), column("yy", INT, "y")], known)
    assert shown(found) == {"id": ("id", "int"), "x": ("x", "string"), "yy": ("y", "int")}
    assert found.values == {}


def test_two_columns_that_exchange_their_names_do_so_in_one_step() -> None:
    columns = [column("x", INT, "y"), column("y", INT, "x")]
    found = joined(A, held(x=INT, y=INT), columns, claims(a="x y", b=""))
    assert {name: before for name, (before, _) in shown(found).items()} == {"x": "y", "y": "x"}


@pytest.mark.parametrize("renamed", [("title", "name"), ("name", "own")])
def test_a_rename_that_touches_a_shared_column_has_the_shard_read_again(renamed: tuple[str, str]) -> None:
    name, before = renamed
    with pytest.raises(TableError) as caught:
        joined(
            A,
            held(id=INT, name=TEXT, own=TEXT),
            [column(name, TEXT, before)],
            claims(a="id name own", b="id name"),
        )
    assert caught.value.details == {"table": str(A), "read_again": True}


def test_names_are_the_same_in_any_case_of_letters() -> None:
    found = joined(
        A, held(Id=INT, Name=TEXT), [column("ID", INT), column("NAME", TEXT)], claims(a="", b="Id Name")
    )
    assert shown(found) == {"Id": ("Id", "int"), "Name": ("Name", "string")}


def test_a_column_added_with_a_default_gives_it_to_the_rows_of_its_shard_alone() -> None:
    found = joined(A, held(id=INT), [column("id", INT), column("n", INT, None, "7")], claims(a="id", b="id"))
    assert [one.name for one in found.added] == ["n"]
    assert found.values == {"n": "CAST(7 AS int)"}
    assert not [one.default for one in found.columns if one.default is not None]
    again = joined(
        A, held(id=INT, n=INT), [column("id", INT), column("n", INT, None, "7")], claims(a="id", b="id")
    )
    assert (again.added, again.values) == ([], found.values), "killed in between"


def test_a_column_dropped_and_added_in_one_statement_loses_its_values() -> None:
    found = joined(
        A, held(id=INT, n=INT), [column("id", INT), column("n", INT, None)], claims(a="id n", b="id n")
    )
    assert found.values == {"n": "NULL"}


names = st.sampled_from(["a", "b", "c", "d"])
sets = st.dictionaries(
    names, st.sampled_from([ByteType(), INT, LongType(), DecimalType(12, 3), TEXT]), max_size=4
)


@given(st.lists(st.tuples(st.sampled_from([A, B, TableId("shop_3", "orders")]), sets), max_size=12))
def test_whatever_shards_do_each_has_its_columns_in_types_that_hold_them(
    story: list[tuple[TableId, dict[str, DataType]]],
) -> None:
    """A model: shards get column after column; the target is changed as `joined` says."""
    target: dict[str, DataType] = {}
    known: dict[TableId, dict[str, DataType]] = {}
    for table, columns in story:
        said = {one: Claim(tuple(had), ()) for one, had in known.items()}
        wanted = [
            EvolvedColumn(pa.field(name, to_arrow_type(kind)), name, refills=True)
            for name, kind in columns.items()
        ]
        try:
            found = joined(table, held(**target), wanted, said)
        except TableError:
            continue
        before = known.get(table, {})
        target = {one.field.name: spark_type(one.field) for one in found.columns}
        known[table] = columns
        for had in known.values():
            for name, kind in had.items():
                assert common_type(target[name], kind) == target[name]
        assert set(target) == {name for had in known.values() for name in had}
        given_up = {name for name in before if name not in columns and name in target}
        assert set(found.values) == given_up and not found.added


def test_shards_with_other_keys_are_refused_whatever_the_case_of_letters() -> None:
    known = {A: Claim(("id", "n"), ("id", "n")), B: Claim(("ID", "n"), ("n", "ID"))}
    agree_on_key(B, ("n", "ID"), known)
    with pytest.raises(TableError, match=r"The key of shop_2\.orders is \(id\)"):
        agree_on_key(B, ("id",), known)
