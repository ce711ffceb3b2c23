"""Subscribers follow a table that is written all the time. Arguments: relay-log subscribers
changes-per-second seconds host port user password command of the server.

The latency of a change is the time from its commit, as the source's own log tells it, to the moment at which
the first subscriber has its transaction. The others are in a process of their own, as is the writer.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from bench.latency.summary import summary
from bench.serve import server
from bench.serve.canal_client import END, Client, entries, kind_of
from penstock._core import transactions_of
from penstock.model.offset import LogRange, Offset
from penstock.relaylog.files import LogPlace
from penstock.relaylog.log_parts import parts_of
from penstock.relaylog.reader import RelayLog

_SIZE = 5000
_WARM_S = 5.0


class Arrivals:
    """When the end of each transaction was here, in microseconds."""

    def __init__(self, client: Client) -> None:
        self.us: list[int] = []
        self.rows = 0
        self.done = threading.Event()
        self._client = client

    def read(self) -> None:
        """Until nothing comes for a second behind `done`."""
        while True:
            batch_id, body = self._client.get(_SIZE)
            now_us = time.time_ns() // 1000
            if batch_id == -1:
                if self.done.is_set():
                    return
                continue
            self._client.acknowledge(batch_id)
            self.us += [now_us for entry in entries(body) if kind_of(entry) == END]


def main() -> None:
    relay, subscribers, per_second, seconds = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
    place, command = sys.argv[5:9], sys.argv[9:]
    with server.running(command) as (address, usage):
        arrivals = Arrivals(Client(address, "1"))
        reading = threading.Thread(target=arrivals.read)
        reading.start()
        crowd = _program("serve_crowd", address, str(subscribers - 1))
        _line(crowd)
        begin = RelayLog.open(LogPlace.at(Path(relay)))
        begin.refresh()
        writer = _program("serve_writer", *place, per_second)
        time.sleep(_WARM_S)
        began, cpu_began = time.monotonic(), usage.cpu_s
        began_us = time.time_ns() // 1000
        time.sleep(seconds)
        wall_s, cpu_s = time.monotonic() - began, usage.cpu_s - cpu_began
        ended_us = time.time_ns() // 1000
        written = _line(writer, end=True)
        arrivals.done.set()
        reading.join()
        given = _line(crowd, end=True)
        commits = _commits(Path(relay), begin.end)
    if len(commits) != len(arrivals.us):
        sys.exit(f"Error: {len(commits)} transactions are in the log, {len(arrivals.us)} were given")
    if any(one != written["transactions"] for one in given["transactions"]):
        sys.exit(f"Error: of {written['transactions']} transactions the subscribers have {given}")
    latencies = [
        (here - commit) / 1e6
        for commit, here in zip(commits, arrivals.us, strict=True)
        if began_us <= commit < ended_us
    ]
    changes = len(latencies) * written["rows"]
    report = {
        "changes": changes, "wall_s": wall_s, "cpu_s": cpu_s, "rss_mb": usage.rss_mb,
        "receiver_rss_mb": round(usage.children_rss_mb), "clients_per_s": subscribers * changes / wall_s,
        **summary(latencies),
    }  # fmt: skip
    print(json.dumps(report), flush=True)


def _program(name: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", f"bench.programs.{name}", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _line(process: subprocess.Popen[str], *, end: bool = False) -> dict[str, Any]:
    """What a program says next; it ends when its input does."""
    assert process.stdin is not None and process.stdout is not None
    if end:
        process.stdin.close()
    line = process.stdout.readline()
    if not line:
        sys.exit("Error: a program that this one needs has failed")
    said: dict[str, Any] = json.loads(line)
    return said


def _commits(relay: Path, start: Offset) -> list[int]:
    """The commit times of the transactions behind an offset."""
    log = RelayLog.open(LogPlace.at(relay))
    log.refresh()
    columns = transactions_of(parts_of(log, LogRange(start, log.end)), [])
    return list(columns[-1])


if __name__ == "__main__":
    main()
