"""Keys that somebody names."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.model.schema import DEFAULT_TYPES, Column, TableId, TableSchema, TypeOptions
from penstock.sources.named_keys import InvalidKey, check_keys, key_rows, missing_keys

T = TableId("shop", "t")
NAME = Column("name", "varchar", column_type="varchar(20)", charset="latin1", collation="latin1_swedish_ci")


def table(*columns: Column) -> TableSchema:
    return TableSchema(T, (*columns, Column("n", "int", column_type="int")), tuple(c.name for c in columns))


ID = table(Column("id", "int", column_type="int"))
NUMERIC = table(Column("d", "numeric", column_type="numeric"))
PAIR = table(Column("id", "bigint", column_type="bigint"), NAME)


@pytest.mark.parametrize(
    ("schema", "key"),
    [(ID, ("x",)), (ID, (1.5,)), (ID, (None,)), (ID, (True,)), (ID, (1, 2)), (ID, ("1 OR 1",)),
     (ID, (2**70,)), (PAIR, (1, 5)), (table(Column("d", "date", column_type="date")), ("2020-13-45",)),
     (table(Column("b", "binary", length=2, charset="binary")), ("xyz",)),
     (table(Column("d", "decimal", column_type="decimal(5,2)", precision=5, scale=2)), ("NaN",)),
     (NUMERIC, ("1e999999",)), (NUMERIC, ("sNaN",)), (NUMERIC, ("x",)), (NUMERIC, (True,))],
)  # fmt: skip
def test_a_value_that_cannot_be_one_is_named(schema: TableSchema, key: tuple[object, ...]) -> None:
    with pytest.raises(InvalidKey):
        check_keys(schema, [key], DEFAULT_TYPES)


def test_keys_become_the_columns_of_the_table() -> None:
    dated = table(
        Column("d", "date", column_type="date"),
        Column("p", "decimal", column_type="decimal(5,2)", precision=5, scale=2),
    )
    rows = key_rows(dated, [("2020-02-29", "1.5")], DEFAULT_TYPES).to_pylist()
    assert str(rows[0]["d"]) == "2020-02-29" and rows[0]["p"] == Decimal("1.50")


def test_numbers_without_bounds_have_all_their_digits() -> None:
    """The text of a number is the one that PostgreSQL prints. It takes no number for a key, too."""
    long, names = "12345678901234567890123456789012345678901234567890.10", ("NaN", "Infinity", "-Infinity")
    keys = [("1.50",), (7,), ("1e3",), (long,), *((name,) for name in names)]
    rows = key_rows(NUMERIC, keys, DEFAULT_TYPES).to_pydict()
    assert rows == {"d": ["1.50", "7", "1000", long, *names]}
    scaled = TypeOptions(numeric_scale=2)
    assert key_rows(NUMERIC, keys[:2], scaled).to_pydict() == {"d": [Decimal("1.50"), Decimal("7.00")]}
    with pytest.raises(InvalidKey):
        check_keys(NUMERIC, [("NaN",)], scaled)


def test_keys_that_were_not_found_are_left() -> None:
    found = pa.table({"id": pa.array([5, 6], pa.int32())})
    left = missing_keys(ID, [(5,), (7,)], found, DEFAULT_TYPES)
    assert left.to_pydict() == {"id": [7], "n": [None]}
    assert missing_keys(ID, [(5,)], found, DEFAULT_TYPES).num_rows == 0
