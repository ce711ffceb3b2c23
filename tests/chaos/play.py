"""One seed from its beginning to the verdict."""

from __future__ import annotations

import contextlib
import signal
import time
import traceback
from dataclasses import asdict, dataclass, field
from typing import Any

import psutil
import psycopg
import pymysql
from tests.chaos import judge, orphans
from tests.chaos.case import LEDGER, Case
from tests.chaos.faults import Found, strike
from tests.chaos.ground import Ground
from tests.chaos.leaks import footprint, grown
from tests.chaos.schedule import CUTS_WRITERS, ENDS_A_RUN, MYSQL, Fault, Schedule

from penstock.errors import PenstockError
from penstock.testing import preload, small_disk
from penstock.testing.servers import MySqlServer

MOMENT_SECONDS = 25.0
"""A moment that has not come by then is taken as it is, and the note says so."""
STILL_SECONDS = 120.0
"""Without faults a pipeline that is not level with its source gets on within this time, or hangs."""
DRAIN_SECONDS_MAX = 400.0
BEGIN_SECONDS = 150.0
"""For a pipeline to begin to work, on a machine that is busy."""
STOP_SECONDS = 45.0
CALM_SECONDS = 90.0
REFUSED = (pymysql.err.Error, psycopg.Error)
"""What a client of a source gets that is killed or busy."""


@dataclass
class Verdict:
    seed: int
    lead: str
    sink: str
    faults: list[str]
    source: str = MYSQL
    found: list[str] = field(default_factory=list)
    skipped: str = ""
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def verdict_of(schedule: Schedule) -> Verdict:
    faults = [str(fault) for fault in schedule.faults]
    return Verdict(schedule.seed, schedule.lead, schedule.settings.sink, faults, schedule.source)


def missing(schedule: Schedule) -> str:
    """Why it cannot be played here; empty: it can."""
    if schedule.needs("full-") and (why := small_disk.missing()):
        return why
    if any(schedule.needs(name) for name in ("readonly-", "clock-", "power-")):
        return preload.missing()
    return ""


def play(schedule: Schedule, ground: Ground) -> Verdict:
    """Whatever is wrong stands in the verdict's `found`; nothing is raised."""
    verdict, began = verdict_of(schedule), time.monotonic()
    if why := missing(schedule):
        verdict.skipped = why
        return verdict
    case = None
    try:
        with Case(schedule, ground) as case:
            _play(case, verdict.found)
    except Found as wrong:
        verdict.found.append(str(wrong))
    except AssertionError as error:
        verdict.found.append(f"stuck: {str(error)[:2500]}")
    except Exception:
        verdict.found.append(f"the suite itself: {traceback.format_exc()[-2500:]}")
    if case is not None:
        verdict.notes = case.notes
    if verdict.found or schedule.lead == "restore-source":
        ground.renew()
    verdict.seconds = round(time.monotonic() - began, 1)
    return verdict


def _play(case: Case, found: list[str]) -> None:
    with case.under_way():
        for fault in case.faults():
            case.write_ledger(5)
            try:
                _prepare(case, fault)
                strike(case, fault)
            finally:
                _remember_calm(case)
            case.service.ensure_alive()
            with contextlib.suppress(*REFUSED):
                case.write_ledger(5)
        _run_on(case)
    case.write_ledger(10)
    _drain(case)
    found += _judge_running(case)
    code = _end(case, found)
    found += _judge_ended(case, code)


def _prepare(case: Case, fault: Fault) -> None:
    """Brings about the moment, or waits for it."""
    service, watch = case.service, case.watch
    moment = fault.moment
    if moment == "start":
        if watch.applied():
            service.hold(stop=fault.amount > 0.5)
            service.close_run()
            service.release()
        service.ensure_alive()
        time.sleep(fault.amount * 6)  # a start has many moments, and few of them can be seen
    elif moment == "stopping":
        watch.until(watch.applied, BEGIN_SECONDS)
        service.kept = False
        if service.alive and service._process is not None:
            service._process.terminate()
        time.sleep(fault.amount * 1.5)
        service.release()
    else:
        begun = watch.chunks_staged if moment == "chunk" else watch.applied
        watch.until(begun, BEGIN_SECONDS)
        if moment in ("ddl", "signal", "unpark"):
            _operate(case, moment)
            moment = ("now", "planned", "committed", "chunk")[fault.count - 1]
        elif moment == "chunk" and _has_read_all(case):
            _operate(case, "signal")
        if not watch.reach(moment, fault.count, MOMENT_SECONDS):
            case.note(f"{moment} did not come")
    case.note(f"{fault}")


