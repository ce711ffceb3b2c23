"""Reads a table into Arrow with the chunk reader. Arguments: pipeline-file table connections.

Timed from the question for the first chunk bound to the last batch, with the connections. Of MySQL, the
whole table is in memory at the end, as with the peer it stands beside. Of PostgreSQL, each connection is of a
process of its own, as Spark's tasks and the bare COPY are, and batches are only counted.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any

import pyarrow as pa

from penstock import config as configuration
from penstock.model.chunk import Chunk
from penstock.model.schema import TableId, TableSchema
from penstock.sources.chunks import ChunkReader
from penstock.sources.mysql.connection import connect
from penstock.sources.mysql.options import MySqlOptions
from penstock.sources.mysql.session import SourceSession
from penstock.sources.mysql.snapshot.reader import MySqlChunkReader
from penstock.sources.postgresql.chunk_reader import PostgreSqlChunkReader
from penstock.sources.postgresql.options import options_of, publication_of
from penstock.sources.postgresql.session import PostgreSqlSession


def main() -> None:
    file, name, connections = sys.argv[1:]
    config = configuration.load(file)
    session = _session(config)
    began, cpu_began = time.monotonic(), time.process_time()
    schema = session.read_table(TableId.parse(name))
    assert schema is not None, f"the source has no table {name}"
    found = list(session.find(schema, config.snapshot.chunk_rows, "", sized=lambda _: None))
    in_processes = not isinstance(config.source, MySqlOptions)
    read = _in_processes if in_processes else _in_threads
    changes, columns, size, cpu_s = read(config, schema, found, int(connections))
    report = {
        "changes": changes,
        "columns": columns,
        "arrow_mb": size / 1e6,
        "chunks": len(found),
        "began": began,
        "ended": (ended := time.monotonic()),
        "wall_s": ended - began,
        "cpu_s": cpu_s + time.process_time() - cpu_began,
    }
    session.close()
    print(json.dumps(report), flush=True)


def _session(config: configuration.PipelineConfig) -> SourceSession | PostgreSqlSession:
    if isinstance(config.source, MySqlOptions):
        return SourceSession(config.source)
    return PostgreSqlSession(options_of(config), publication_of(config))


def _reader(config: configuration.PipelineConfig) -> ChunkReader:
    if isinstance(config.source, MySqlOptions):
        return MySqlChunkReader(connect(config.source), types=config.types)
    return PostgreSqlChunkReader(options_of(config), publication_of(config), config.types)


Read = tuple[int, int, int, float]
"""Rows, columns, bytes in Arrow, and the CPU seconds of other processes."""


def _in_threads(
    config: configuration.PipelineConfig, schema: TableSchema, found: list[Chunk], connections: int
) -> Read:
    chunks: SimpleQueue[Chunk] = SimpleQueue()
    for chunk in found:
        chunks.put(chunk)
    with ThreadPoolExecutor(connections) as pool:
        readers = [pool.submit(_read, config, schema, chunks) for _ in range(connections)]
        batches = [batch for reader in readers for batch in reader.result()]
    rows, size = sum(batch.num_rows for batch in batches), sum(batch.nbytes for batch in batches)
    return rows, batches[0].num_columns, size, 0.0


def _in_processes(
    config: configuration.PipelineConfig, schema: TableSchema, found: list[Chunk], connections: int
) -> Read:
    context = multiprocessing.get_context("fork")
    chunks, results = context.SimpleQueue(), context.SimpleQueue()
    for chunk in [*found, *[None] * connections]:
        chunks.put(chunk)
    processes = [
        context.Process(target=_read_alone, args=(config, schema, chunks, results))
        for _ in range(connections)
    ]
    for one in processes:
        one.start()
    read = [results.get() for _ in processes]
    for one in processes:
        one.join()
    rows, columns, size, cpu_s = zip(*read, strict=True)
    return sum(rows), max(columns), sum(size), sum(cpu_s)


def _read_alone(config: configuration.PipelineConfig, schema: TableSchema, chunks: Any, results: Any) -> None:
    began = sum(os.times()[:2])
    reader = _reader(config)
    rows = columns = size = 0
    while (chunk := chunks.get()) is not None:
        for batch in reader.read(schema, chunk):
            rows, columns, size = rows + batch.num_rows, batch.num_columns, size + batch.nbytes
    reader.close()
    results.put((rows, columns, size, sum(os.times()[:2]) - began))


def _read(
    config: configuration.PipelineConfig, schema: TableSchema, chunks: SimpleQueue[Chunk]
) -> list[pa.RecordBatch]:
    """What one connection reads until no chunk is left."""
    reader = _reader(config)
    batches: list[pa.RecordBatch] = []
    try:
        while True:
            try:
                chunk = chunks.get_nowait()
            except Empty:
                return batches
            batches += reader.read(schema, chunk)
    finally:
        reader.close()


if __name__ == "__main__":
    main()
