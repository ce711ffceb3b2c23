"""Does anything grow? What was taken down of each process, and what may be said of it.

Of each kind of process the one that lived longest is judged, from when it is a minute old: the median of the
last third of its life may be a little more than that of the first third. How much, and why, is said in
`LIMITS`. Python workers come and go, so of them the largest one at a time counts, and their number. How far
the targets are behind is judged over the whole time but for its beginning.

What cannot be judged, because nothing lived long enough or there are too few samples, is told, not left out.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.lines import Line, digits

PART = "soak"
WARM_SHARE = 0.15
"""Of the time, at its beginning, in which no lag counts."""
YOUNG_SECONDS = 60.0
"""A process that has just begun compiles, imports and fills its pools."""
LIFE_SHARE_MIN = 0.55
"""Of the time, that a process has to live for its kind to be judged."""
SAMPLES_MIN = 20
"""In each of the thirds."""

KINDS = {"driver": "driver", "jvm": "JVM", "receiver": "receiver", "workers": "Python workers"}
SEVERAL = "workers"
"""The kind of which there may be several at a time."""


@dataclass(frozen=True)
class Process:
    """One process at one moment."""

    pid: int
    born: float
    """Seconds from the beginning; before it: negative."""
    measures: Mapping[str, float]


@dataclass(frozen=True)
class Sample:
    """Everything at one moment, in seconds from the beginning."""

    at: float
    processes: Mapping[str, Sequence[Process]]
    """By kind."""
    lag_seconds: float | None = None


@dataclass(frozen=True)
class Limit:
    """The last third may have `times` what the first third has, and `plus`; or `free`, whatever that was."""

    unit: str
    times: float
    plus: float
    samples_min: int = SAMPLES_MIN
    free: float = 0.0

    def most(self, before: float) -> float:
        return max(self.free, before * self.times + self.plus)


def limits(heap_mb: float) -> dict[tuple[str, str], Limit]:
    """By kind and measure. `heap_mb`: what the JVM's heap may take."""
    return {
        # Arrow's and Python's allocators keep what the largest epoch needed, and epochs differ.
        ("driver", "memory"): Limit("MB", 1.1, 32),
        ("driver", "handles"): Limit("", 1.1, 8),
        # A connection of the state, of a signal's table, of a look at the source may be open just now.
        ("driver", "threads"): Limit("", 1.0, 4),
        # A heap grows to its limit before much of it is collected, so only what goes beyond heap, classes and
        # compiled code is too much; what is live says whether the heap fills up.
        ("jvm", "memory"): Limit("MB", 1.1, 64, free=heap_mb + BESIDE_HEAP_MB),
        # After a full collection; epochs under way and what Spark remembers of the last 1,000 jobs are in it.
        ("jvm", "live heap"): Limit("MB", 1.15, 24, samples_min=LIVE_SAMPLES_MIN),
        # Each Python worker and each file being read or written has one.
        ("jvm", "handles"): Limit("", 1.1, 24),
        # Without pools of Spark's that fill up to their size (`samples.FILLING`); others are as large as the
        # number of tasks, files and tables just now.
        ("jvm", "threads"): Limit("", 1.1, 12),
        ("receiver", "memory"): Limit("MB", 1.1, 16),
        ("receiver", "handles"): Limit("", 1.0, 4),
        ("receiver", "threads"): Limit("", 1.0, 2),
        # The largest task of each third: how much it decodes depends on the epoch.
        ("workers", "memory"): Limit("MB", 1.1, 48),
        ("workers", "handles"): Limit("", 1.0, 8),
        ("workers", "threads"): Limit("", 1.0, 4),
        # One for each task at a time, and idle ones end after a minute: chunks being read are what differs.
        ("workers", "number"): Limit("", 1.0, 3),
    }


BESIDE_HEAP_MB = 500.0
LIVE_SAMPLES_MIN = 2
LAG = Limit("s", 1.25, 5)
"""Half of what the pipeline can do leaves room to catch up; a change of a definition or a large transaction
takes seconds now and then."""


