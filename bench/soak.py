"""A pipeline under load for a long time, with everything that may happen to it; bounded, and judged.

    python -m bench.soak                              half an hour
    python -m bench.soak --minutes 4 --rate 1000 --seed 7 --json /tmp/soak.json

A private MySQL with a shop that is written to, a pipeline into Iceberg, and, at seeded moments: changes of
definitions, signals (a part of a table read again, all snapshots paused and resumed, a table added), and
kill -9 of the receiver or the driver. Every few seconds memory, file handles, threads and lag are taken down.
At the end the writer stops, the pipeline catches up, and `penstock verify` compares every table.

The verdict on growth: of each measure of each kind of process, the median of the samples in the last third
of the time may be at most `GROWTH` times that of the first third, plus an allowance; samples within a minute
of a start of the process count for nothing, and so does the first part of the time, in which the tables are
read. Lag likewise, with an allowance of some seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from bench import measure
from bench.scaling import scratch
from penstock.testing import workload
from penstock.testing.running import RunningPipeline
from penstock.testing.servers import MySqlServer
from penstock.testing.writer import Writer

RESULTS = measure.ROOT / "bench" / "results" / "soak.json"
SAMPLE_SECONDS = 5.0
WARM_SHARE = 0.15
"""Of the time, at its beginning, that is not compared."""
YOUNG_SECONDS = 60.0
GROWTH = 1.25
ALLOWANCES = {"rss_mb": 64.0, "handles": 24.0, "threads": 12.0, "lag_seconds": 5.0}
KINDS = ("driver", "jvm", "receiver", "workers")
DRAIN_SECONDS = 1200.0


@dataclass(frozen=True)
class Options:
    minutes: float = 30
    rate: float = 2000
    """Changes a second."""
    rows: int = 200_000
    seed: int = 1
    kill_seconds: float = 120
    """About so often a process is killed; the other things happen more often."""


@dataclass
class Soak:
    options: Options
    say: Callable[[str], None]
    samples: list[dict[str, Any]] = field(default_factory=list)
    happened: list[dict[str, Any]] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    width: int = 60
    tables: list[str] = field(default_factory=list)

    def run(self) -> dict[str, Any]:
        options = self.options
        with MySqlServer({"binlog_expire_logs_seconds": 0}) as server, scratch() as folder:
            shop = workload.Shop.of_rows(options.rows)
            workload.load(server, shop)
            self.say(f"a shop of {shop.rows:,} rows; {options.rate:,.0f} changes a second")
            file = _pipeline_file(folder, server)
            with (
                Writer(server, shop, seed=options.seed, rate=options.rate, large_every_s=60) as writer,
                RunningPipeline(file) as pipeline,
            ):
                self._began = time.monotonic()
                with self._sampling(pipeline):
                    self._upset(server, pipeline, writer)
                counts = writer.stop()
                self.say(f"writer stopped after {counts.changes:,} changes; draining")
                began = time.monotonic()
                pipeline.drained(*server.position(), seconds=DRAIN_SECONDS, restart=True)
                drained = time.monotonic() - began
                pipeline.stop()
                errors = pipeline.errors[-5000:]
            tables = _verify(file)
        return self._report(counts.changes, drained, tables, errors)

    # what happens -------------------------------------------------------------------------------------------

    def _upset(self, server: MySqlServer, pipeline: RunningPipeline, writer: Writer) -> None:
        """Until the time is over."""
        chosen = random.Random(self.options.seed)
        end = self._began + self.options.minutes * 60
        events: list[tuple[Callable[..., str], float]] = [
            (self._kill, self.options.kill_seconds), (self._change_definition, 45.0),
            (self._read_part, 30.0), (self._pause, 60.0), (self._add_table, 90.0),
        ]  # fmt: skip
        due = [(time.monotonic() + chosen.uniform(0.5, 1.0) * every, act, every) for act, every in events]
        while time.monotonic() < end:
            if not writer.running:
                return  # its `stop` says why
            pipeline.ensure_alive()
            when, act, every = min(due, key=lambda one: one[0])
            if when > time.monotonic():
                time.sleep(min(0.5, when - time.monotonic()))  # the pace of looking
                continue
            due.remove((when, act, every))
            due.append((time.monotonic() + chosen.uniform(0.5, 1.5) * every, act, every))
            what = act(server, pipeline, chosen)
            self.happened.append({"at": round(time.monotonic() - self._began, 1), "what": what})
            self.say(f"{self.happened[-1]['at']:7.1f} s: {what}")

    def _kill(self, server: MySqlServer, pipeline: RunningPipeline, chosen: random.Random) -> str:
        victim = chosen.choice(["receiver", "driver"])
        killed = pipeline.kill(victim)  # type: ignore[arg-type]
        pipeline.ensure_alive()
        return f"kill -9 of the {victim}" if killed else f"no {victim} to kill"

    def _change_definition(
        self, server: MySqlServer, pipeline: RunningPipeline, chosen: random.Random
    ) -> str:
        """Of tables into which the writer puts no rows as they are columns come and go; others widen."""
        if chosen.random() < 0.4:
            self.width += 10
            sql = f"ALTER TABLE shop.items MODIFY COLUMN comment VARCHAR({self.width}) NULL"
        elif self.columns and chosen.random() < 0.4:
            sql = f"ALTER TABLE shop.customers DROP COLUMN {self.columns.pop()}"
        else:
            self.columns.append(f"soak_{len(self.happened)}")
            kind = chosen.choice(["INT DEFAULT 7", "VARCHAR(20) DEFAULT 'new'", "DECIMAL(9, 2)"])
            sql = f"ALTER TABLE shop.customers ADD COLUMN {self.columns[-1]} {kind}"
        server.execute("SET lock_wait_timeout = 60", sql)
        return sql

    def _read_part(self, server: MySqlServer, pipeline: RunningPipeline, chosen: random.Random) -> str:
        low = chosen.randrange(1, 2000)
        return _signal(pipeline, "execute-snapshot", {
            "data-collections": ["shop.orders"], "from": [low], "to": [low + chosen.randrange(1, 5000)],
        })  # fmt: skip

    def _pause(self, server: MySqlServer, pipeline: RunningPipeline, chosen: random.Random) -> str:
        said = _signal(pipeline, "pause-snapshot", {})
        time.sleep(chosen.uniform(0.5, 3))
        return f"{said}; {_signal(pipeline, 'resume-snapshot', {})}"

    def _add_table(self, server: MySqlServer, pipeline: RunningPipeline, chosen: random.Random) -> str:
        name = f"table_{len(self.tables)}"
        self.tables.append(name)
        server.execute(
            "CREATE DATABASE IF NOT EXISTS added",
            f"CREATE TABLE added.{name} (id INT PRIMARY KEY, v VARCHAR(40))",
            f"INSERT INTO added.{name} VALUES (1, 'one'), (2, 'two'), (3, 'three')",
        )
        said = _signal(pipeline, "add-table", {"tables": [f"added.{name}"]})
        server.execute(
            f"INSERT INTO added.{name} VALUES (4, 'four')", f"DELETE FROM added.{name} WHERE id = 1"
        )
        return said

    # what is taken down -------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _sampling(self, pipeline: RunningPipeline) -> Iterator[None]:
        done = threading.Event()

        def sample() -> None:
            while not done.wait(SAMPLE_SECONDS):
                try:
                    self.samples.append(_sample(pipeline, time.monotonic() - self._began))
                except Exception:  # a process that ends just now
                    traceback.print_exc()

        thread = threading.Thread(target=sample, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _report(
        self, changes: int, drained: float, tables: list[dict[str, Any]], errors: str
    ) -> dict[str, Any]:
        verdicts = judge(self.samples, self.options.minutes * 60)
        equal = bool(tables) and all(table["equal"] for table in tables)
        return {
            "measured": time.strftime("%Y-%m-%d"),
            "options": self.options.__dict__,
            "changes": changes,
            "seconds_to_drain": round(drained, 1),
            "equal": equal,
            "tables": [{name: one.get(name) for name in ("table", "equal", "rows_source")} for one in tables],
            "verdicts": verdicts,
            "flat": all(verdict["flat"] for verdict in verdicts),
            "happened": self.happened,
            "errors": [] if equal else errors.splitlines()[-40:],
            "samples": self.samples,
        }


def judge(samples: list[dict[str, Any]], seconds: float) -> list[dict[str, Any]]:
    """See the head of this page. A measure without samples in one of the thirds is not judged."""
    warm = seconds * WARM_SHARE
    third = (seconds - warm) / 3
    first = [one for one in samples if warm <= one["at"] < warm + third]
    last = [one for one in samples if one["at"] >= warm + 2 * third]
    found = []
    for kind in (*KINDS, "pipeline"):
        for measured in ("rss_mb", "handles", "threads") if kind != "pipeline" else ("lag_seconds",):
            values = [
                [one[kind][measured] for one in some if kind in one and one[kind].get(measured) is not None]
                for some in (first, last)
            ]
            if not all(values):
                continue
            before, after = map(statistics.median, values)
            flat = after <= before * GROWTH + ALLOWANCES[measured]
            found.append({"of": kind, "measure": measured, "first_third": round(before, 2),
                          "last_third": round(after, 2), "flat": flat})  # fmt: skip
    return found


def _sample(pipeline: RunningPipeline, at: float) -> dict[str, Any]:
    """Sums over the processes of a kind. One that has just begun is left out: it is still growing."""
    taken: dict[str, Any] = {"at": round(at, 1)}
    for kind, processes in pipeline.processes().items():
        sums = {"rss_mb": 0.0, "handles": 0, "threads": 0}
        for process in processes:
            if kind != "workers" and time.time() - process.create_time() < YOUNG_SECONDS:
                sums = {}
                break
            with process.oneshot():
                sums["rss_mb"] += process.memory_info().rss / 1e6
                sums["handles"] += process.num_fds()
                sums["threads"] += process.num_threads()
        if sums and processes:
            taken[kind] = {name: round(value, 1) for name, value in sums.items()}
    lag = (pipeline.latest or {}).get("lag", {})
    taken["pipeline"] = {"lag_seconds": lag.get("seconds"), "lag_bytes": lag.get("bytes"),
                         "epoch": (pipeline.latest or {}).get("epoch")}  # fmt: skip
    return taken


def _signal(pipeline: RunningPipeline, kind: str, data: dict[str, Any]) -> str:
    from penstock.pipeline import Pipeline

    Pipeline.load(pipeline.file).signal(kind, data)
    return f"signal {kind} {json.dumps(data)}"


def _pipeline_file(folder: Path, server: MySqlServer) -> Path:
    document = {
        "name": "soak",
        "source": {
            "host": server.host, "port": server.port, "user": server.user, "password": server.password,
        },
        "tables": ["shop.*"],
        "sink": {"type": "iceberg", "path": str(folder / "warehouse")},
        "state": str(folder / "state"),
        "snapshot": {"chunk_rows": 20_000},
        "relay_log": {"segment_size": "32MiB", "keep_age": "1min"},
    }  # fmt: skip
    file = folder / "soak.yaml"
    file.write_text(yaml.safe_dump(document), "utf-8")
    return file


def _verify(file: Path) -> list[dict[str, Any]]:
    done = subprocess.run(
        measure.program("penstock", "verify", file, "--json"), env=measure.environment(),
        capture_output=True, text=True, check=False, cwd=tempfile.gettempdir(),
    )  # fmt: skip
    try:
        tables: list[dict[str, Any]] = json.loads(done.stdout.strip().splitlines()[-1])["tables"]
        return tables
    except (IndexError, ValueError, KeyError):
        print(done.stderr[-3000:], file=sys.stderr)
        return []


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.soak", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=Options.minutes)
    parser.add_argument("--rate", type=float, default=Options.rate, help="changes a second")
    parser.add_argument("--rows", type=int, default=Options.rows, help="rows before the pipeline starts")
    parser.add_argument("--seed", type=int, default=Options.seed)
    parser.add_argument("--kill-seconds", type=float, default=Options.kill_seconds)
    parser.add_argument("--json", type=Path, default=RESULTS)
    given = vars(parser.parse_args())
    out: Path = given.pop("json")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything started here is stopped
    console = Console(stderr=True)
    report = Soak(Options(**given), lambda text: console.print(text, markup=False, highlight=False)).run()
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    for verdict in report["verdicts"]:
        word = "flat" if verdict["flat"] else "GROWS"
        console.print(f"{verdict['of']} {verdict['measure']}: {verdict['first_third']:g} → "
                      f"{verdict['last_third']:g}, {word}", markup=False)  # fmt: skip
    console.print(f"equal: {report['equal']}; {report['changes']:,} changes; "
                  f"{report['seconds_to_drain']} s to drain", markup=False)  # fmt: skip
    return 0 if report["equal"] and report["flat"] else 1


if __name__ == "__main__":
    sys.exit(main())
