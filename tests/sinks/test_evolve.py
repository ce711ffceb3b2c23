"""The columns of a target follow those of the source: in one commit, with the rows that are there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType
from tests.sinks.conftest import Place, both, column, iceberg_first

from penstock.errors import TableError
from penstock.sinks.base import EvolvedColumn, Ours
from penstock.sinks.evolve import Change
from penstock.sinks.names import TEMPORARY

Make = Callable[..., Place]

INT, LONG, TEXT = pa.int32(), pa.int64(), pa.string()


def columns(place: Place) -> tuple[str, ...]:
    found = place.sink.open(place.table)
    assert isinstance(found, Ours), found
    return found.columns


def filled(make: Make, kind: str, fields: list[tuple[str, pa.DataType]], *rows: tuple[Any, ...]) -> Place:
    it = make(kind, arrow=pa.schema(fields)).create()
    it.sink.append(it.table, it.latest(*[(*row, False, 1) for row in rows]), it.commit(1))
    return it


ADDED: list[tuple[pa.DataType, str | None, Any]] = [
    (INT, "5", 5),
    (LONG, "-9000000000", -9000000000),
    (pa.float32(), "1.5", 1.5),
    (pa.float64(), "2.5e0", 2.5),
    (TEXT, "'it''s'", "it's"),
    (pa.binary(), "X'00ff'", bytearray(b"\x00\xff")),
    (pa.decimal128(12, 3), "12.340", Decimal("12.340")),
    (pa.bool_(), "true", True),
    (pa.date32(), "DATE'2024-02-29'", date(2024, 2, 29)),
    (pa.timestamp("us"), "TIMESTAMP_NTZ'2024-02-29 01:02:03.456789'", datetime(2024, 2, 29, 1, 2, 3, 456789)),
    (TEXT, None, None),
]


def test_the_longest_names_of_columns_have_temporary_columns_that_every_target_takes() -> None:
    names = ["a" * 63 + "b", "a" * 63 + "c", "日" * 64, "a" * 32]
    made = [Change(name, LongType(), "convert", name).temporary for name in names]
    assert len(set(made)) == 4 and all(one.startswith(TEMPORARY) for one in made)
    assert all(len(one) <= 64 for one in made) and all(len(one.encode()) <= 63 for one in made)


@iceberg_first
def test_added_columns_give_existing_rows_their_default(place: Make, kind: str) -> None:
    it = filled(place, kind, [("id", LONG), ("name", TEXT)], (1, "a"))
    new = [column(f"c{n}", arrow, default=default) for n, (arrow, default, _) in enumerate(ADDED)]
    wanted = [column("id", LONG, "id"), column("name", TEXT, "name"), *new]
    assert it.evolve(2, *wanted)
    assert not it.evolve(2, *wanted)
    values = tuple(value for _, _, value in ADDED)
    assert it.rows() == [(1, "a", *values, 1)]
    assert it.rows(it.sink.version(it.table)) == it.rows()
    nothing = [None] * len(ADDED)
    it.sink.merge(it.table, it.latest((2, "b", *nothing, False, 20)), it.key, it.commit(3))
    it.sink.merge(it.table, it.latest((1, "z", 6, *nothing[1:], False, 21)), it.key, it.commit(4))
    assert it.rows() == [(1, "z", 6, *nothing[1:], 21), (2, "b", *nothing, 20)]


@iceberg_first
def test_added_timestamp_default_is_utc(place: Make, kind: str) -> None:
    it = filled(place, kind, [("id", LONG)], (1,))
    at = column("at", pa.timestamp("us", "UTC"), default="TIMESTAMP'2024-07-01 12:00:00Z'")
    it.evolve(2, column("id", LONG, "id"), at)
    assert it.sink.read(it.table).selectExpr("unix_seconds(at)").collect()[0][0] == 1719835200


@iceberg_first
def test_columns_stand_where_the_source_has_them(place: Make, kind: str) -> None:
    it = filled(place, kind, [("id", LONG), ("name", TEXT), ("x", INT)], (1, "a", 7))
    it.evolve(
        2, column("first", TEXT), column("x", INT, "x"), column("mid", TEXT), column("name", TEXT, "name"),
        column("id", LONG, "id"), column("very last", TEXT),
    )  # fmt: skip
    assert columns(it) == ("first", "x", "mid", "name", "id", "very last")
    assert it.rows() == [(None, 7, None, "a", 1, None, 1)]


@iceberg_first
def test_drop_rename_swap_and_add_in_one_step_keep_each_value_with_its_column(place: Make, kind: str) -> None:
    it = filled(place, kind, [("id", LONG), ("a", TEXT), ("b", TEXT), ("c", TEXT)], (1, "va", "vb", "vc"))
    wanted = [
        column("id", LONG, "id"),
        column("b", TEXT, "a"),  # swapped
        column("a", TEXT, "b"),
        column("c", INT, default="9"),  # the old c is gone, another one begins
    ]
    assert it.evolve(2, *wanted)
    assert not it.evolve(2, *wanted), "a swap done twice would undo itself"
    assert columns(it) == ("id", "b", "a", "c")
    assert it.rows() == [(1, "va", "vb", 9, 1)]
    it.sink.merge(it.table, it.latest((1, "B", "A", 10, False, 2)), it.key, it.commit(3))
    it.sink.append(it.table, it.latest((2, "b2", "a2", 11, False, 3)), it.commit(4))
    assert it.rows() == [(1, "B", "A", 10, 2), (2, "b2", "a2", 11, 3)]


WIDER: list[tuple[pa.DataType, Any, pa.DataType, Any]] = [
    (pa.int8(), 127, pa.int16(), 32767),
    (INT, 2147483647, LONG, 2**62),
    (pa.float32(), 0.5, pa.float64(), 1e300),
    (pa.decimal128(8, 2), Decimal("123456.78"), pa.decimal128(12, 2), Decimal("1234567890.12")),
    (pa.decimal128(8, 2), Decimal("123456.78"), pa.decimal128(12, 4), Decimal("12345678.9012")),
]


@iceberg_first
def test_wider_types_take_what_is_there_and_what_comes(place: Make, kind: str) -> None:
    old = [("id", LONG), *[(f"c{n}", one[0]) for n, one in enumerate(WIDER)]]
    it = filled(place, kind, old, (1, *[one[1] for one in WIDER]))
    wanted = [column("id", LONG, "id"), *[column(f"c{n}", one[2], f"c{n}") for n, one in enumerate(WIDER)]]
    assert it.evolve(2, *wanted)
    assert not it.evolve(2, *wanted)
    it.sink.append(it.table, it.latest((2, *[one[3] for one in WIDER], False, 2)), it.commit(3))
    it.sink.merge(it.table, it.latest((3, *[one[3] for one in WIDER], False, 2)), it.key, it.commit(4))
    wide = tuple(one[3] for one in WIDER)
    assert it.rows() == [(1, *[one[1] for one in WIDER], 1), (2, *wide, 2), (3, *wide, 2)]
    types = [field.dataType.simpleString() for field in it.sink.read(it.table).schema]
    assert types[2:6] == ["bigint", "double", "decimal(12,2)", "decimal(12,4)"]


@iceberg_first
def test_narrower_types_keep_the_wider_column_unless_told_otherwise(place: Make, kind: str) -> None:
    it = filled(place, kind, [("id", LONG), ("n", LONG), ("d", pa.decimal128(12, 4))], (1, 5, Decimal("1.5")))
    wanted = [column("id", LONG, "id"), column("n", INT, "n"), column("d", pa.decimal128(8, 2), "d")]
    assert it.evolve(2, *wanted)

    def types() -> list[str]:
        return [field.dataType.simpleString() for field in it.sink.read(it.table).schema][1:3]

    assert types() == ["bigint", "decimal(12,4)"]
    it.sink.append(it.table, it.latest((2, 6, Decimal("2.25"), False, 2)), it.commit(3))
    it.sink.merge(it.table, it.latest((3, 7, Decimal("3.25"), False, 3)), it.key, it.commit(4))
    assert it.evolve(5, *wanted, narrowing="rewrite")
    assert types() == ["int", "decimal(8,2)"]
    expected = [(1, 5, Decimal("1.50"), 1), (2, 6, Decimal("2.25"), 2), (3, 7, Decimal("3.25"), 3)]
    assert it.rows() == expected


@iceberg_first
def test_another_kind_of_type_converts_the_rows_that_are_there(place: Make, kind: str) -> None:
    it = filled(place, kind, [("id", LONG), ("n", INT), ("t", TEXT)], (1, 5, "12"), (2, None, "no number"))
    wanted = [column("id", LONG, "id"), column("n", TEXT, "n"), column("number", INT, "t")]
    assert it.evolve(2, *wanted)
    assert not it.evolve(2, *wanted)
    assert columns(it) == ("id", "n", "number")
    assert it.rows() == [(1, "5", 12, 1), (2, None, None, 1)]
    it.sink.merge(it.table, it.latest((2, "x", 7, False, 2)), it.key, it.commit(3))
    assert it.rows() == [(1, "5", 12, 1), (2, "x", 7, 2)]


@both
def test_killed_between_its_parts_a_change_is_finished_when_done_again(
    place: Make, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = filled(place, kind, [("id", LONG), ("n", INT), ("a", TEXT), ("b", TEXT)], (1, 5, "va", "vb"))
    wanted = [
        column("id", LONG, "id"), column("n", TEXT, "n"), column("b", TEXT, "a"), column("a", TEXT, "b"),
        column("more", INT, default="3"),
    ]  # fmt: skip

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(it.sink.format, "change_columns", killed)
        with pytest.raises(KeyboardInterrupt):
            it.evolve(2, *wanted)
    assert columns(it) == ("id", "n", "a", "b"), "what is under way is not seen as the source's"
    assert it.evolve(2, *wanted)
    assert it.rows() == [(1, "5", "va", "vb", 3, 1)]
    assert columns(it) == ("id", "n", "b", "a", "more")


@iceberg_first
def test_a_version_before_a_change_reads_with_the_columns_it_had(place: Make, kind: str) -> None:
    it = filled(place, kind, [("id", LONG), ("a", TEXT)], (1, "v"))
    version = it.sink.version(it.table)
    it.evolve(2, column("id", LONG, "id"), column("b", TEXT, "a"))
    assert it.sink.read(it.table, version).columns == ["id", "a", "_sequence"]
    assert it.sink.read(it.table, it.sink.version(it.table)).columns == ["id", "b", "_sequence"]


@iceberg_first
def test_a_target_that_lacks_the_column_is_an_error_unless_all_rows_come_again(
    place: Make, kind: str
) -> None:
    it = filled(place, kind, [("id", LONG)], (1,))
    with pytest.raises(TableError, match="no column a"):
        it.evolve(2, column("id", LONG, "id"), column("b", TEXT, "a"))
    again = EvolvedColumn(pa.field("b", TEXT), "a", refills=True)
    assert it.evolve(3, column("id", LONG, "id"), again)
    assert it.rows() == [(1, None, 1)]


@iceberg_first
def test_partitions_and_sort_order_of_the_operators_own_survive_a_change(place: Make, kind: str) -> None:
    if kind == "delta":
        pytest.skip("Delta's partitions are set when a table is made")
    it = filled(place, kind, [("id", LONG), ("day", pa.date32()), ("a", TEXT)], (1, date(2024, 1, 1), "v"))
    name = it.sink.name(it.table)
    it.spark.sql(f"ALTER TABLE {name} ADD PARTITION FIELD day")
    it.spark.sql(f"ALTER TABLE {name} WRITE ORDERED BY a")
    changed = [column("on", pa.date32(), "day"), column("id", LONG, "id"), column("b", TEXT, "a")]
    assert it.evolve(2, *changed, column("c", INT, default="7"))
    it.sink.append(it.table, it.latest((date(2024, 2, 2), 2, "w", 8, False, 2)), it.commit(3))
    it.sink.merge(it.table, it.latest((date(2024, 1, 1), 1, "x", 9, False, 3)), it.key, it.commit(4))
    assert it.rows() == [(date(2024, 1, 1), 1, "x", 9, 3), (date(2024, 2, 2), 2, "w", 8, 2)]
    with pytest.raises(TableError, match="cannot be changed"):
        it.evolve(5, column("id", LONG, "id"), column("b", TEXT, "b"), column("c", INT, "c"))
