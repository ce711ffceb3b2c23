"""What this project promises about its speed, held against what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from bench import ours, peers_log, peers_snapshot
from bench.measure import Figure


class Figures(Protocol):
    def figure(self, task: str, system: str = ...) -> Figure | None: ...


@dataclass(frozen=True)
class Goal:
    text: str
    measured: str
    reached: bool


def check(results: Figures) -> list[Goal]:
    """The goals that the run's figures can tell about."""
    return [*_decode(results), *_receive(results), *_snapshot(results), *_merge(results)]


def _at_least(text: str, value: float, least: float, show: Callable[[float], str]) -> Goal:
    return Goal(text, show(value), value >= least)


def _at_most(text: str, value: float, most: float, show: Callable[[float], str]) -> Goal:
    return Goal(text, show(value), value <= most)


def _decode(results: Figures) -> Iterator[Goal]:
    one = results.figure(ours.decode_task("changelog", 1))
    two = results.figure(ours.decode_task("changelog", 2))
    if one is None:
        return
    yield _at_least("decode ≥ 1.2 M changes/s on one core", one.per_second, 1.2e6, _millions)
    yield _at_most("decode ≤ 0.7 CPU-s per million changes", one.cpu_s_per_million, 0.7, _two_digits)
    yield _at_most("decode ≤ 300 MB resident", one.rss_mb, 300, _megabytes)
    if two is not None:
        yield _at_least("decode on two cores ≥ 1.8 times one", one.wall_s / two.wall_s, 1.8, _two_digits)


def _receive(results: Figures) -> Iterator[Goal]:
    receive = results.figure(ours.RECEIVE)
    if receive is None:
        return
    mb_per_s = float(receive.details["mb_per_s"])
    yield _at_least("receiver ≥ 250 MB/s", mb_per_s, 250, lambda value: f"{value:.0f} MB/s")
    yield _at_most("receiver ≤ 0.3 CPU-s per million changes", receive.cpu_s_per_million, 0.3, _two_digits)
    yield _at_most("receiver ≤ 300 MB resident", receive.rss_mb, 300, _megabytes)


def _snapshot(results: Figures) -> Iterator[Goal]:
    for connections in (1, 2):
        task = peers_snapshot.task(connections)
        mine, peer = results.figure(task), results.figure(task, "ConnectorX")
        if mine is not None and peer is not None:
            measured = f"{_thousands(mine.per_second)} against {_thousands(peer.per_second)}"
            text = f"{task}: at least as fast as ConnectorX"
            yield Goal(text, measured, mine.per_second >= peer.per_second)


def _merge(results: Figures) -> Iterator[Goal]:
    merge = results.figure(ours.MERGE)
    if merge is None:
        return
    yield _at_least("merge ≥ 60 k changes/s", merge.per_second, 60_000, _thousands)
    debezium = results.figure(peers_log.READ_LOG, peers_log.DEBEZIUM)
    if debezium is not None:
        measured = f"{_thousands(merge.per_second)} against {_thousands(debezium.per_second)}"
        yield Goal("merge faster than Debezium reads", measured, merge.per_second >= debezium.per_second)


def _millions(value: float) -> str:
    return f"{value / 1e6:.2f} M/s"


def _thousands(value: float) -> str:
    return f"{value / 1e3:.0f} k/s"


def _megabytes(value: float) -> str:
    return f"{value:.0f} MB"


def _two_digits(value: float) -> str:
    return f"{value:.2f}"
