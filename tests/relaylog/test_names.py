"""Tables whose names are the same text when they are joined: the log tells them apart, also where an earlier
version wrote its index."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.core.logs import decode_range, schema_of
from tests.sources.mysql.receiving import receiving

from penstock.changes import ChangeBatch, follow
from penstock.model.offset import LogRange, Offset
from penstock.model.schema import TableId
from penstock.relaylog import index
from penstock.relaylog.reader import RelayLog
from penstock.sources.mysql.identifiers import quote, quoted
from penstock.testing.servers import MySqlServer

TABLES = [
    TableId("a.b", "c"), TableId("a", "b.c"), TableId("a", "c"), TableId("x`y", "c"), TableId("x.`y", "b.c"),
]  # fmt: skip
ROWS = 40


@pytest.fixture(scope="module")
def received(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MySqlServer, Path]]:
    """Transactions over all of the tables, of many spans each; every table has values of its own."""
    with MySqlServer({"binlog_row_event_max_size": 1024}) as server:
        for database in dict.fromkeys(table.database for table in TABLES):
            server.execute(f"CREATE DATABASE {quote(database)}")
        for table in TABLES:
            server.execute(f"CREATE TABLE {quoted(table)} (id INT PRIMARY KEY, pad VARCHAR(200))")
        for first in (0, ROWS):
            with server.connect() as connection, connection.cursor() as cursor:
                cursor.execute("BEGIN")
                for place, table in enumerate(TABLES):
                    for at in range(first, first + ROWS):
                        pad = f"{place}" * 150
                        cursor.execute(f"INSERT INTO {quoted(table)} VALUES ({at * 10 + place}, '{pad}')")
                cursor.execute("COMMIT")
        folder = tmp_path_factory.mktemp("received")
        with receiving(server, folder, span_size=6_000, segment_size=1 << 20) as receiver:
            receiver.wait_until_level()
        yield server, receiver.log_path


def assert_all_found(server: MySqlServer, log: RelayLog, *, bytes_aim: int) -> None:
    reach = LogRange(log.start, log.end)
    assert log.tables(reach).keys() >= set(TABLES)
    for table in TABLES:
        schema = schema_of(server, str(table))
        found = [
            (row["id"], row["pad"])
            for split in log.splits(reach, table, bytes_aim=bytes_aim)
            for row in decode_range(
                schema, split.path, split.start - split.base, split.end - split.base,
                preamble=[(path, 0, offset - base) for path, base, offset in split.preamble],
            ).select(["id", "pad"]).to_pylist()
        ]  # fmt: skip
        expected = server.query(f"SELECT id, pad FROM {quoted(table)} ORDER BY id")
        assert found == [tuple(row) for row in expected], table


@pytest.mark.parametrize("bytes_aim", [2_000, 1 << 30])
def test_tables_with_one_joined_name_are_told_apart(
    received: tuple[MySqlServer, Path], bytes_aim: int
) -> None:
    server, folder = received
    log = RelayLog.open(folder)
    assert log.tables(LogRange(log.start, log.end)).keys() == set(TABLES)
    assert_all_found(server, log, bytes_aim=bytes_aim)


def written_before(fields: dict[str, Any]) -> dict[str, Any]:
    """An entry as it was before names were quoted: keys joined with a dot, so that some tables share one."""
    joined: dict[str, list[int]] = {}
    for key, (events, size) in fields.get("tables", {}).items():
        table = TableId.parse(key)
        known = joined.setdefault(f"{table.database}.{table.table}", [0, 0])
        known[0] += events
        known[1] += size
    return fields | ({"tables": joined} if joined else {})


@pytest.mark.parametrize("half", [False, True])
def test_an_index_of_an_earlier_version_misses_no_table(
    received: tuple[MySqlServer, Path], tmp_path: Path, *, half: bool
) -> None:
    """`half`: the first lines are old, the others of this version."""
    server, source = received
    folder = tmp_path / "relay"
    folder.mkdir()
    for path in source.iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    for path in folder.glob("*.index"):
        entries = index.parse_lines(path.read_bytes(), path)
        old = len(entries) // 2 if half else len(entries)
        lines = [
            index.Entry(written_before(entry.fields) if place < old else entry.fields)
            for place, entry in enumerate(entries)
        ]
        path.write_bytes(index.encode(lines))
    log = RelayLog.open(folder)
    assert_all_found(server, log, bytes_aim=2_000)
    log = RelayLog.open(folder)
    assert_all_found(server, log, bytes_aim=1 << 30)
    merged = index.compact(log._entries(0), 1 << 30, log.segments()[0].format)
    assert {table for entry in merged for table in index.by_table(_totals(entry))} >= set(TABLES)


def _totals(entry: index.Entry) -> dict[str, tuple[int, int]]:
    return {key: (events, size) for key, (events, size) in entry.tables.items()}


def test_where_no_name_has_a_dot_the_index_is_as_it_was() -> None:
    line = index.format_line(json.dumps({"start": 0, "end": 9, "committed": 9, "tables": {"shop.o": [1, 9]}}))
    entry = index.parse_line(line)
    assert entry is not None and entry.end == Offset(9)
    assert index.by_table(_totals(entry)) == {TableId("shop", "o"): (1, 9)}


def test_a_reader_without_spark_is_given_the_table_that_was_named(
    received: tuple[MySqlServer, Path],
) -> None:
    server, folder = received
    log = RelayLog.open(folder)
    start, end = int(log.statements(LogRange(log.start, log.end))[-1].end), int(log.end)
    for names, expected in (
        (["`a.b`.c"], [TABLES[0]]),
        (["a.b.c"], [TABLES[1]]),
        (["`a.b`.*", "`x.``y`.b.c"], [TABLES[0], TABLES[4]]),
    ):
        with follow(folder.parent / "pipeline.yaml", names, start=start, until=end) as changes:
            found = [item for item in changes if isinstance(item, ChangeBatch)]
        assert {item.table for item in found} == set(expected)
        for table in expected:
            ids = [id for item in found if item.table == table for id in item.batch.column("id").to_pylist()]
            assert ids == [row[0] for row in server.query(f"SELECT id FROM {quoted(table)} ORDER BY id")]
