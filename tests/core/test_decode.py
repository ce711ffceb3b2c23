"""The decoders against what a real server writes; the server's own SELECT is the judge of values."""

from __future__ import annotations

import collections
import dataclasses
import json
import pickle
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysqlreplication.row_event as peer_rows
import pytest
from pymysqlreplication import BinLogStreamReader

from penstock import _core
from penstock.model.schema import TableId, TableSchema
from penstock.sources.mysql.catalog import read_table
from penstock.testing import servers
from tests.core import alltypes

Server = servers.MySqlServer

CONFIGURATIONS = {
    "full metadata": {"binlog_row_metadata": "FULL"},
    "minimal metadata": {"binlog_row_metadata": "MINIMAL"},
    "without checksums": {"binlog_checksum": "NONE"},
    "version 1 rows, without GTIDs": {
        "log_bin_use_v1_row_events": True, "gtid_mode": "OFF", "enforce_gtid_consistency": "OFF",
    },
}  # fmt: skip


@pytest.fixture(scope="module", params=CONFIGURATIONS, ids=lambda name: name.replace(" ", "-"))
def written(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that has written every type, once."""
    with servers.MySqlServer(CONFIGURATIONS[request.param]) as server:
        server.execute("CREATE DATABASE d", alltypes.create_table("d.t"))
        server.execute("CREATE TABLE d.other (id INT PRIMARY KEY, x TEXT)", "FLUSH BINARY LOGS")
        server.execute("INSERT INTO d.other VALUES (1, 'x')", *alltypes.SELECT_SESSION, *alltypes.inserts("d.t"))
        yield server


def schema_of(server: Server, table: str) -> TableSchema:
    with server.connect() as connection:
        schema = read_table(connection, TableId.parse(table))
    assert schema is not None
    return schema


def log_of(server: Server) -> tuple[str, int]:
    """The newest binlog file and its size."""
    path = server.binlog_files()[-1]
    return str(path), path.stat().st_size


def decode(server: Server, schema: TableSchema, **options: Any) -> pa.Table:
    path, size = log_of(server)
    decoder = _core.RangeDecoder(schema.to_json(), path, 0, 0, size, **options)
    batches = list(decoder)
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == decoder.schema
    return pa.Table.from_batches(batches, decoder.schema)


def select(server: Server, sql: str) -> list[tuple[Any, ...]]:
    with server.connect(conv={}) as connection, connection.cursor() as cursor:
        for statement in alltypes.SELECT_SESSION:
            cursor.execute(statement)
        cursor.execute(sql)
        return list(cursor.fetchall())


def differences(table: pa.Table, expected: list[tuple[Any, ...]]) -> list[str]:
    """Columns and rows of which the decoder and the server speak differently."""
    names = ["id", *(sample.name for sample in alltypes.SAMPLES)]
    found = []
    for position, name in enumerate(names):
        for row, value in enumerate(table.column(name).to_pylist()):
            if not alltypes.same(value, expected[row][position]):
                found.append(f"{name} of row {row + 1}: {str(value)[:80]!r}, server {str(expected[row][position])[:80]!r}")
    return found


def without_zero_dates(expected: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    def is_zero(text: Any) -> bool:
        return isinstance(text, str) and text[4:5] == "-" == text[7:8] and (
            "00" in (text[5:7], text[8:10]) or text.startswith("0000-")
        )  # fmt: skip

    return [tuple(None if is_zero(value) else value for value in row) for row in expected]


def test_every_type_has_the_value_that_select_shows(written: Server) -> None:
    schema = schema_of(written, "d.t")
    expected = select(written, alltypes.select("d.t"))
    table = decode(written, schema)
    assert table.num_rows == alltypes.ROWS
    assert table.column("_change_type").to_pylist() == ["insert"] * alltypes.ROWS
    assert differences(table, without_zero_dates(expected)) == []


def test_dates_as_text_are_what_select_shows_zeros_too(written: Server) -> None:
    schema = schema_of(written, "d.t")
    expected = select(written, alltypes.select("d.t"))
    assert differences(decode(written, schema, zero_dates="text"), expected) == []


def test_zero_dates_are_refused_on_demand_naming_table_and_column(written: Server) -> None:
    with pytest.raises(_core.SchemaMismatch, match=r"`c_zero_date` of d\.t: a zero") as caught:
        decode(written, schema_of(written, "d.t"), zero_dates="error")
    assert caught.value.table == "d.t" and caught.value.path is not None
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.table, copy.offset) == (str(caught.value), "d.t", caught.value.offset)
