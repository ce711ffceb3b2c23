"""`make bench`: builds the logs (once), runs Penstock and its peers on them, prints tables, writes JSON.

    make bench                                   every part but the long ones, on the workload `orders`
    make bench WORKLOADS=all                     the same on each of the workloads
    make bench PARTS="decode receiver" SCALE=0.1 some of it, on a smaller log
    make bench PARTS=load ROWS=5000000           a large table read by several connections (about an hour)
    make bench PARTS=backlog                     ten million changes into Iceberg (about 15 minutes)
    make bench PARTS="lake cluster"              on a disk, in a store, by executors (about 10 minutes)
    make bench PARTS=kafka                       to a broker, and how long a message takes (about 10 minutes)
    make bench PARTS=serve                       the subscription server beside Canal's (about 5 minutes)
    make bench PARTS=table_size ROWS=100000000   small epochs on tables of 1 million rows and more
    make bench PARTS=live_reads                  reads of a table under updates (about 5 minutes)
    make bench PARTS=postgres                    PostgreSQL as a source, beside others (about 20 minutes)
    make bench PARTS=scale                       much of everything (about 20 minutes)
    make bench PARTS=soak ARGS="--minutes 30"    a pipeline under load, with kills (about 40 minutes)

Each system runs alone, in processes of its own, against the same server with the same log.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import psutil
from rich.console import Console

from bench import (
    across,
    backlog,
    goals,
    kafka,
    lake,
    live_reads,
    ours,
    peers_log,
    peers_snapshot,
    report,
    table_size,
    warm,
)
from bench import log as bench_log
from bench.kept import Kept, Run
from bench.latency import run as latency_run
from bench.latency.changes import CHANGES_PER_S
from bench.load import run as load_run
from bench.load import table
from bench.log import BenchLog
from bench.measure import Figure, Outcome
from bench.ours import ORDERS, Workplace
from bench.place import scratch
from bench.postgres import run as postgres_run
from bench.scale import run as scale_run
from bench.serve import run as serve_run
from bench.soak import run as soak_run
from bench.stages import run as stages_run
from bench.workload import Workload
from bench.workloads import WORKLOADS
from penstock.errors import PenstockError

BUSY_PERCENT = 15

STAGES = "stages"
BACKLOG = "backlog"
LAKE = "lake"
CLUSTER = "cluster"
KAFKA = "kafka"
LOG_PARTS = ("receiver", "decode", "snapshot", "merge", STAGES, "peers")
LATENCY = "latency"
SERVE = "serve"
LOAD = "load"
TABLE_SIZE = "table_size"
LIVE_READS = "live_reads"
POSTGRES = "postgres"
SCALE = "scale"
SOAK = "soak"
LONG_PARTS = (BACKLOG, LAKE, CLUSTER, KAFKA, LOAD, SERVE, TABLE_SIZE, LIVE_READS, POSTGRES, SCALE, SOAK)
SPARK_PARTS = ("merge", STAGES, LATENCY, *(part for part in LONG_PARTS if part not in (SERVE, POSTGRES)))
PARTS = (*LOG_PARTS, LATENCY, *LONG_PARTS)


def main() -> int:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything started here is stopped
    console = Console(stderr=True, width=None if sys.stderr.isatty() else 130)
    try:
        return run(options, console)
    except PenstockError as error:
        console.print(f"bench: {error}", style="red", markup=False)
        return 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    unless = f"which of: {' '.join(PARTS)} (default: all but {', '.join(LONG_PARTS)})"
    parser.add_argument("--parts", default=" ".join((*LOG_PARTS, LATENCY)), help=unless)
    parser.add_argument(
        "--workloads", default=ORDERS, help=f"logs to read: all, or some of {' '.join(WORKLOADS)}"
    )
    parser.add_argument("--peers", default="", help="only peers with one of these words in their names")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the logs; orders: 960,000 changes")
    parser.add_argument(
        "--rows",
        type=int,
        default=table.ROWS,
        help="size of the table of the parts `load`, `table_size` and `live_reads`",
    )
    parser.add_argument(
        "--seconds", type=int, default=latency_run.SECONDS, help="how long the part `latency` counts changes"
    )
    parser.add_argument(
        "--repeat", type=int, default=3, help="runs of what is quick, of which the median counts"
    )
    parser.add_argument("--out", type=Path, default=report.RESULTS, help="where the JSON goes")
    for part, path in (
        (BACKLOG, backlog.RESULTS),
        (LAKE, lake.LAKE_RESULTS),
        (CLUSTER, lake.CLUSTER_RESULTS),
        (KAFKA, kafka.RESULTS),
        (LATENCY, latency_run.RESULTS),
        (LOAD, load_run.RESULTS),
        (SERVE, serve_run.RESULTS),
    ):
        parser.add_argument(
            f"--{part}-out", type=Path, default=path, help=f"where that of the part `{part}` goes"
        )
    parser.add_argument("--docs", action="store_true", help="also put the figures into docs/performance.md")
    load_run.add_arguments(parser)
    postgres_run.add_arguments(parser)
    scale_run.add_arguments(parser)
    soak_run.add_arguments(parser)
    options = parser.parse_args()
    options.peers = words(options.peers)
    options.parts = chosen(parser, "part", options.parts, PARTS)
    options.workloads = chosen(parser, "workload", options.workloads, WORKLOADS)
    options.much_of = chosen(parser, "thing", options.much_of, scale_run.OF)
    options.postgres_of = chosen(parser, "part of `postgres`", options.postgres_of, postgres_run.OF)
    options.load_of = chosen(parser, "part of `load`", options.load_of, load_run.OF)
    soak_run.check(parser, options)
    if not 0 < options.scale <= 3:
        parser.error("--scale is a number above 0, at most 3")  # the log must stay one file
    if not table.ROWS_MIN <= options.rows <= table.ROWS_MAX:
        parser.error(f"--rows is a number from {table.ROWS_MIN} to {table.ROWS_MAX}")
    if not latency_run.SECONDS_MIN <= options.seconds <= latency_run.SECONDS_MAX:
        parser.error(f"--seconds is a number from {latency_run.SECONDS_MIN} to {latency_run.SECONDS_MAX}")
    return options


def words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def chosen(parser: argparse.ArgumentParser, what: str, text: str, known: Iterable[str]) -> list[str]:
    """The names in `text`, in the order in which they are known."""
    names = set(known) if text == "all" else set(words(text))
    if unknown := names - set(known):
        parser.error(f"unknown {what} {', '.join(sorted(unknown))}; there are: {' '.join(known)}")
    return [name for name in known if name in names]


def run(options: argparse.Namespace, console: Console) -> int:
    if (busy := psutil.cpu_percent(interval=2)) > BUSY_PERCENT:
        console.print(
            f"Others use {busy:.0f} % of this machine's cores: expect poor figures.", style="yellow"
        )
    if set(options.parts) & set(SPARK_PARTS):
        warm.prepare_spark()
    if set(options.parts) & set(LOG_PARTS):
        run_logs(options, console)
    for part in BACKLOGS:
        if part in options.parts:
            run_backlog(options, console, part)
    if KAFKA in options.parts:
        run_kafka(options, console)
    if SERVE in options.parts:
        run_serve(options, console)
    if LATENCY in options.parts:
        run_latency(options, console)
    if LOAD in options.parts:
        run_load(options, console)
    if TABLE_SIZE in options.parts:
        run_table_size(options, console)
    if LIVE_READS in options.parts:
        run_live_reads(options, console)
    if POSTGRES in options.parts:
        console.print(f"postgres at scale {options.scale:g}: {', '.join(options.postgres_of)} …")
        postgres_run.run(options, lambda text: console.print(text, markup=False), people())
    if SCALE in options.parts:
        console.print(f"much of {', '.join(options.much_of)} …")
        scale_run.run(options, lambda text: console.print(text, markup=False), people())
    if SOAK in options.parts:
        console.print(f"a soak of {options.minutes:g} minutes …")
        return soak_run.run(options, lambda text: console.print(text, markup=False), people())
    return 0


def run_logs(options: argparse.Namespace, console: Console) -> None:
    kept = Kept(options.out)
    for name in options.workloads:
        console.print(f"{name} at scale {options.scale:g} (its log is built the first time, in minutes) …")
        with bench_log.running(options.scale, WORKLOADS[name]) as log, scratch() as folder:
            run = Run(report.log_of(log))
            console.print(f"  {run.about}", markup=False)
            try:
                for outcome in measured(log, folder, options):
                    run.outcomes.append(replace(outcome, workload=name))
                    console.print(f"  {line(outcome)}", markup=False)
            finally:  # the next one may take long: what was measured is kept whatever comes
                kept.runs[name] = run
                kept.write()
        people().rule(name)
        report.show(run.ways, people())
        report.show_goals(goals.check(run.ways) if name == ORDERS else across.check({name: run}), people())
        if options.docs:
            if name == ORDERS:
                report.write_docs(run.ways, f"Measured on {run.machine}. {run.about}")
                results = report.Results(run.outcomes)
                stages = results.figure(stages_run.TASK)
                if stages is not None:
                    stages_run.write_docs(stages, results.figure(ours.RECEIVE))
            across.write_docs({name: kept.runs[name] for name in WORKLOADS if name in kept.runs})


def run_latency(options: argparse.Namespace, console: Console) -> None:
    console.print(f"latency at {CHANGES_PER_S:,} changes/s for {options.seconds} s …")
    outcomes: list[Outcome] = []
    with scratch() as folder:
        for outcome in latency_run.measured(folder, options.seconds, options.peers):
            outcomes.append(outcome)
            console.print(f"  {latency_run.line(outcome)}", markup=False)
    report.write_json(report.Results(outcomes), options.latency_out)
    if options.latency_out == latency_run.RESULTS:
        on_s3 = [one for one in outcomes if one.system == latency_run.PIPELINE_S3]
        report.write_json(report.Results(on_s3), latency_run.S3_RESULTS)
    latency_run.show(report.Results(outcomes), people())
    if options.docs:
        latency_run.write_docs(report.Results(outcomes))


def run_kafka(options: argparse.Namespace, console: Console) -> None:
    console.print(f"kafka at scale {options.scale:g} (its log is built the first time, in minutes) …")
    with bench_log.running(options.scale, WORKLOADS[ORDERS]) as log, scratch() as folder:
        outcomes = []
        for outcome in kafka.measured(Workplace(log, folder, 1), options.seconds, options.peers):
            outcomes.append(outcome)
            text = kafka.line(outcome) if isinstance(outcome, Figure) else line(outcome)
            people().print(text, markup=False)
    report.write_json(report.Results(outcomes), options.kafka_out)
    report.show_goals(kafka.check(report.Results(outcomes)), people())


def run_serve(options: argparse.Namespace, console: Console) -> None:
    console.print(f"serve at scale {options.scale:g} (its log is built the first time, in minutes) …")
    outcomes: list[Outcome] = []
    with scratch() as folder:
        with bench_log.running(options.scale, WORKLOADS[ORDERS]) as log:
            about = report.log_of(log)
            found = serve_run.log_outcomes(log, folder, options.repeat)
            for outcome in found:
                outcomes.append(outcome)
                console.print(f"  {serve_run.line(outcome)}", markup=False)
        for outcome in serve_run.live_outcomes(folder, serve_run.SECONDS):
            outcomes.append(outcome)
            console.print(f"  {serve_run.line(outcome)}", markup=False)
    results = report.Results(outcomes)
    report.write_json(results, options.serve_out)
    serve_run.show(results, people())
    if options.docs:
        serve_run.write_docs(results, about)


def run_table_size(options: argparse.Namespace, console: Console) -> None:
    console.print(f"small epochs on tables of up to {options.rows:,} rows …")
    found = table_size.run(options.rows, table_size.RESULTS, lambda text: console.print(text, markup=False))
    report.show_goals(table_size.goals(found), people())
    if options.docs:
        table_size.write_docs(table_size.RESULTS)


def run_live_reads(options: argparse.Namespace, console: Console) -> None:
    console.print(f"reads of a table of {options.rows:,} rows under updates …")
    found = live_reads.run(options.rows, live_reads.RESULTS, lambda text: console.print(text, markup=False))
    report.show_goals(live_reads.goals(found), people())
    if options.docs:
        live_reads.write_docs(found)


@dataclass(frozen=True)
class Backlog:
    """A part in which pipelines merge a log that waits for them."""

    workload: Workload
    measured: Callable[[Workplace], Iterator[Outcome]]
    goals: Callable[[report.Results], list[str]]
    write_docs: Callable[[report.Results, str], None]


BACKLOGS = {
    BACKLOG: Backlog(backlog.WORKLOAD, backlog.measured, backlog.goals, backlog.write_docs),
    LAKE: Backlog(WORKLOADS[ORDERS], lake.measured_lake, lake.goals, partial(lake.write_docs, part=LAKE)),
    CLUSTER: Backlog(
        WORKLOADS[ORDERS], lake.measured_cluster, lake.goals, partial(lake.write_docs, part=CLUSTER)
    ),
}


def run_backlog(options: argparse.Namespace, console: Console, part: str) -> None:
    console.print(f"{part} at scale {options.scale:g} (its log is built the first time) …")
    what = BACKLOGS[part]
    with bench_log.running(options.scale, what.workload) as log, scratch() as folder:
        head = f"Measured on {report.machine()}. {report.log_of(log)}"
        outcomes = []
        for outcome in what.measured(Workplace(log, folder, 1)):
            outcomes.append(outcome)
            console.print(f"  {line(outcome)}", markup=False)
    results = report.Results(outcomes)
    report.write_json(results, getattr(options, f"{part}_out"))
    report.show(results, people())
    for text in what.goals(results):
        people().print(text, markup=False)
    if options.docs:
        what.write_docs(results, head)


def run_load(options: argparse.Namespace, console: Console) -> None:
    console.print(f"a table of {options.rows:,} rows (made the first time, in some minutes) …")
    outcomes = load_run.known(options.load_out, options.rows)
    with table.running(options.rows) as load, scratch() as folder:
        console.print(f"{load.rows:,} rows, {load.data_bytes / 1e6:.0f} MB, all in the buffer pool")
        try:
            for outcome in load_run.measured(load, folder, options.repeat, options.load_of):
                load_run.put(outcomes, outcome)
                console.print(f"  {line(outcome)}", markup=False)
        finally:  # it takes long: what was measured is kept whatever comes
            results = report.Results(outcomes)
            report.write_json(results, options.load_out)
        report.show(results, people())
        report.show_goals(goals.check(results), people())
        if options.docs:
            load_run.write_docs(results, load)


def people() -> Console:
    return Console(width=None if sys.stdout.isatty() else 130)


def measured(log: BenchLog, folder: Path, options: argparse.Namespace) -> Iterator[Outcome]:
    place = Workplace(log, folder, options.repeat)
    if "receiver" in options.parts:
        yield from place.receiver_figures()
    if "decode" in options.parts:
        yield from place.decode_figures()
    tables = log.workload.name == ORDERS  # the others are about logs
    if "snapshot" in options.parts and tables:
        yield from place.snapshot_figures()
    if "merge" in options.parts:
        yield from place.merge_figures()
    if STAGES in options.parts and tables:
        yield from stages_run.measured(place)
    if "peers" in options.parts:
        if tables and not options.peers:
            yield from peers_snapshot.figures(log, options.repeat)
        yield from peers_log.figures(log, options.peers)


def line(outcome: Outcome) -> str:
    if isinstance(outcome, Figure):
        return f"{outcome.task}: {outcome.system} {outcome.wall_s:.2f} s, {outcome.per_second:,.0f}/s"
    return f"{outcome.task}: {outcome.system} not run: {outcome.reason}"


if __name__ == "__main__":
    sys.exit(main())
