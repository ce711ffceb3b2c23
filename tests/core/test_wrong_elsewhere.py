"""Values that other tools were seen to get wrong, each by the log and by a chunk of the snapshot."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from tests.core.logs import decode_range

from penstock.model.chunk import Chunk
from penstock.model.schema import TableId, TypeOptions
from penstock.sources.mysql.catalog import read_table
from penstock.sources.mysql.snapshot.reader import MySqlChunkReader
from penstock.testing import servers

COLUMNS = """id INT PRIMARY KEY, y YEAR, big BIGINT UNSIGNED, y2 YEAR, tiny TINYINT UNSIGNED,
    medium MEDIUMINT,
    t TIME, t3 TIME(3), zero DATE, partial DATETIME, s SET('a','b'), s2 SET('x','y','z'), latin VARCHAR(20)
    CHARACTER SET latin1, price DECIMAL(12,4), e ENUM('small','large'), data BLOB, label ENUM('ä','€')
    CHARACTER SET latin1, stamp TIMESTAMP(6) NULL, flags BIT(64)"""

ROW = """1, 2024, 18446744073709551615, 1901, 255, -8388608, '-838:59:59', '-00:00:00.5', '0000-00-00',
    '2024-00-10 01:02:03', '', 'x,z', 'Käse €', 12.5, 'large', x'00ff80', '€', '2024-03-31 02:30:00.000001',
    18446744073709551615"""

DOCUMENT = """JSON_OBJECT('decimal', CAST('12.3400' AS DECIMAL(10,4)), 'time', CAST('-01:02:03.5' AS TIME(1)),
    'double', 1e0, 'text', 'ä"\\\\', 'big', 18446744073709551615, 'date', CAST('2024-02-29' AS DATE))"""


@dataclass(frozen=True)
class Written:
    server: servers.DatabaseServer
    rows: dict[str, dict[str, Any]]
    """By the way they came: `log`, `snapshot`."""


@pytest.fixture(scope="module")
def written(flavor: servers.DatabaseServer) -> Iterator[Written]:
    flavor.execute(
        "CREATE DATABASE wrong", f"CREATE TABLE wrong.t ({COLUMNS}, j JSON) CHARACTER SET utf8mb4",
        "FLUSH BINARY LOGS",
        "SET NAMES utf8mb4", "SET sql_mode = '', time_zone = '+00:00'",
        f"INSERT INTO wrong.t VALUES ({ROW}, {DOCUMENT})",
    )  # fmt: skip
    types = TypeOptions(zero_dates="text")
    with flavor.connect() as connection:
        schema = read_table(connection, TableId("wrong", "t"))
    assert schema is not None
    path = flavor.binlog_files()[-1]
    logged = decode_range(schema, str(path), 0, path.stat().st_size, types=types.to_json())
    reader = MySqlChunkReader(flavor.connect(), types=types)
    read = pa.Table.from_batches(list(reader.read(schema, Chunk(schema.table, 0, None, None))))
    reader.close()
    names = [column.name for column in schema.columns]
    rows = {"log": logged.select(names).to_pylist()[0], "snapshot": read.to_pylist()[0]}
    yield Written(flavor, rows)
    flavor.execute("DROP DATABASE wrong")


@pytest.fixture(params=["log", "snapshot"])
def row(request: pytest.FixtureRequest, written: Written) -> dict[str, Any]:
    return written.rows[request.param]


def test_unsigned_columns_behind_a_year_keep_their_sign(row: dict[str, Any]) -> None:
    assert (row["y"], row["big"], row["y2"], row["tiny"]) == (2024, decimal.Decimal(2**64 - 1), 1901, 255)


def test_the_least_mediumint_is_negative(row: dict[str, Any]) -> None:
    assert row["medium"] == -8388608


def test_negative_times_are_what_select_shows(row: dict[str, Any]) -> None:
    assert (row["t"], row["t3"]) == ("-838:59:59", "-00:00:00.500")


def test_zero_and_partial_dates_and_empty_sets_are_not_null(row: dict[str, Any]) -> None:
    assert (row["zero"], row["partial"], row["s"]) == ("0000-00-00", "2024-00-10 01:02:03", "")


def test_latin1_arrives_as_text(row: dict[str, Any]) -> None:
    assert (row["latin"], row["label"]) == ("Käse €", "€")


def test_decimals_keep_their_scale(row: dict[str, Any]) -> None:
    assert str(row["price"]) == "12.5000"


def test_enums_and_sets_are_labels_and_blobs_are_bytes(row: dict[str, Any]) -> None:
    assert (row["e"], row["s2"], row["data"]) == ("large", "x,z", b"\x00\xff\x80")


def test_bits_beyond_63_are_not_negative(row: dict[str, Any]) -> None:
    assert row["flags"] == decimal.Decimal(2**64 - 1)


def test_timestamps_are_those_of_utc_to_the_microsecond(row: dict[str, Any]) -> None:
    assert row["stamp"] in (
        "2024-03-31 02:30:00.000001",
        datetime.datetime(2024, 3, 31, 2, 30, 0, 1, datetime.timezone.utc),
    )


def test_json_is_what_the_server_prints_the_same_by_snapshot_and_log(written: Written) -> None:
    [(text,)] = written.server.query("SELECT CAST(j AS CHAR CHARACTER SET utf8mb4) FROM wrong.t")
    # MariaDB's JSON is text, and arrives as it was written.
    time = "-01:02:03.5" if isinstance(written.server, servers.MariaDbServer) else "-01:02:03.500000"
    assert f'"{time}"' in text and "12.3400" in text and '"12.3400"' not in text
    assert {row["j"] for row in written.rows.values()} == {text}
