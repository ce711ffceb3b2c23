"""How long after its commit at the source a change is in the hands of a reader of the relay log.

    python -m bench.reader_latency                    1,000 changes a second for 30 s
    python -m bench.reader_latency --rate 5000 --rows 10 --json /tmp/latency.json

A private MySQL, the receiver and the reader in processes of their own, and this one, which writes. A change's
way begins at its commit time, as MySQL stamps it into the log before it makes the log durable, and ends when
the reader holds the batch.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from bench import measure
from bench.scaling import Line, scratch
from penstock.relaylog.reader import RelayLog
from penstock.testing.scenario import wait_for
from penstock.testing.servers import MySqlServer

PART = "reader"
P50_MS_GOAL, P99_MS_GOAL = 5.0, 20.0
RESULTS = measure.ROOT / "bench" / "results" / "reader.json"
BOUNDS_MS = (0.5, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 50, 100, 200, 500, 1000)
DATABASE, TABLE = "latency", "orders"
DURABLE = {"sync_binlog": 1, "innodb_flush_log_at_trx_commit": 1}
WRITERS = 2


@dataclass(frozen=True)
class Options:
    rate: int = 1000
    """Changes per second."""
    rows: int = 1
    """... of which each transaction has so many."""
    seconds: float = 30
    warm_seconds: float = 3
    durable: bool = True
    """The source makes each commit durable; without, what it does itself takes less of the time."""


def run(options: Options) -> tuple[list[Line], dict[str, Any]]:
    """The figures, and the histogram."""
    settings = DURABLE if options.durable else {}
    with MySqlServer(settings) as server, scratch() as folder:
        server.execute(
            f"CREATE DATABASE {DATABASE}",
            f"CREATE TABLE {DATABASE}.{TABLE} (id BIGINT PRIMARY KEY AUTO_INCREMENT, customer BIGINT, "
            "amount DECIMAL(12, 2), note VARCHAR(60), changed TIMESTAMP(6) NOT NULL)",
        )
        file = _pipeline_file(folder, server)
        receiver = subprocess.Popen(
            measure.program("penstock", "receive", file), env=measure.environment(), stdin=subprocess.DEVNULL
        )
        try:
            wait_for(lambda: RelayLog.exists(folder / "state" / "relay"), "the relay log")
            report = _read_while_written(file, server, options)
        finally:
            receiver.terminate()
            receiver.wait(30)
    return _lines(report, options), report


def _read_while_written(file: Path, server: MySqlServer, options: Options) -> dict[str, Any]:
    seconds = options.warm_seconds + options.seconds
    command = measure.program(
        "bench.programs.follow", file, f"{DATABASE}.{TABLE}", options.warm_seconds, seconds + 5
    )
    reader = subprocess.Popen(
        command, env=measure.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    assert reader.stdout is not None
    try:
        assert reader.stdout.readline() == "ready\n"
        until = time.monotonic() + seconds
        threads = [
            threading.Thread(target=_write, args=(server, options, options.rate / WRITERS, until))
            for _ in range(WRITERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        out, _ = reader.communicate(timeout=60)
    finally:
        reader.kill()
    report: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return report


def _write(server: MySqlServer, options: Options, rate: float, until: float) -> None:
    row = "(NULL, 17, 12.5, 'a note of some length', NOW(6))"
    sql = f"INSERT INTO {TABLE} VALUES {', '.join([row] * options.rows)}"
    with server.connect(database=DATABASE, autocommit=True) as connection, connection.cursor() as cursor:
        due = time.monotonic()
        while (now := time.monotonic()) < until:
            if now < due:
                time.sleep(due - now)
            cursor.execute(sql)
            due = max(due + options.rows / rate, time.monotonic() - 0.1)


def _pipeline_file(folder: Path, server: MySqlServer) -> Path:
    document = {
        "name": "latency",
        "source": {
            "host": server.host, "port": server.port, "user": server.user, "password": server.password,
        },
        "tables": [f"{DATABASE}.*"],
        "state": str(folder / "state"),
    }  # fmt: skip
    file = folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump(document), "utf-8")
    return file


def _lines(report: dict[str, Any], options: Options) -> list[Line]:
    durable = "durable" if options.durable else "not durable"
    what = f"source commit ({durable}) to batch in hand, {report['changes_per_s']:,.0f} changes/s"
    return [
        Line(PART, f"{what}, p50", report["p50_ms"], "ms", P50_MS_GOAL),
        Line(PART, f"{what}, p99", report["p99_ms"], "ms", P99_MS_GOAL),
        Line(PART, "CPU of the reader's process", report["cpu_percent"], "% of a core"),
    ]


def histogram(values_ms: Sequence[float]) -> list[dict[str, float | int | None]]:
    """How many values lie at or below each bound and above the one before; the last has none."""
    counts: list[dict[str, float | int | None]] = []
    low = float("-inf")
    for bound in (*BOUNDS_MS, float("inf")):
        count = sum(low < value <= bound for value in values_ms)
        counts.append({"up_to_ms": bound if bound != float("inf") else None, "count": count})
        low = bound
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.reader_latency", description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--rate", type=int, default=Options.rate)
    parser.add_argument("--rows", type=int, default=Options.rows)
    parser.add_argument("--seconds", type=float, default=Options.seconds)
    parser.add_argument("--relaxed", action="store_true", help="the source does not make commits durable")
    parser.add_argument("--json", type=Path, default=RESULTS)
    given = parser.parse_args()
    options = Options(given.rate, given.rows, given.seconds, durable=not given.relaxed)
    lines, report = run(options)
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps({"measured": time.strftime("%Y-%m-%d"), **report}, indent=1) + "\n")
    for line in lines:
        Console().print(f"{line.what}: {line.value:,.2f} {line.unit}", markup=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
