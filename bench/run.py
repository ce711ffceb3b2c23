"""`make bench`: builds the log (once), runs Penstock and its peers on it, prints a table, writes JSON.

    make bench                                   every part but `load`, at full scale (about ten minutes)
    make bench PARTS="decode receiver" SCALE=0.1 some of it, on a smaller log
    make bench PARTS=load ROWS=5000000           a large table read by several connections (about an hour)

Each system runs alone, in processes of its own, against the same server with the same log.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
from rich.console import Console

from bench import log as bench_log
from bench import peers_log, peers_snapshot, report
from bench.load import run as load_run
from bench.load import table
from bench.log import BenchLog
from bench.measure import Figure, Outcome
from bench.ours import Workplace
from penstock.artifacts import cache_directory
from penstock.errors import PenstockError

BUSY_PERCENT = 15

LOG_PARTS = ("receiver", "decode", "snapshot", "merge", "peers")
LOAD = "load"
PARTS = (*LOG_PARTS, LOAD)


def main() -> int:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything started here is stopped
    console = Console(stderr=True)
    try:
        return run(options, console)
    except PenstockError as error:
        console.print(f"bench: {error}", style="red", markup=False)
        return 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--parts",
        default=" ".join(LOG_PARTS),
        help=f"which of: {' '.join(PARTS)} (default: all but {LOAD})",
    )
    parser.add_argument("--scale", type=float, default=1.0, help="size of the log; 1.0: 960,000 changes")
    parser.add_argument("--rows", type=int, default=table.ROWS, help="size of the table of the part `load`")
    parser.add_argument(
        "--repeat", type=int, default=3, help="runs of what is quick, of which the median counts"
    )
    parser.add_argument("--out", type=Path, default=report.RESULTS, help="where the JSON goes")
    parser.add_argument(
        "--load-out", type=Path, default=load_run.RESULTS, help=f"where that of the part `{LOAD}` goes"
    )
    parser.add_argument("--docs", action="store_true", help="also put the figures into docs/performance.md")
    options = parser.parse_args()
    options.parts = options.parts.replace(",", " ").split()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"unknown part {', '.join(sorted(unknown))}; there are: {' '.join(PARTS)}")
    if not 0 < options.scale <= 3:
        parser.error("--scale is a number above 0, at most 3")  # the log must stay one file
    if not table.ROWS_MIN <= options.rows <= table.ROWS_MAX:
        parser.error(f"--rows is a number from {table.ROWS_MIN} to {table.ROWS_MAX}")
    return options


def run(options: argparse.Namespace, console: Console) -> int:
    if (busy := psutil.cpu_percent(interval=2)) > BUSY_PERCENT:
        console.print(
            f"Others use {busy:.0f} % of this machine's cores: expect poor figures.", style="yellow"
        )
    if set(options.parts) & set(LOG_PARTS):
        run_log(options, console)
    if LOAD in options.parts:
        run_load(options, console)
    return 0


def run_log(options: argparse.Namespace, console: Console) -> None:
    console.print(f"the log at scale {options.scale:g} (built the first time, in some minutes) …")
    outcomes: list[Outcome] = []
    with bench_log.running(options.scale) as log, scratch() as folder:
        counts = log.counts
        console.print(
            f"{counts.changes:,} changes, {log.log_bytes / 1e6:.0f} MB, {counts.rows_left:,} rows left"
        )
        for outcome in measured(log, folder, options):
            outcomes.append(outcome)
            console.print(f"  {line(outcome)}", markup=False)
        results = report.Results(outcomes)
        report.write_json(results, options.out)
        report.show(results, people())
        if options.docs:
            report.write_docs(results, report.about(log))


def run_load(options: argparse.Namespace, console: Console) -> None:
    console.print(f"a table of {options.rows:,} rows (made the first time, in some minutes) …")
    outcomes: list[Outcome] = []
    with table.running(options.rows) as load, scratch() as folder:
        console.print(f"{load.rows:,} rows, {load.data_bytes / 1e6:.0f} MB, all in the buffer pool")
        try:
            for outcome in load_run.measured(load, folder, options.repeat):
                outcomes.append(outcome)
                console.print(f"  {line(outcome)}", markup=False)
        finally:  # it takes long: what was measured is kept whatever comes
            results = report.Results(outcomes)
            report.write_json(results, options.load_out)
        report.show(results, people())
        if options.docs:
            load_run.write_docs(results, load)


def people() -> Console:
    return Console(width=None if sys.stdout.isatty() else 120)


def measured(log: BenchLog, folder: Path, options: argparse.Namespace) -> Iterator[Outcome]:
    place = Workplace(log, folder, options.repeat)
    if "receiver" in options.parts:
        yield from place.receiver_figures()
    if "decode" in options.parts:
        yield from place.decode_figures()
    if "snapshot" in options.parts:
        yield from place.snapshot_figures()
    if "merge" in options.parts:
        yield from place.merge_figures()
    if "peers" in options.parts:
        yield from peers_snapshot.figures(log, options.repeat)
        yield from peers_log.figures(log)


def line(outcome: Outcome) -> str:
    if isinstance(outcome, Figure):
        return f"{outcome.task}: {outcome.system} {outcome.wall_s:.2f} s, {outcome.per_second:,.0f}/s"
    return f"{outcome.task}: {outcome.system} not run: {outcome.reason}"


class scratch:
    """A folder for relay logs and warehouses, beside the cache rather than in a /tmp that may be memory."""

    def __enter__(self) -> Path:
        root = cache_directory() / "bench"
        root.mkdir(parents=True, exist_ok=True)
        self.path = Path(tempfile.mkdtemp(prefix="run-", dir=root))
        return self.path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
