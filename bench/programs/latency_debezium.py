"""Debezium's embedded engine follows `bench.live`, which is changed all the time. Arguments: source warm-s
seconds command…: the source's options as JSON, and the command of the Java program, which adds a file's name.

The latency of a change is the time from its commit, as the source's own log tells it, to the moment at
which the engine hands its record out. The program says `ready` when the first record has come, and ends with
the row of the id `END`; what it has written by then are lines `commit-µs handed-out-µs operation`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from bench.latency.changes import TABLE, Changes, connect
from bench.latency.summary import summary
from penstock.sources import registry
from penstock.sources.kind import SourceOptions

END = -2
_PROBE = -1000
"""Rows with ids from here down are written until the engine shows that it listens."""
_PROBE_S = 0.5
_START_S_MAX = 120
_END_S_MAX = 120
_KINDS = {"c": "inserts", "u": "updates", "d": "deletes"}


def main() -> None:
    options, warm_s, seconds, *command = sys.argv[1:]
    fields = json.loads(options)
    source = registry.kind(fields["type"]).options.model_validate(fields)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "records")
        engine = subprocess.Popen([*command, str(out)], stdout=subprocess.PIPE, text=True)
        try:
            wait_until_ready(engine, source)
            changes = Changes(source)
            time.sleep(float(warm_s))
            began, began_us, cpu_began = time.monotonic(), time.time_ns() // 1000, changes.cpu_s
            time.sleep(float(seconds))
            ended, ended_us, cpu_ended = time.monotonic(), time.time_ns() // 1000, changes.cpu_s
            changes.stop()
            write(source, END)
            if engine.wait(_END_S_MAX):
                sys.exit(f"Error: the engine ended with code {engine.returncode}")
        finally:
            engine.kill()
        lines = [line.split() for line in out.read_text().splitlines()]
    counts = Counter(_KINDS[kind] for _, _, kind in lines)
    if counts != changes.counts:
        sys.exit(f"Error: {changes.counts} were written, the engine gave {dict(counts)}")
    latencies = [
        (int(handed_us) - int(commit_us)) / 1e6
        for commit_us, handed_us, _ in lines
        if began_us <= int(commit_us) < ended_us
    ]
    report = {
        "changes": len(latencies), "began": began, "ended": ended, "writer_cpu_s": cpu_ended - cpu_began,
        "writer_late_s_max": round(changes.late_s_max, 3), **summary(latencies),
    }  # fmt: skip
    print(json.dumps(report), flush=True)


def wait_until_ready(engine: subprocess.Popen[str], source: SourceOptions) -> None:
    assert engine.stdout is not None
    said = engine.stdout
    ready = threading.Event()

    def listen() -> None:
        for line in said:
            if line.strip() == "ready":
                ready.set()

    threading.Thread(target=listen, daemon=True).start()
    for number in range(int(_START_S_MAX / _PROBE_S)):
        if ready.wait(_PROBE_S):
            return
        if engine.poll() is not None:
            sys.exit(f"Error: the engine ended with code {engine.returncode}")
        write(source, _PROBE - number)
    sys.exit(f"Error: the engine gave nothing within {_START_S_MAX} s")


def write(source: SourceOptions, number: int) -> None:
    connection = connect(source)
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {TABLE} VALUES ({number}, 0, 0, 'mark')")
    connection.close()


if __name__ == "__main__":
    main()
