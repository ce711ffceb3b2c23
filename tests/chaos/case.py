"""One seed under way: its database, its pipeline and all that may be done to both."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import yaml
from tests.chaos.ground import Ground
from tests.chaos.leaks import Footprint
from tests.chaos.mysql import MySqlSource
from tests.chaos.operations import Signals
from tests.chaos.postgresql import PostgreSqlSource
from tests.chaos.schedule import Fault, Schedule
from tests.chaos.service import Service
from tests.chaos.watch import Watch

from penstock.testing import workload
from penstock.testing.preload import Preloaded
from penstock.testing.proxy import Proxy
from penstock.testing.scenario import SHORT_LIVED
from penstock.testing.small_disk import SmallDisk

MARK = "PENSTOCK_CHAOS"
"""A variable in the environment of all processes of a seed: its folder."""
KEEP = "PENSTOCK_CHAOS_KEEP"
"""A variable; where it is set folders of seeds stay, to be looked at."""
DISK_MIB = 48
LEDGER = "ledger"


class Case:
    """Context manager: when it is left, nothing of the seed is left, but its folder's content if `keep`."""

    def __init__(self, schedule: Schedule, ground: Ground) -> None:
        self.schedule, self.ground = schedule, ground
        self.dice = random.Random(f"case {schedule.seed}")
        self.folder = ground.folder / f"seed-{schedule.seed}-{os.getpid()}"
        self.namespace = "first"
        self.notes: list[str] = []
        self.skipped: list[str] = []
        self.footprint: Footprint | None = None
        self.read_to: dict[str, int] = {}
        """By table: no key above this one was there when the table was read first."""
        self._stack = ExitStack()

    def __enter__(self) -> Case:
        try:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            self._stack.callback(self._end_processes)
            self._open()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        self._stack.close()

    def note(self, what: str) -> None:
        self.notes.append(f"{time.monotonic() - self.began:6.1f} s  {what}")

    # what there is ------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self.began = time.monotonic()
        schedule, enter = self.schedule, self._stack.enter_context
        self.source = self._source()
        self._stack.callback(self.source.close)
        self.shop = workload.Shop.of_rows(schedule.settings.rows, self.source.namespace)
        self.source.load(self.shop)
        server = self.source.server
        self.proxy = enter(Proxy(server.host, server.port)) if schedule.needs("net-") else None
        self.state, self.relay = self.folder / "state", self.folder / "relay"
        self.lake = self.folder / "lake"
        self.disks: dict[str, SmallDisk] = {}
        for fault in schedule.needs("full-"):
            self._small_disk(fault.kind.partition("-")[2])
        self.watch = Watch(self.state, self.relay, self.lake)
        self.write_file()
        self.preloaded = enter(Preloaded(self.folder / "preload"))
        self.service = Service(self.folder / "pipeline.yaml", environment=self._environment())
        self._stack.callback(self.service.close)
        defaults = schedule.settings.sink != "parquet"
        self.definitions = self.source.definitions(self.dice, defaults=defaults)
        self.signals = Signals(
            self.folder / "pipeline.yaml", self.source.namespace, schedule.settings.sink, self.dice
        )
        self._ledger = itertools.count(1)

    def _source(self) -> MySqlSource | PostgreSqlSource:
        replicated = bool(self.schedule.needs("failover"))
        if self.schedule.source == "postgresql":
            return PostgreSqlSource(self.dice, replicated=replicated)
        shared = None if replicated else self.ground.server
        return MySqlSource(f"chaos_{self.schedule.seed}", shared)

    def _small_disk(self, place: str) -> None:
        if place not in self.disks:
            self.disks[place] = self._stack.enter_context(SmallDisk(self.place(place), mib=DISK_MIB))

    def place(self, name: str) -> Path:
        return {"state": self.state, "relay": self.relay, "target": self.lake}[name]

    def _environment(self) -> dict[str, str]:
        schedule = self.schedule
        given = {MARK: str(self.folder), "PYTHONFAULTHANDLER": "1"}
        if faults := schedule.needs("readonly-"):
            refused = self.place(faults[0].kind.partition("-")[2])
            return given | self.preloaded.environment(refused=refused)
        if schedule.needs("clock-step"):
            return given | self.preloaded.environment(clock=True)
        if schedule.needs("power-loss"):
            for root in (self.state, self.relay):
                root.mkdir()
            return given | self.preloaded.environment(roots=[self.state, self.relay])
        return given

    def write_file(
        self, *, namespace: str | None = None, name: str = "pipeline.yaml", **changes: Any
    ) -> Path:
        self.namespace = namespace or self.namespace
        sections = self.schedule.settings.sections()
        sections["sink"] |= {"path": str(self.lake), "namespace": self.namespace}
        sections["relay_log"] |= {"path": str(self.relay)}
        document = {
            "name": "chaos",
            "source": self.source.section((self.proxy or self.source.server).port),
            "tables": [self.source.pattern],
            "state": str(self.state),
            "spark": {"master": "local[2]", "driver_memory": "500m", "conf": SHORT_LIVED},
            **sections,
            **changes,
        }
        path = self.folder / name
        path.write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")
        return path

    # what goes on -------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def under_way(self) -> Iterator[None]:
        """The pipeline runs and applications write."""
        with self.source.writer(self.shop, self.schedule):
            self.service.__enter__()
            yield

    def write_ledger(self, count: int = 20) -> None:
        """Rows with numbers one after the other, each its own transaction: a gap or a double shows."""
        numbers = itertools.islice(self._ledger, count)
        self.source.insert(LEDGER, [(number, f"row {number}") for number in numbers])

    def faults(self) -> Iterator[Fault]:
        yield from self.schedule.faults

    # its end ------------------------------------------------------------------------------------------------

    def processes(self) -> list[psutil.Process]:
        """All that carry the seed's mark, whoever started them."""
        return marked(self.folder)

    def _end_processes(self) -> None:
        end_processes(self.folder)
        if KEEP not in os.environ:
            shutil.rmtree(self.folder, ignore_errors=True)


def marked(folder: Path) -> list[psutil.Process]:
    found = []
    wanted = f"{MARK}={folder}".encode()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if wanted in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                found.append(process)
    return found


def end_processes(folder: Path) -> None:
    for process in marked(folder):
        with contextlib.suppress(psutil.Error):
            process.kill()
