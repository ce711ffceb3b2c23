"""Reads a table into Arrow with the chunk reader. Arguments: pipeline-file table connections.

Timed from the question for the first chunk bound to the last batch; as with the peer it stands beside, the
connections are opened in that time and the whole table is in memory at the end.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue

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
    chunks: SimpleQueue[Chunk] = SimpleQueue()
    for chunk in session.find(schema, config.snapshot.chunk_rows, "", sized=lambda _: None):
        chunks.put(chunk)
    count = chunks.qsize()
    with ThreadPoolExecutor(int(connections)) as pool:
        readers = [pool.submit(_read, config, schema, chunks) for _ in range(int(connections))]
        batches = [batch for reader in readers for batch in reader.result()]
    report = {
        "changes": sum(batch.num_rows for batch in batches),
        "columns": batches[0].num_columns,
        "arrow_mb": sum(batch.nbytes for batch in batches) / 1e6,
        "chunks": count,
        "began": began,
        "ended": (ended := time.monotonic()),
        "wall_s": ended - began,
        "cpu_s": time.process_time() - cpu_began,
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
