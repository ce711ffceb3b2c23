"""Columns as literals, read by a real server."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.sinks.sql import arrow_text
from penstock.testing.servers import Database

UTC = datetime.timezone.utc
COLUMNS: dict[str, tuple[pa.DataType, str, list[Any]]] = {
    "i": (pa.int64(), "BIGINT", [-(2**63), 2**63 - 1, 0, None]),
    "f": (pa.float64(), "DOUBLE", [1.7976931348623157e308, -2.2250738585072014e-308, 0.1, None]),
    "d": (pa.decimal128(38, 18), "DECIMAL(38,18)",
          [Decimal("-9.000000000000000001"), Decimal("0.000000000000000123"), None, None]),
    "t": (pa.string(), "LONGTEXT", ["'; -- \\", "nul \0 \\0 end\\'", "ä€😀\n\t", None]),
    "b": (pa.binary(), "LONGBLOB", [b"\x00\xff'\\", b"", b"x", None]),
    "o": (pa.bool_(), "TINYINT", [True, False, True, None]),
    "y": (pa.date32(), "DATE", [datetime.date(1000, 1, 1), datetime.date(9999, 12, 31), None, None]),
    "n": (pa.timestamp("us"), "DATETIME(6)", [datetime.datetime(1000, 1, 1, 1, 2, 3, 4), None, None, None]),
    "u": (pa.timestamp("us", "UTC"), "DATETIME(6)",
          [datetime.datetime(2038, 1, 19, 3, 14, 7, 5, UTC), None, None, None]),
}  # fmt: skip


def test_mysql_reads_every_literal_as_the_value_it_was(mysql: Database) -> None:
    mysql.execute("CREATE TABLE v (id INT, " + ", ".join(f"{n} {c[1]}" for n, c in COLUMNS.items()) + ")")
    arrays = [
        pa.array(range(4), pa.int32()),
        *[pa.array(values, kind) for kind, _, values in COLUMNS.values()],
    ]
    batch = pa.RecordBatch.from_arrays(arrays, ["id", *COLUMNS])
    mysql.execute("INSERT INTO v VALUES " + ",".join(arrow_text.as_tuples(batch)))
    found = mysql.query("SELECT * FROM v ORDER BY id")
    for place, (name, (_, _, values)) in enumerate(COLUMNS.items(), 1):
        expected = [one.replace(tzinfo=None) if isinstance(one, datetime.datetime) else one for one in values]
        assert [row[place] for row in found] == expected, name


def test_mysql_takes_every_float(mysql: Database) -> None:
    floats = pa.array([3.4028234663852886e38, -3.4028234663852886e38, 0.1, 1e-45], pa.float32())
    batch = pa.RecordBatch.from_arrays([pa.array(range(4), pa.int32()), floats], ["id", "f"])
    mysql.execute("CREATE TABLE v (id INT, f FLOAT)")
    mysql.execute("INSERT INTO v VALUES " + ",".join(arrow_text.as_tuples(batch)))
    found = mysql.query("SELECT f + 0e0 FROM v ORDER BY id")
    assert [row[0] for row in found] == floats.to_pylist()


def test_csv_tells_null_from_an_empty_text() -> None:
    batch = pa.RecordBatch.from_pydict({"a": ["", None, 'q"\n'], "b": pa.array([None, b"\x00", b""])})
    assert arrow_text.as_csv(batch) == b'"",\n,"\\x00"\n"q""\n","\\x"\n'
