"""The limit of a snapshot: `COPY … TO STDOUT (FORMAT binary)` of a table, and nothing is done with the rows.
Arguments: pipeline-file table sessions.

Each session is a process of its own, and reads a range of the table's blocks. Timed from the moment at which
all are connected to the last row.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from multiprocessing.synchronize import Barrier
from typing import Any

from psycopg import pq

from penstock import config as configuration
from penstock.config import PipelineConfig
from penstock.sources.postgresql.connection import connect
from penstock.sources.postgresql.options import options_of

_TIMEOUT_S = 600


def main() -> None:
    file, table, sessions = sys.argv[1], sys.argv[2], int(sys.argv[3])
    config = configuration.load(file)
    with connect(options_of(config)) as connection:
        query = "SELECT pg_relation_size(%s::regclass) / current_setting('block_size')::int"
        row = connection.execute(query, (table,)).fetchone()
    assert row is not None
    bounds = [row[0] * number // sessions for number in range(sessions)] + [1 << 31]
    context = multiprocessing.get_context("fork")
    ready, counts = context.Barrier(sessions + 1), context.Queue()
    workers = [
        context.Process(target=read, args=(config, table, *bounds[n : n + 2], ready, counts))
        for n in range(sessions)
    ]
    for worker in workers:
        worker.start()
    ready.wait(_TIMEOUT_S)
    began = time.monotonic()
    results = [counts.get(timeout=_TIMEOUT_S) for _ in workers]
    ended = time.monotonic()
    for worker in workers:
        worker.join(_TIMEOUT_S)
    report = {
        "changes": sum(rows for rows, _, _ in results), "bytes": sum(size for _, size, _ in results),
        "began": began, "ended": ended, "wall_s": ended - began, "cpu_s": sum(cpu for _, _, cpu in results),
    }  # fmt: skip
    print(json.dumps(report), flush=True)


def read(config: PipelineConfig, table: str, first: int, end: int, ready: Barrier, counts: Any) -> None:
    with connect(options_of(config)) as connection:
        ready.wait(_TIMEOUT_S)
        server = connection.pgconn
        where = f"ctid >= '({first},0)' AND ctid < '({min(end, (1 << 32) - 2)},0)'"
        cpu_began = sum(os.times()[:2])
        result = server.exec_(
            f"COPY (SELECT * FROM {table} WHERE {where}) TO STDOUT (FORMAT binary)".encode()
        )
        assert result.status == pq.ExecStatus.COPY_OUT, server.get_error_message()
        pieces = size = 0
        while (length := server.get_copy_data(0)[0]) > 0:
            pieces, size = pieces + 1, size + length
        # The end of the rows is a piece of its own; the format's head comes with the first row.
        counts.put((pieces - 1, size, sum(os.times()[:2]) - cpu_began))


if __name__ == "__main__":
    main()
