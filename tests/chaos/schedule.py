"""What a seed does: which pipeline, which faults, at which moments. All of it follows from the seed.

A fault has a *kind* and a *moment*. A moment is something that can be seen ("the third chunk is staged"), not
a number of seconds: real processes are never equally fast twice. Each seed has a *lead*, the kind it is there
for; some have further faults, of kinds that any pipeline must live through without a word.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

MYSQL, POSTGRESQL = "mysql", "postgresql"
SOURCES = (MYSQL, POSTGRESQL)
VICTIMS = ("receiver", "driver", "jvm", "worker", "server")
PLACES = ("state", "relay", "target")

KINDS: dict[str, str] = {
    **{f"kill-{victim}": f"kill -9 of the {victim}" for victim in VICTIMS},
    **{f"stop-{victim}": f"SIGSTOP of the {victim}, and SIGCONT some seconds later" for victim in VICTIMS},
    "net-cut": "all connections to the source are reset",
    "net-stall": "connections to the source stay open and pass nothing on, for some seconds",
    "net-slow": "the network passes few bytes a second, for some seconds",
    "net-drop": "connections to the source are half-open, and new ones get no answer, for some seconds",
    "net-refuse": "connections to the source are reset and new ones refused, for some seconds",
    **{f"full-{place}": f"the disk of the {place} is full, for some seconds" for place in PLACES},
    **{
        f"readonly-{place}": f"the disk of the {place} becomes read-only, for some seconds"
        for place in PLACES
    },
    "clock-step": "the wall clock of all our processes steps, forwards or back",
    "purge-log": "the source purges log that was not received",
    "restore-source": "the source is put back to an older copy of its data",
    "failover": "the primary dies, and a replica takes its place",
    "two-drivers": "a second run of the same state, and one of a copy of it, which has the same targets",
    "kill-compact": "kill -9 of `penstock compact` beside the running pipeline",
    "power-loss": "files of the state and the relay log are cut back to what was fsynced",
}
"""Each kind, in words."""

MOMENTS: dict[str, str] = {
    "start": "the process has just been started",
    "chunk": "so many more chunks are staged",
    "planned": "so many more epochs are planned, the last of them not applied",
    "committed": "an epoch is planned and a target has a part of it",
    "applied": "so many more epochs are applied",
    "index": "the relay log's index has so many more entries",
    "ddl": "a definition has just been changed",
    "signal": "a signal has just been sent",
    "unpark": "a table was parked, and its unpark has just been sent",
    "stopping": "SIGTERM has just been sent",
}

ENDS_A_RUN = frozenset(
    {"kill-driver", "kill-jvm", "power-loss", "two-drivers", "purge-log", "restore-source", "failover"}
    | {f"{what}-{place}" for what in ("full", "readonly") for place in PLACES}
)
"""After them a driver is started again, which takes the time of several other faults."""
CUTS_WRITERS = ENDS_A_RUN | {"kill-worker", "kill-compact"}
"""After them data files may lie in a lake that no commit names: docs/operations.md says how they go."""
LAST = ("purge-log", "restore-source", "failover")
"""They change the source for good, so they come last; what goes before is another kind."""
BESIDE = (
    "kill-receiver",
    "kill-worker",
    "stop-receiver",
    "stop-driver",
    "stop-jvm",
    "stop-worker",
    "net-cut",
)
"""Faults that may come beside any lead."""


@dataclass(frozen=True)
class Fault:
    kind: str
    moment: str
    count: int
    """Of the moment: how many."""
    amount: float
    """0 to 1: how long, how far, how much; the kind says of what."""

    def __str__(self) -> str:
        return f"{self.kind}@{self.moment}+{self.count}"


@dataclass(frozen=True)
class Settings:
    sink: str
    rows: int
    rate: int
    chunk_rows: int
    chunks_parallel: int
    epoch_bytes_max: int
    segment_bytes: int
    keeps_log: bool
    """False: segments go as soon as all have passed them."""
    key_index: bool
    fold_commits: int
    large_every_s: float

    def sections(self) -> dict[str, Any]:
        """Of the pipeline file."""
        sink: dict[str, Any] = {"type": self.sink}
        if self.sink == "iceberg":
            sink |= {
                "key_index": self.key_index, "fold_commits": self.fold_commits,
                "maintain_epochs": 6, "snapshots_keep": 2, "snapshots_age": "2s", "files_age": "60s",
            }  # fmt: skip
        elif self.sink == "delta":
            sink["key_index"] = self.key_index
        relay = {"segment_size": self.segment_bytes, "span_size": 65536, "disk_free_min": "1MiB"}
        if not self.keeps_log:
            relay["keep_age"] = "1s"
        return {
            "sink": sink,
            "relay_log": relay,
            "snapshot": {"chunk_rows": self.chunk_rows, "parallel": self.chunks_parallel},
            "epoch": {"interval": "100ms", "bytes_max": self.epoch_bytes_max},
        }


@dataclass(frozen=True)
class Schedule:
    seed: int
    lead: str
    settings: Settings
    faults: tuple[Fault, ...] = field(default_factory=tuple)
    source: str = MYSQL

    @property
    def kinds(self) -> list[str]:
        return list(dict.fromkeys(fault.kind for fault in self.faults))

    def needs(self, prefix: str) -> list[Fault]:
        return [fault for fault in self.faults if fault.kind.startswith(prefix)]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Schedule:
        """A schedule that was kept: it stays what it was when kinds or chances change."""
        faults = tuple(Fault(**fault) for fault in document["faults"])
        source = document.get("source", MYSQL)
        return cls(document["seed"], document["lead"], Settings(**document["settings"]), faults, source)

    def describe(self) -> str:
        """For people: what `--show` prints."""
        lines = [f"seed {self.seed}: {self.lead}", f"  source: {self.source}"]
        lines += [f"  {name}: {value}" for name, value in asdict(self.settings).items()]
        for number, fault in enumerate(self.faults, 1):
            moment = MOMENTS[fault.moment]
            lines.append(f"  {number}. when {moment} ({fault.count}): {KINDS[fault.kind]} ({fault.amount})")
        return "\n".join(lines)


def schedule(seed: int, source: str = MYSQL) -> Schedule:
    dice = random.Random(f"chaos {seed}" if source == MYSQL else f"chaos {source} {seed}")
    lead = dice.choice(list(KINDS))
    settings = _settings(dice, lead)
    if source != MYSQL and settings.sink == "parquet":
        settings = replace(settings, sink="delta")
    faults = [_fault(dice, kind, settings) for kind in _kinds(dice, lead)]
    return Schedule(seed, lead, settings, tuple(faults), source)


def chosen(seeds: Iterable[int], kinds: Iterable[str] = (), source: str = MYSQL) -> list[int]:
    """Those of the seeds that have a fault of one of these kinds; `kill` means all that begin with it."""
    wanted = tuple(kinds)
    if not wanted:
        return list(seeds)
    return [
        seed
        for seed in seeds
        if any(
            kind == name or kind.startswith(f"{name}-")
            for kind in schedule(seed, source).kinds
            for name in wanted
        )
    ]


def _settings(dice: random.Random, lead: str) -> Settings:
    sink = dice.choices(("iceberg", "delta", "parquet"), (60, 20, 20))[0]
    if lead == "kill-compact" and sink == "parquet":
        sink = "iceberg"  # a change log is never compacted
    return Settings(
        sink=sink,
        rows=dice.choice((600, 1500, 3000)),
        rate=dice.choice((60, 150, 300)),
        chunk_rows=dice.choice((80, 250, 1000)),
        chunks_parallel=dice.choice((1, 2, 3)),
        epoch_bytes_max=dice.choice((50_000, 500_000, 50_000_000)),
        segment_bytes=dice.choice((100_000, 1_000_000, 50_000_000)),
        keeps_log=dice.random() < 0.5,
        key_index=dice.random() < 0.7,
        fold_commits=dice.choice((2, 4, 16)),
        large_every_s=dice.choice((0, 3, 6)),
    )


def _kinds(dice: random.Random, lead: str) -> list[str]:
    beside = [dice.choice(BESIDE) for _ in range(dice.choice((0, 1, 1, 2)))]
    if lead == "failover":
        beside = [kind for kind in beside if not kind.startswith("net-")]
    leads = [lead] * (1 if lead in ENDS_A_RUN else dice.choice((1, 2)))
    if lead in LAST:
        return beside + leads
    together = beside + leads
    dice.shuffle(together)
    return together


def _fault(dice: random.Random, kind: str, settings: Settings) -> Fault:
    moments = list(MOMENTS)
    weights = [4 if moment in ("chunk", "planned", "committed") else 2 for moment in moments]
    moment = dice.choices(moments, weights)[0]
    if moment == "stopping" and kind not in ENDS_A_RUN:
        moment = "planned"  # nothing is left that could be seen
    if kind in (*LAST, "kill-compact", "two-drivers") and moment in ("start", "stopping", "chunk"):
        moment = "applied"
    return Fault(kind, moment, dice.randint(1, 4), round(dice.random(), 3))
