"""python-mysql-replication reads the log. Arguments: host port user password file position
database tail-table."""

from __future__ import annotations

import json
import sys
import time

import pymysqlreplication
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent


def main() -> None:
    host, port, user, password, file, position, database, tail = sys.argv[1:]
    settings = {"host": host, "port": int(port), "user": user, "passwd": password}
    stream = pymysqlreplication.BinLogStreamReader(
        connection_settings=settings, server_id=94003, resume_stream=True, log_file=file,
        log_pos=int(position), only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        only_schemas=[database],
    )  # fmt: skip
    counts = dict.fromkeys((WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent), 0)
    began = cpu_began = 0.0
    for event in stream:
        if not began:
            began, cpu_began = time.monotonic(), time.process_time()
        if event.table == tail:
            break
        counts[type(event)] += len(event.rows)
    report = {
        "version": getattr(pymysqlreplication, "__version__", ""),
        "changes": sum(counts.values()),
        "wall_s": time.monotonic() - began,
        "cpu_s": time.process_time() - cpu_began,
        "counts": dict(zip(("inserts", "updates", "deletes"), counts.values(), strict=True)),
    }
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
