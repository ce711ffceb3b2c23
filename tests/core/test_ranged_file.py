"""A file whose bytes are fetched gives what the same file on the disk gives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.core.logs import decode_range, events, log_of, schema_of

from penstock import _core
from penstock.errors import TransientError
from penstock.model.schema import TableSchema
from penstock.testing import servers

Fetch = Callable[[int, int], Any]


@pytest.fixture(scope="module")
def server() -> Iterator[servers.MySqlServer]:
    with servers.MySqlServer({"binlog_row_event_max_size": 1024}) as running:
        running.execute(
            "CREATE DATABASE d",
            "CREATE TABLE d.a (id INT PRIMARY KEY, v VARCHAR(200), n INT)",
            "CREATE TABLE d.b LIKE d.a",
            "FLUSH BINARY LOGS",
        )
        for number in range(30):
            rows = ",".join(f"({number * 200 + row}, REPEAT('x', {row}), {row})" for row in range(200))
            running.execute(
                "BEGIN", f"INSERT INTO d.a VALUES {rows}", f"INSERT INTO d.b VALUES {rows}",
                f"UPDATE d.a SET n = n + 1 WHERE id % 3 = {number % 3}", "DELETE FROM d.b WHERE id % 50 = 1",
                "COMMIT",
            )  # fmt: skip
        yield running


@pytest.fixture(scope="module")
def table(server: servers.MySqlServer) -> TableSchema:
    return schema_of(server, "d.a")


@pytest.fixture(scope="module")
def path(server: servers.MySqlServer) -> str:
    return log_of(server)[0]


class Fetched:
    """Fetches from a file, and records what was asked for."""

    def __init__(self, path: str) -> None:
        self.data = Path(path).read_bytes()
        self.ranges: list[tuple[int, int]] = []

    def __call__(self, start: int, end: int) -> memoryview:
        self.ranges.append((start, end))
        return memoryview(self.data)[start:end]

    @property
    def bytes(self) -> int:
        return sum(end - start for start, end in self.ranges)


def ranged(path: str, fetch: Fetch | None = None, **options: Any) -> _core.RangedFile:
    size = Path(path).stat().st_size
    return _core.RangedFile("s3://bucket/segment", size, fetch or Fetched(path), **options)


@pytest.mark.parametrize("layout", ["changelog", "latest"])
@pytest.mark.parametrize("blocks", [0, 100_000, 4 << 20])
def test_decoded_rows_are_those_of_the_file(table: TableSchema, path: str, layout: str, blocks: int) -> None:
    size = Path(path).stat().st_size
    file = ranged(path, block_bytes=blocks, cache_bytes=2 * blocks)
    found = decode_range(table, file, 0, size, layout=layout)
    assert found.num_rows >= 6000
    assert found.equals(decode_range(table, path, 0, size, layout=layout))


def test_everything_that_reads_a_segment_reads_one_that_is_fetched(table: TableSchema, path: str) -> None:
    size = Path(path).stat().st_size
    first = next(event for event in events(path) if event.kind == 33)
    statement = next(event for event in events(path) if event.kind == 2)
    file = ranged(path)
    json, names = table.to_json(), [("d", "a"), ("d", "b")]

    def read(it: _core.File) -> list[object]:
        outline = _core.Outline.of(names, it, 0, first.offset, size)
        keys = _core.KeySet(json)
        keys.add_split(it, 0, 4, size, preamble=[(it, 0, first.offset)])
        inspector = _core.Inspector(it)
        lines = []
        while (more := inspector.next_lines()) is not None:
            lines += more
        assert outline is not None
        assert lines
        return [
            outline.positions(0, 0, size),
            len(keys),
            _core.scan_span(it, 0, first.offset, size),
            _core.digest_span(it, 0, first.offset, size),
            _core.whole_statement(it, 0, statement.offset, 1 << 20),
            _core.read_statement(it, statement.offset),
            _core.first_described(json, it, 0, 4, size),
            [line.replace("s3://bucket/", "") for line in lines if "file" not in line],
        ]

    assert read(file) == read(path)


def test_a_split_fetches_its_own_bytes_and_the_head(table: TableSchema, path: str) -> None:
    begins = [event.offset for event in events(path) if event.kind == 33]
    start, end = begins[10], begins[20]
    fetched = Fetched(path)
    decode_range(table, ranged(path, fetched, start=start, end=end), start, end)
    assert end - start > 200_000
    assert fetched.bytes == end - start + 65536


def test_an_outline_skips_blocks_without_events_of_the_table(table: TableSchema, path: str) -> None:
    size = Path(path).stat().st_size
    outline = _core.Outline.of([("d", "a")], path, 0, 4, size)
    assert outline is not None
    positions = outline.positions(0, 4, size)[: 8 * 4]  # of the first transaction
    fetched = Fetched(path)
    file = ranged(path, fetched, block_bytes=65536)
    decoder = _core.RangeDecoder(table.to_json(), file, 0, 4, size, positions=positions)
    assert sum(batch.num_rows for batch in decoder) > 0
    assert fetched.bytes <= 2 * 65536 < size


@pytest.mark.parametrize("by", [-1, 1, -(1 << 40)])
def test_answers_of_a_wrong_length_are_errors_that_name_the_file(
    table: TableSchema, path: str, by: int
) -> None:
    whole = Fetched(path)

    def wrong(start: int, end: int) -> bytes:
        return bytes(whole(start, end))[:by] if by < 0 else bytes(whole(start, end)) + b"x" * by

    with pytest.raises(_core.DecodeError, match=r"were asked for") as raised:
        decode_range(table, ranged(path, wrong), 0, 1000)
    assert raised.value.path == "s3://bucket/segment"


@pytest.mark.parametrize("answer", [None, 5, "text", [1, 2]])
def test_answers_that_are_no_bytes_are_errors(table: TableSchema, path: str, answer: object) -> None:
    with pytest.raises(TypeError):
        decode_range(table, ranged(path, lambda start, end: answer), 0, 1000)


def test_what_fetch_raises_comes_out_as_it_is(table: TableSchema, path: str) -> None:
    """An outage of a store must not look like a damaged log, which would park the table."""
    whole, calls = Fetched(path), 0

    def failing(start: int, end: int) -> memoryview:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise TransientError("the store is away")
        return whole(start, end)

    size = Path(path).stat().st_size
    for read in (
        lambda it: decode_range(table, it, 0, size),
        lambda it: _core.scan_span(it, 0, 4, size),
        lambda it: _core.KeySet(table.to_json()).add_split(it, 0, 4, size),
        lambda it: _core.Inspector(it, count_only=True).next_lines(10**9),
    ):
        calls = 0
        with pytest.raises(TransientError, match="the store is away"):
            read(ranged(path, failing, block_bytes=65536, cache_bytes=0))


def test_other_bytes_than_those_of_the_file_are_an_error(table: TableSchema, path: str) -> None:
    size = Path(path).stat().st_size
    with pytest.raises(_core.DecodeError):
        decode_range(table, ranged(path, lambda start, end: bytes(end - start)), 0, size)


def test_threads_share_a_file_and_its_blocks(table: TableSchema, path: str) -> None:
    size = Path(path).stat().st_size
    expected = decode_range(table, path, 0, size)
    fetched = Fetched(path)
    file, equal = ranged(path, fetched), []
    keys = _core.KeySet(table.to_json())

    def work() -> None:
        keys.add_split(file, 0, 4, size)
        equal.append(decode_range(table, file, 0, size).equals(expected) and len(keys) >= 6000)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert equal == [True] * 6
    assert fetched.bytes <= 6 * size