def _operate(case: Case, what: str) -> None:
    try:
        if what == "ddl":
            case.note(case.definitions.change())
        elif what == "signal":
            case.note(case.signals.any())
        else:
            case.note(case.signals.park())
            case.watch.reach("planned", 2, 5)
            case.note(case.signals.unpark())
    except (*REFUSED, PenstockError) as error:
        case.note(f"{what}: {error}")


def _has_read_all(case: Case) -> bool:
    snapshot = case.service.latest.get("snapshot", {})
    return bool(snapshot.get("done"))


def _remember_calm(case: Case) -> None:
    """The footprint of a pipeline that has worked for a while; of the newest driver. And the highest keys of
    the first time: only these can have been read from the tables, and not from the log."""
    if case.watch.applied() and not case.read_to:
        case.read_to = case.source.highest
    worked = case.service.latest.get("since_start", {}).get("epochs", 0)  # by this very process
    if worked > 5 and case.service.alive:
        case.footprint = footprint(case.service)


def _run_on(case: Case) -> None:
    """After the last fault the stream goes on, with a change of a definition more."""
    goal = case.watch.applied() + 3
    case.watch.until(lambda: case.watch.applied() >= goal, CALM_SECONDS)
    case.read_to = case.read_to or case.source.highest
    for what in ("ddl", "signal"):
        if case.dice.random() < 0.5:
            _operate(case, what)
    case.watch.until(lambda: case.watch.applied() >= goal + 3, 5)


def _drain(case: Case) -> None:
    """Returns when all that is committed has arrived; it takes as long as there is progress."""
    case.preloaded.refuse(0)
    case.service.release()
    seconds = 0.0
    while True:
        before = _progress(case)
        try:
            case.source.drain(case.service, seconds=STILL_SECONDS)
            if not case.watch.until(lambda: not case.watch.reads_parts(), STILL_SECONDS, look_seconds=0.1):
                raise Found("stuck: a part of a table that a signal asked for is not read")
            return
        except AssertionError as error:
            seconds += STILL_SECONDS
            if parked := _parked(case):
                raise Found("; ".join(parked)) from None
            if _progress(case) == before or seconds > DRAIN_SECONDS_MAX:
                raise Found(f"stuck: {_brief(str(error))}{_evidence(case)}") from None


def _progress(case: Case) -> tuple[int, ...]:
    return case.watch.applied(), case.watch.chunks_staged(), case.watch.index_entries()


def _evidence(case: Case) -> str:
    """What may tell why nothing goes on: it is gone with the seed."""
    lines = [f"a run ended with {end.code}: {end.errors[-900:]}" for end in case.service.ends[-2:]]
    for one in case.processes():
        with contextlib.suppress(psutil.Error):  # it may end meanwhile
            lines.append(f"process {one.pid}: {' '.join(one.cmdline()[2:4])} {one.status()}")
    for name in ("receiver.json", "receiver.log"):
        with contextlib.suppress(OSError):
            lines.append(f"{name}: {(case.relay / name).read_text(errors='replace')[-2500:]}")
    with contextlib.suppress(*REFUSED):
        lines += [f"connection: {row}" for row in case.source.activity()]
    return "".join(f"\n{line}" for line in [*lines, *_stacks(case)])


