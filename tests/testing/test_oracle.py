from __future__ import annotations

import datetime
import decimal

import pytest

from penstock.testing import oracle, servers

COLUMNS = """
  id INT PRIMARY KEY, u BIGINT UNSIGNED, d DECIMAL(8,3), f FLOAT, g DOUBLE, b BIT(10), y YEAR, day DATE,
  at DATETIME(6), ts TIMESTAMP(3) NULL, t TIME(2), latin VARCHAR(20) CHARACTER SET latin1,
  emoji TEXT CHARACTER SET utf8mb4,
  raw VARBINARY(8), e ENUM('a','b'), s SET('x','y'), j JSON, p POINT
"""


def test_every_type_has_one_text(mysql: servers.Database) -> None:
    mysql.execute(
        f"CREATE TABLE t ({COLUMNS})",
        "SET time_zone = '+05:00'",
        "INSERT INTO t VALUES (1, 18446744073709551615, -1.5, 0.1, 1e300, b'1000000001', 2024, '0099-12-31', "
        "'2024-02-29 12:00:00.100000', '2024-01-01 05:00:00.250', '-838:59:58.50', 'café', '🦊', "
        "x'00ff', 'b', 'x,y', "
        '\'{"b": 1.0, "a": null}\', POINT(1, 2))',
        "INSERT INTO t (id) VALUES (0)",
    )
    empty, full = oracle.rows_of(mysql, f"{mysql.name}.t")
    assert empty == ("0",) + (None,) * 17
    assert full[:-1] == (
        "1", "18446744073709551615", "-1.500", repr(0.10000000149011612), "1e+300", "513", "2024",
        "0099-12-31",
        "2024-02-29 12:00:00.1", "2024-01-01 00:00:00.25", "-838:59:58.5", "café", "🦊",
        "00FF", "b", "x,y", '{"a": null, "b": 1.0}',
    )  # fmt: skip
    assert full[-1] == "000000000101000000000000000000F03F0000000000000040"


@pytest.mark.parametrize(
    ("value", "type", "text"),
    [
        (True, "tinyint", "1"),
        (1, "float", "1.0"),
        (decimal.Decimal("0E-3"), "decimal", "0.000"),
        (decimal.Decimal("18446744073709551615"), "bigint", "18446744073709551615"),
        (b"\x02\x01", "bit", "513"),
        (513, "bit", "513"),
        (b"\x00\xff", "varbinary", "00FF"),
        (datetime.datetime(2024, 1, 1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=2))), "timestamp",
         "2024-01-01 00:00:00"),
        (datetime.datetime(2024, 1, 1, 0, 0, 0, 250000), "datetime", "2024-01-01 00:00:00.25"),
        ("2024-01-01 00:00:00.250", "datetime", "2024-01-01 00:00:00.25"),
        (datetime.timedelta(hours=-838, minutes=-59, seconds=-58.5), "time", "-838:59:58.5"),
        (datetime.time(1, 2, 3), "time", "01:02:03"),
        (datetime.date(2024, 1, 1), "date", "2024-01-01"),
        (None, "int", None),
    ],
)  # fmt: skip
def test_values_of_targets_get_the_same_text(value: object, type: str, text: str | None) -> None:
    assert oracle.canonical(value, type) == text


def test_comparison_sees_missing_extra_and_doubled_rows() -> None:
    rows: list[oracle.Row] = [("1", "a"), ("2", None)]
    oracle.assert_same_rows(rows, list(reversed(rows)))
    with pytest.raises(AssertionError, match="0 missing, 1 too many"):
        oracle.assert_same_rows(rows, [*rows, ("2", None)])
    with pytest.raises(AssertionError, match=r"missing \('2', None\)"):
        oracle.assert_same_rows(rows, rows[:1])


def test_a_missing_table_is_named(mysql: servers.Database) -> None:
    with pytest.raises(LookupError, match=r"no\.such"):
        oracle.rows_of(mysql, "no.such")
