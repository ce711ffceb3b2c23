"""How long a backlog takes on many cores, from what each stage costs on one. Arithmetic, no measurement.

The driver gives each task its share of keys and lets it read the whole range (`WHOLE_RANGE_BYTES_MAX`), or
gives it a part of the range and shuffles what each leaves by key. In the first way the reading does not get
less with more cores, in the second the rows are moved once more. Network and disks are taken to keep up; what
they would have to carry is said beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

CORES = (1, 2, 4, 16, 64, 256)
EPOCH_BYTES = 512 * 1024**2
"""The default of `epoch.bytes_max`."""


@dataclass(frozen=True)
class Costs:
    """CPU seconds for a million changes, and for an epoch."""

    scan: float
    """Reading the log of which a task builds next to nothing."""
    build: float
    """Making Arrow of what is left of it."""
    shuffle: float
    reduce: float
    write: float
    epoch: float
    """Seconds of an epoch that holds next to nothing."""
    receive: float
    bytes_per_change: float


@dataclass(frozen=True)
class Estimate:
    cores: int
    way: str
    per_second: float
    """Changes, within an epoch of a million times `millions`."""
    limit: str
    mb_per_s: float
    """Of log that the tasks read together."""


def estimate(costs: Costs, cores: int, *, epoch_bytes: int) -> Estimate:
    millions = epoch_bytes / costs.bytes_per_change / 1e6
    shares = {
        "reading the range": costs.scan * millions,
        "making and writing rows": (costs.build + costs.write) * millions / cores,
        "the epoch itself": costs.epoch,
    }
    parts = {
        "reading and making rows": (costs.scan + costs.build) * millions / cores,
        "the shuffle": (costs.shuffle + costs.reduce) * millions / cores,
        "writing": costs.write * millions / cores,
        "the epoch itself": 2 * costs.epoch,
    }
    ways = {"shares of keys": shares, "parts of the log": parts}
    way = min(ways, key=lambda name: sum(ways[name].values()))
    seconds = sum(ways[way].values())
    read = epoch_bytes * (cores if way == "shares of keys" else 1)
    per_second = millions * 1e6 / seconds
    limit = max(ways[way], key=lambda name: ways[way][name])
    return Estimate(cores, way, per_second, limit, read / seconds / 1e6)


def receiver_limit(costs: Costs) -> float:
    """Changes per second that one receiver takes in on a core of its own."""
    return 1e6 / costs.receive