def _stacks(case: Case) -> list[str]:
    """What each thread waits for. The JVM goes on; Python's processes end."""
    case.service.kept = False
    pythons = []
    for one in case.processes():
        with contextlib.suppress(psutil.Error):
            is_java = "java" in one.name()
            one.send_signal(signal.SIGQUIT if is_java else signal.SIGABRT)
            if not is_java:
                pythons.append(one)
    psutil.wait_procs(pythons, timeout=10)
    case.watch.until(lambda: "Current thread" in case.service.errors, 10, look_seconds=0.1)
    lines = [f"threads of the driver: {case.service.errors[-20_000:]}"]
    for name in ("receiver.log", "logs/spark.stderr"):
        for folder in (case.relay, case.state):
            with contextlib.suppress(OSError):
                lines.append(f"{name}: {(folder / name).read_text(errors='replace')[-60_000:]}")
    return lines


def _brief(said: str) -> str:
    """Its beginning, and what a run said on stderr at its end."""
    _, _, errors = said.partition("errors: ")
    return f"{said[:6000]} … errors: {errors[-1500:]}"


def _parked(case: Case) -> list[str]:
    return [
        f"{table['table']} is parked: {table['parked']['reason']} {table['parked']['hint']}"
        for table in case.service.latest.get("tables", [])
        if table.get("parked")
    ]


def _judge_running(case: Case) -> list[str]:
    found = _parked(case)
    if case.footprint is not None:
        found += [f"leak: {what}" for what in grown(case.footprint, footprint(case.service))]
    return found


def _end(case: Case, found: list[str]) -> int | None:
    began = time.monotonic()
    code = case.service.hold(stop=True)
    if (seconds := time.monotonic() - began) > STOP_SECONDS:
        found.append(f"SIGTERM took {seconds:.0f} s")
    if not case.watch.until(lambda: not case.processes(), 15, look_seconds=0.2):
        names = [process.name() for process in case.processes()]
        found.append(f"processes live on after the run has ended: {names}")
    return code


def _judge_ended(case: Case, code: int | None) -> list[str]:
    found = [] if code in (0, 5) else [f"the last run ended with code {code}"]
    may_end = any(fault.kind in ENDS_A_RUN or _takes_the_source(fault) for fault in case.schedule.faults)
    said = [judge.ends_differ(end.code, end.errors, may_end=may_end) for end in case.service.ends]
    found += dict.fromkeys(line for lines in said for line in lines)
    found += _judge_targets(case)
    for disk in case.disks.values():
        disk.free()
    sink, namespace = case.schedule.settings.sink, case.lake / case.namespace
    was_cut = any(end.code in (-9, 5) for end in case.service.ends)  # also what a fault at a start does
    was_cut |= any(fault.kind in CUTS_WRITERS for fault in case.schedule.faults)
    found += orphans.in_relay(case.relay)
    found += orphans.in_state(case.state, by_force=code == 5, was_cut=was_cut)
    left = orphans.in_lake(case.ground.spark, sink, namespace)
    if left and was_cut:
        case.note(f"{len(left)} files in the lake that no commit names, of writers that were cut off")
        return found
    return found + left


def _takes_the_source(fault: Fault) -> bool:
    """A run that begins just then is refused: it cannot look at the source."""
    return fault.kind.startswith("net-") or fault.kind in ("kill-server", "stop-server")


def _judge_targets(case: Case) -> list[str]:
    found: list[str] = []
    sink, source = case.schedule.settings.sink, case.source
    for table in source.tables():
        path = case.lake / case.namespace / table
        name = f"{source.namespace}.{table}"
        try:
            frame = judge.target(case.ground.spark, sink, path)
            if sink != "parquet":
                found.append(source.rows_differ(table, frame))
                continue
            server = source.server
            assert isinstance(server, MySqlServer)  # change logs of other sources are not played
            found += judge.log_differs(server, name, frame, read_to=case.read_to.get(table))
            if table == LEDGER:
                found += judge.ledger_differs(_numbers(frame), judge.ids_of(server, name))
        except Exception as error:
            found.append(f"{name}: its target cannot be read: {str(error)[:400]}")
    return [line for line in found if line]


def _numbers(frame: Any) -> list[int]:
    """Of the ledger, after it was last read from its beginning."""
    rows = [tuple(row) for row in frame.select("_sequence", "_change_type", "id").collect()]
    since = max((row[0] for row in rows if row[1] == "truncate"), default=-1)
    return [row[2] for row in rows if row[1] in ("insert", "read") and row[0] > since]
