"""`python -m bench.programs.follow FILE TABLE WARM_SECONDS SECONDS`: reads changes as they come, and says how
long each was under way from its commit. What comes in the first seconds after the first change counts for
nothing."""

from __future__ import annotations

import json
import sys
import threading
import time

import pyarrow as pa

from bench.reader_latency import histogram
from penstock.changes import ChangeBatch, follow


def main(file: str, table: str, warm_s: float, seconds: float) -> None:
    delays_us: list[int] = []
    first = 0.0
    with follow(file, [table]) as changes:
        threading.Timer(seconds, changes.stop).start()
        print("ready", flush=True)
        cpu, began = time.process_time(), time.monotonic()
        for item in changes:
            if not isinstance(item, ChangeBatch):
                continue
            now = time.time_ns() // 1000
            first = first or time.monotonic()
            if time.monotonic() > first + warm_s:
                committed = item.batch.column("_commit_timestamp").cast(pa.int64())
                delays_us += [now - at for at in committed.to_pylist()]
        used, lasted = time.process_time() - cpu, time.monotonic() - began
    delays = sorted(delay / 1000 for delay in delays_us)

    def at(share: float) -> float:
        return round(delays[min(len(delays) - 1, int(share * len(delays)))], 3)

    report = {
        "changes": len(delays),
        "changes_per_s": round(len(delays) / (seconds - 5 - warm_s)),
        "p50_ms": at(0.5),
        "p90_ms": at(0.9),
        "p99_ms": at(0.99),
        "p999_ms": at(0.999),
        "max_ms": delays[-1],
        "cpu_percent": round(used / lasted * 100, 2),
        "histogram": histogram(delays),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))
