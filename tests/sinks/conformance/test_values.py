"""Values that MySQL does not have, in every sink that keeps tables: they come back, or park their table."""

from __future__ import annotations

import datetime
import math
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.conformance.case import Case, Values

from penstock.errors import TableError
from penstock.sinks.base import EvolvedColumn, Scannable


def test_what_is_no_number_is_stored_or_parks_the_table(tables: Case) -> None:
    nan, inf = math.nan, math.inf
    fields = [("id", pa.int64()), ("yes", pa.bool_()), ("small", pa.float32()), ("much", pa.float64())]
    it = tables.again(arrow=pa.schema(fields)).create()
    assert it.append(1, (1, True, 1.5, -0.5, False, 10), (4, False, 0.0, 0.0, False, 11))
    rows = ((1, False, nan, inf), (2, None, -inf, nan), (3, True, inf, -inf), (4, True, None, 1e300))
    try:
        assert it.merge(2, *[(*row, False, 20) for row in rows])
    except TableError as refused:
        assert it.kind.name == "jdbc" and re.search(r"has NaN.*(MySQL|SQLite) cannot store", refused.message)
        with pytest.raises(TableError, match="NaN"):
            it.append(2, (5, True, nan, nan, False, 21))
        assert it.rows() == [(1, True, 1.5, -0.5, 10), (4, False, 0.0, 0.0, 11)]
        assert it.state().last_commit == it.commit(1)
        return
    assert repr(it.rows()) == repr([(*row, 20) for row in rows])
    if isinstance(it.sink, Scannable):
        with it.again().sink.scan() as scan:  # type: ignore[attr-defined]
            found = pa.Table.from_batches(scan.batches(it.table, it.arrow), it.arrow)
            assert repr(sorted(map(tuple, map(dict.values, found.to_pylist())))) == repr(list(rows))
    assert it.merge(3, (2, None, 2.5, nan, False, 30), (3, None, None, None, True, 31))
    assert repr(it.rows()) == repr(
        [(1, False, nan, inf, 20), (2, None, 2.5, nan, 30), (4, True, None, 1e300, 20)]
    )


def test_moments_of_all_years_are_stored_or_park_the_table(tables: Case) -> None:
    """Topics have the years 1 to 9999."""
    utc = datetime.timezone.utc
    moments = [
        datetime.datetime(1, 1, 1, tzinfo=utc), datetime.datetime(1901, 12, 13, 19, 45, 51, 1, tzinfo=utc),
        datetime.datetime(2026, 1, 2, tzinfo=utc),
        datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=utc),
    ]  # fmt: skip
    start = datetime.datetime(1970, 1, 1, tzinfo=utc)
    expected = {n: (one - start) // datetime.timedelta(microseconds=1) for n, one in enumerate(moments)}
    it = tables.again(arrow=pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])).create()
    for epoch, (number, moment) in enumerate(enumerate(moments), 1):
        try:
            assert it.append(epoch, (number, moment, False, epoch))
        except TableError:
            assert number != 2 and it.kind.name in ("jdbc", "clickhouse"), "others have all years"
            del expected[number]
    found = it.frame().selectExpr("id", "unix_micros(at)").collect()
    assert {row[0]: row[1] for row in found} == expected


MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=datetime.timezone.utc)
LISTS = pa.schema([
    ("id", pa.int64()), ("numbers", pa.list_(pa.int64())), ("words", pa.list_(pa.string())),
    ("prices", pa.list_(pa.decimal128(10, 2))), ("times", pa.list_(pa.timestamp("us", "UTC"))),
    ("flags", pa.list_(pa.bool_())), ("much", pa.list_(pa.float64())), ("days", pa.list_(pa.date32())),
    ("raw", pa.list_(pa.binary())),
])  # fmt: skip
ROWS: list[Values] = [
    (1, [1, None, -(2**62)], ["a", None, "", 'q"\\,{}\nä'], [Decimal("-12.50"), None], [MOMENT, None],
     [True, None, False], [1.5, None], [datetime.date(2024, 2, 29), None], [b"\x00\xff", None, b""]),
    (2, [], [], [], [], [], [], [], []),
    (3, None, None, None, None, None, None, None, None),
    (4, [None], [None], [None], [None], [None], [None], [None], [None]),
]  # fmt: skip
"""Lists that are NULL or empty, and elements that are NULL."""


def test_lists_are_stored_with_all_their_elements(tables: Case) -> None:
    if not tables.kind.example(tables.folder).has_lists:
        pytest.skip("targets of this sink have arrays as JSON text")
    it = tables.again(arrow=LISTS).create()
    assert it.append(1, *[(*row, False, 10) for row in ROWS[:2]])
    assert it.merge(2, *[(*row, False, 20) for row in (ROWS[0], *ROWS[2:])])
    found = [tuple(map(_plain, row)) for row in it.rows()]
    assert [row[:-1] for row in found] == ROWS
    assert [row[-1] for row in found] == [20, 10, 20, 20]
    it.tables.compact(it.table)
    assert [tuple(map(_plain, row))[:-1] for row in it.rows()] == ROWS
    if isinstance(it.sink, Scannable):
        with it.again().sink.scan() as scan:  # type: ignore[attr-defined]
            scanned = pa.Table.from_batches(scan.batches(it.table, it.arrow), it.arrow)
            assert sorted(map(tuple, map(dict.values, scanned.to_pylist()))) == ROWS
    more = EvolvedColumn(pa.field("more", pa.list_(pa.int32())), None)
    kept = [EvolvedColumn(field, field.name) for field in LISTS if field.name in ("id", "words")]
    assert it.evolve(3, *kept, more)
    it = it.with_columns(*kept, more)
    assert it.merge(4, (2, ["b"], [7, None], False, 40))
    assert [row for row in it.rows() if row[0] in (1, 2)] == [
        (1, ROWS[0][2], None, 20),
        (2, ["b"], [7, None], 40),
    ]


def test_lists_are_in_changes_with_all_their_elements(changes: Case) -> None:
    it = changes.again(arrow=LISTS).create()
    assert it.write(1, *[(*row, "insert", 10 + row[0]) for row in ROWS])
    if it.shows_rows:
        found = [tuple(map(_plain, row[: len(LISTS)])) for row in it.rows()]
        assert found == ROWS


def _plain(value: Any) -> Any:
    """As Python has it, whatever reads the target: moments in UTC."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.timezone.utc)
    return bytes(value) if isinstance(value, bytearray) else value