@dataclass(frozen=True)
class Verdict:
    """`flat` is None where nothing can be said; then `why` says why."""

    kind: str
    measure: str
    limit: Limit
    first: float | None = None
    last: float | None = None
    why: str = ""
    samples: tuple[int, int] = (0, 0)

    @property
    def flat(self) -> bool | None:
        if self.first is None or self.last is None:
            return None
        return self.last <= self.limit.most(self.first)

    def line(self) -> Line:
        name = f"{KINDS.get(self.kind, self.kind)}, {self.measure}"
        if self.first is None or self.last is None:
            return Line(PART, f"{name}: {self.why}", None, self.limit.unit)
        what = f"{name}: last third (first: {digits(self.first)})"
        return Line(PART, what, self.last, self.limit.unit, round(self.limit.most(self.first), 1))

    def to_json(self) -> dict[str, Any]:
        rounded = [None if value is None else round(value, 2) for value in (self.first, self.last)]
        return {"of": self.kind, "measure": self.measure, "first_third": rounded[0], "last_third": rounded[1],
                "samples": self.samples, "flat": self.flat, "why": self.why}  # fmt: skip


@dataclass
class Life:
    """Of one process, as far as it was seen."""

    born: float
    first: float
    last: float
    samples: list[Sample] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return self.last - self.first


def judge(samples: Sequence[Sample], seconds: float, heap_mb: float) -> list[Verdict]:
    """See the head of this page. `seconds`: how long it all was to last."""
    found = []
    lives = {kind: longest(samples, kind) for kind in KINDS}
    for (kind, measure), limit in limits(heap_mb).items():
        pid, life = lives[kind]
        if life is None:
            found.append(Verdict(kind, measure, limit, why="none was seen"))
        elif life.seconds < LIFE_SHARE_MIN * seconds:
            why = f"none lived for more than {life.seconds / seconds:.0%} of the time"
            found.append(Verdict(kind, measure, limit, why=why))
        else:
            begin = max(life.first, life.born + YOUNG_SECONDS)
            value = _value(kind, measure, pid)
            found.append(_compared(kind, measure, limit, life.samples, (begin, life.last), value))
    span = (WARM_SHARE * seconds, max((one.at for one in samples), default=0.0))
    found.append(_compared("targets", "lag", LAG, samples, span, lambda sample: sample.lag_seconds))
    return found


def longest(samples: Sequence[Sample], kind: str) -> tuple[int, Life | None]:
    """The process of this kind that was seen for the longest time."""
    lives: dict[int, Life] = {}
    for sample in samples:
        for process in sample.processes.get(kind, ()):
            life = lives.setdefault(process.pid, Life(process.born, sample.at, sample.at))
            life.last = sample.at
            life.samples.append(sample)
    if not lives:
        return 0, None
    pid = max(lives, key=lambda pid: lives[pid].seconds)
    return pid, lives[pid]


def _value(kind: str, measure: str, pid: int) -> Callable[[Sample], float | None]:
    def value(sample: Sample) -> float | None:
        processes = sample.processes.get(kind, ())
        if measure == "number":
            return len(processes)
        if kind != SEVERAL:
            processes = [process for process in processes if process.pid == pid]
        return max((one.measures[measure] for one in processes if measure in one.measures), default=None)

    return value


def _compared(
    kind: str,
    measure: str,
    limit: Limit,
    samples: Sequence[Sample],
    span: tuple[float, float],
    value: Callable[[Sample], float | None],
) -> Verdict:
    begin, end = span
    third = (end - begin) / 3
    thirds: dict[int, list[float]] = defaultdict(list)
    for sample in samples:
        if begin <= sample.at <= end and (measured := value(sample)) is not None:
            thirds[min(2, int((sample.at - begin) / third)) if third else 0].append(measured)
    counts = (len(thirds[0]), len(thirds[2]))
    if min(counts) < limit.samples_min:
        why = f"{counts[0]} and {counts[1]} samples in first and last third, {limit.samples_min} are needed"
        return Verdict(kind, measure, limit, why=why, samples=counts)
    first, last = statistics.median(thirds[0]), statistics.median(thirds[2])
    return Verdict(kind, measure, limit, first, last, samples=counts)
