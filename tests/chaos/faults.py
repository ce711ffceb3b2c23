"""Each kind of fault, done to a case. Raises `Found` for what must not be."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pymysql
from tests.chaos.case import Case
from tests.chaos.schedule import Fault

from penstock.relaylog.status import read_status

FIND_SECONDS = 20.0
"""A victim may just be being started."""
REFUSED_SECONDS = 240.0
"""Within this time a second driver must have given up, and a purged or exchanged source must be told."""


class Found(Exception):
    """Something is wrong; the message says what."""


def strike(case: Case, fault: Fault) -> None:
    what, _, whom = fault.kind.partition("-")
    DO[what](case, fault, whom)


def between(fault: Fault, low: float, high: float) -> float:
    return low + fault.amount * (high - low)


# processes --------------------------------------------------------------------------------------------------


def kill(case: Case, fault: Fault, victim: str) -> None:
    if victim == "server":
        case.source.server.kill9()
        time.sleep(between(fault, 0.1, 3))
        case.source.server.start()
    elif victim == "compact":
        kill_compact(case, fault)
    else:
        _kill_one(case, victim)


def _kill_one(case: Case, victim: str) -> None:
    deadline = time.monotonic() + FIND_SECONDS
    while not case.service.kill(victim):  # type: ignore[arg-type]
        if time.monotonic() > deadline:
            case.note(f"no {victim} to kill")
            return
        time.sleep(0.02)


def stop(case: Case, fault: Fault, victim: str) -> None:
    """The process stands still, longer than heartbeats may be late (3 s) or not so long."""
    process = _victim(case, victim)
    if process is None:
        case.note(f"no {victim} to stop")
        return
    with contextlib.suppress(psutil.Error):
        process.send_signal(signal.SIGSTOP)
        time.sleep(between(fault, 0.3, 8))
    with contextlib.suppress(psutil.Error):
        process.send_signal(signal.SIGCONT)


def _victim(case: Case, victim: str) -> psutil.Process | None:
    if victim == "server":
        return psutil.Process(case.source.server.pid)
    deadline = time.monotonic() + FIND_SECONDS
    while time.monotonic() < deadline:
        if found := case.service.victims(victim):
            return found[-1]
        time.sleep(0.02)
    return None


def kill_compact(case: Case, fault: Fault) -> None:
    """Some time after its JVM has begun, or not at all."""
    if not case.watch.until(lambda: case.watch.applied() > 0, FIND_SECONDS):
        return
    process = command(case, "compact", str(case.service.file))
    began = time.monotonic()
    with contextlib.suppress(psutil.Error):
        java = psutil.Process(process.pid)
        case.watch.until(lambda: java.children() or process.poll() is not None, FIND_SECONDS)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(between(fault, 1, 14))
    if process.poll() is None:
        for one in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
            with contextlib.suppress(psutil.Error):
                one.kill()
    _, said = process.communicate(timeout=30)
    case.note(f"compact: code {process.returncode} after {time.monotonic() - began:.1f} s")
    if process.returncode not in (0, -9):
        raise Found(f"compact ended with code {process.returncode}: {said[-600:]}")


def command(case: Case, name: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", name, *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **case.service.environment},
    )  # fmt: skip


# the network ------------------------------------------------------------------------------------------------


def net(case: Case, fault: Fault, how: str) -> None:
    proxy = case.proxy
    assert proxy is not None
    match how:
        case "cut":
            for _ in range(fault.count):
                proxy.cut()
                time.sleep(between(fault, 0.05, 1))
            return
        case "stall":
            proxy.stall()
        case "slow":
            proxy.slow(bytes_per_second=2000)
        case "drop":
            proxy.drop()
        case "refuse":
            proxy.refuse()
    time.sleep(between(fault, 0.5, 12))
    proxy.pass_on()


# disks ------------------------------------------------------------------------------------------------------


def full(case: Case, fault: Fault, place: str) -> None:
    disk = case.disks[place]
    disk.fill(left_bytes=int(between(fault, 0, 200_000)) if fault.count > 2 else 0)
    time.sleep(between(fault, 0.5, 8))
    disk.free()


def readonly(case: Case, fault: Fault, place: str) -> None:
    case.preloaded.refuse(errno.EROFS)
    time.sleep(between(fault, 0.5, 8))
    case.preloaded.refuse(0)


# the clock --------------------------------------------------------------------------------------------------

STEPS_SECONDS = (-86400, -3600, -30, -2, 2, 45, 3600, 86400, 30 * 86400)


def clock(case: Case, fault: Fault, _: str) -> None:
    seconds = STEPS_SECONDS[int(fault.amount * len(STEPS_SECONDS)) % len(STEPS_SECONDS)]
    case.note(f"the clock steps by {seconds} s")
    case.preloaded.step_clock(seconds)


# the source -------------------------------------------------------------------------------------------------


def purge(case: Case, fault: Fault, _: str) -> None:
    """Log that was not received goes while nobody receives; the run must end with LogPurged, and the cure
    must work."""
    service = case.service
    service.hold(stop=fault.count % 2 == 0)
    end_run(case)
    case.write_ledger()
    case.note(case.source.purge(case.write_ledger))
    begin_anew(case, told_as(case, "LogPurged"))


def restore(case: Case, fault: Fault, _: str) -> None:
    """The source gets an older copy of its data, and goes on from there under its own name."""
    copy = case.folder / "backup"
    case.source.copy_to(copy)
    case.write_ledger()
    if not case.watch.until(lambda: received(case), FIND_SECONDS * 3, look_seconds=0.1):
        case.note("what is lost was not received before")
    case.source.restore(copy)
    if fault.count > 2:
        case.write_ledger(60)
    case.note("the source is an older copy of itself")
    begin_anew(case, told_as(case, "LogDiverged"))


def received(case: Case) -> bool:
    with contextlib.suppress(pymysql.err.Error, psycopg.Error, KeyError, TypeError):
        goal: Any = case.source.end()
        return case.source.has_received(read_status(case.relay), goal)
    return False


def told_as(case: Case, name: str) -> str:
    """The run ends, or refuses to start, with this error; anything else that ends it meanwhile is judged
    later."""
    service = case.service
    service.release()

    def told() -> bool:
        service.note_end()
        return any(f'"error": "{name}"' in end.errors for end in service.ends)

    if not case.watch.until(told, REFUSED_SECONDS, look_seconds=0.1):
        said = [end.errors[-300:] for end in service.ends[-3:]]
        raise Found(f"{name} was not told within {REFUSED_SECONDS:.0f} s; alive: {service.alive}, {said}")
    return name


def begin_anew(case: Case, why: str) -> None:
    """The cure that messages and docs/operations.md name."""
    case.service.hold(stop=True)
    end_run(case)
    for folder in (case.state, case.relay):
        for entry in folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    case.write_file(namespace="anew")
    case.read_to = {}  # the tables are read again, later
    case.note(f"begins anew after {why}")
    case.service.release()


def end_run(case: Case) -> None:
    """Ends all processes of the run; a JVM may take its time to follow its driver."""
    case.service.close_run()
    if not case.watch.until(lambda: not case.processes(), 60, look_seconds=0.2):
        raise Found(f"processes live on after their driver was killed: {case.processes()}")


def failover(case: Case, fault: Fault, _: str) -> None:
    if not case.source.fail_over(case.watch.until):
        raise Found("the replica cannot take the primary's place: the test's own ground is not firm")
    case.note("the replica is the primary")


# several drivers --------------------------------------------------------------------------------------------


def two(case: Case, fault: Fault, _: str) -> None:
    """While one runs: a second of the same state; then one of a copy of the state, with the same targets."""
    if not case.watch.until(lambda: case.watch.applied() > 0 and case.service.alive, FIND_SECONDS * 2):
        case.note("nothing was applied yet")
        return
    refused(case, case.service.file, "the same state")
    copy = case.folder / "copy"
    with contextlib.suppress(shutil.Error, OSError):  # files come and go meanwhile
        shutil.copytree(case.state, copy, ignore=shutil.ignore_patterns("tmp", "logs"))
    if not (copy / "state.sqlite").exists():
        case.note("no copy could be made")
        return
    place = {"relay_log": {"path": str(case.folder / "copied-relay")}}
    own_relay: dict[str, Any] = {} if fault.count % 2 else place
    if own_relay:
        with contextlib.suppress(shutil.Error, OSError):
            shutil.copytree(case.relay, case.folder / "copied-relay")
    other = case.write_file(name="copy.yaml", state=str(copy), **own_relay)
    refused(case, other, "a copy of the state")


def refused(case: Case, file: Path, what: str) -> None:
    process = command(case, "run", str(file), "--json")
    try:
        code = process.wait(REFUSED_SECONDS)
        _, said = process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        for one in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
            with contextlib.suppress(psutil.Error):
                one.kill()
        raise Found(f"a second driver ran on for {REFUSED_SECONDS:.0f} s with {what}") from None
    if code not in (1, 3):
        raise Found(f"a second driver with {what} ended with code {code}: {said[-500:]}")
    last = said.strip().splitlines()[-1] if said.strip() else ""
    try:
        error = json.loads(last)
    except ValueError:
        raise Found(f"a second driver with {what} said no error of ours: {said[-500:]}") from None
    case.note(f"refused: {what}: {error['error']}: {error['message'][:120]}")


# power ------------------------------------------------------------------------------------------------------


def power(case: Case, fault: Fault, _: str) -> None:
    service = case.service
    service.kept = False
    for process in sorted(case.processes(), key=lambda one: one.pid):
        with contextlib.suppress(psutil.Error):
            process.kill()  # all at once, as near as can be
    case.watch.until(lambda: not case.processes(), 30, look_seconds=0.2)
    service.note_end()
    survival = ("strict", "names", "mixed")[int(fault.amount * 3) % 3]
    lost = case.preloaded.lose_power(case.dice, survival)  # type: ignore[arg-type]
    case.note(f"power is lost ({survival}): {len(lost)} losses, such as {lost[:6]}")
    service.release()


DO: dict[str, Callable[[Case, Fault, str], None]] = {
    "kill": kill, "stop": stop, "net": net, "full": full, "readonly": readonly, "clock": clock,
    "purge": purge, "restore": restore, "failover": failover, "two": two, "power": power,
}  # fmt: skip
