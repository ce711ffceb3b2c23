"""Reads a table in chunks, in one of three ways. Arguments: pipeline-file table connections way ids folder.

`arrow`: into Arrow, each connection kept for chunk after chunk; a batch is dropped once it is counted.
`staged`: staged under `folder` by what a pipeline's Spark tasks call, with a connection for each chunk.
`kept`: staged likewise, but each connection kept: beside `staged`, it shows what connecting anew costs.

`ids`: the chunks are those of the rows with ids up to this one; 0 stands for the whole table. Timed from the
question for the first chunk bound to the end of the last chunk.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue

import pyarrow.parquet as pq

from penstock import config as configuration
from penstock.config import PipelineConfig
from penstock.model.chunk import Chunk
from penstock.model.partial_snapshot import Part
from penstock.model.schema import TableId, TableSchema
from penstock.snapshot.staging import Staging, stage_chunk
from penstock.sources.mysql.connection import connect
from penstock.sources.mysql.options import options_of
from penstock.sources.mysql.session import SourceSession
from penstock.sources.mysql.snapshot.host_selection import MySqlHost
from penstock.sources.mysql.snapshot.reader import MySqlChunkReader
from penstock.store.opening import open_store

Following = Callable[[], Chunk | None]
Read = Callable[[PipelineConfig, TableSchema, Following, str, str], int]


def main() -> None:
    file, name, connections, way, ids, folder = sys.argv[1:]
    config = configuration.load(file)
    session = SourceSession(options_of(config))
    ways: dict[str, Read] = {"arrow": to_arrow, "staged": staged, "kept": partial(staged, keep=True)}
    read = ways[way]
    began, cpu_began = time.monotonic(), time.process_time()
    schema = session.read_table(TableId.parse(name))
    assert schema is not None, f"the source has no table {name}"
    gtids = executed(config)
    part = Part(upper=(str(int(ids) + 1),)) if int(ids) else Part()
    chunks: SimpleQueue[Chunk] = SimpleQueue()
    for chunk in session.find(schema, config.snapshot.chunk_rows, gtids, sized=lambda _: None, part=part):
        chunks.put(chunk)
    count = chunks.qsize()
    planned = time.monotonic()
    with ThreadPoolExecutor(int(connections)) as pool:
        jobs = [
            pool.submit(read, config, schema, partial(following, chunks), gtids, folder)
            for _ in range(int(connections))
        ]
        rows = sum(job.result() for job in jobs)
    wall_s, cpu_s = time.monotonic() - began, time.process_time() - cpu_began
    session.close()
    if way != "arrow":
        rows = sum(pq.read_metadata(path).num_rows for path in Path(folder).rglob("*.parquet"))
    report = {
        "changes": rows, "chunks": count, "planned_s": round(planned - began, 3), "wall_s": wall_s,
        "cpu_s": cpu_s,
    }  # fmt: skip
    print(json.dumps(report), flush=True)


def following(chunks: SimpleQueue[Chunk]) -> Chunk | None:
    try:
        return chunks.get_nowait()
    except Empty:
        return None


def executed(config: PipelineConfig) -> str:
    """What the server has executed: what a chunk's connection has to see, as after the start of a table."""
    connection = connect(options_of(config))
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT @@GLOBAL.gtid_executed")
            return str(cursor.fetchone()[0]).replace("\n", "")
    finally:
        connection.close()


def to_arrow(
    config: PipelineConfig, schema: TableSchema, next_chunk: Following, gtids: str, folder: str
) -> int:
    """Rows that one connection has read when no chunk is left."""
    reader, rows = MySqlChunkReader(connect(options_of(config)), types=config.types), 0
    try:
        reader.require(gtids)
        while (chunk := next_chunk()) is not None:
            for batch in reader.read(schema, chunk):
                rows += batch.num_rows
    finally:
        reader.close()
    return rows


def staged(
    config: PipelineConfig,
    schema: TableSchema,
    next_chunk: Following,
    gtids: str,
    folder: str,
    *,
    keep: bool = False,
) -> int:
    reader = MySqlChunkReader(connect(options_of(config)), types=config.types) if keep else None
    host, rows = MySqlHost(options_of(config)), 0
    staging = Staging(open_store(Path(folder).absolute().as_uri()))
    try:
        while (chunk := next_chunk()) is not None:
            if reader is None:
                done = stage_chunk(host, staging, schema, chunk, "0", executed=gtids, types=config.types)
            else:
                reader.require(gtids)
                done = staging.stage(reader, schema, chunk, "0", types=config.types)
            rows += done.rows
    finally:
        if reader is not None:
            reader.close()
    return rows


if __name__ == "__main__":
    main()
