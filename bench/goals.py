"""What this project promises about its speed, held against what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from bench import ours, peers_log, peers_snapshot
from bench.load import tasks as load_tasks
from bench.measure import Figure

_FLAT = 1.2


class Figures(Protocol):
    def figure(self, task: str, system: str = ...) -> Figure | None: ...


@dataclass(frozen=True)
class Goal:
    text: str
    measured: str
    reached: bool


def check(results: Figures) -> list[Goal]:
    """The goals that the run's figures can tell about."""
    log = [*_decode(results), *_encode(results), *_receive(results), *_snapshot(results), *_merge(results)]
    return [*log, *_load(results), *_memory(results)]


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
    yield _at_most("decode ≤ 0.45 CPU-s per million changes", one.cpu_s_per_million, 0.45, _two_digits)
    yield _at_most("decode ≤ 300 MB resident", one.rss_mb, 300, _megabytes)
    if two is not None:
        yield _at_least("decode on two cores ≥ 1.9 times one", one.wall_s / two.wall_s, 1.9, _two_digits)


def _encode(results: Figures) -> Iterator[Goal]:
    for format, least in (("debezium", 0.5e6), ("maxwell", 0.6e6), ("avro", 1e6)):
        found = results.figure(ours.encode_task(format))
        if found is not None:
            name = format.capitalize()
            yield _at_least(f"{name} ≥ {least / 1e6} M messages/s", found.per_second, least, _millions)


def _receive(results: Figures) -> Iterator[Goal]:
    receive = results.figure(ours.RECEIVE)
    if receive is None:
        return
    mb_per_s = float(receive.details["mb_per_s"])
    yield _at_least("receiver ≥ 250 MB/s", mb_per_s, 250, lambda value: f"{value:.0f} MB/s")
    yield _at_most("receiver ≤ 0.3 CPU-s per million changes", receive.cpu_s_per_million, 0.3, _two_digits)
    yield from receiver_share(results)
    yield _at_most("receiver ≤ 300 MB resident", receive.rss_mb, 300, _megabytes)


def receiver_share(results: Figures) -> Iterator[Goal]:
    """Of the speed at which a raw socket gives the same bytes."""
    receive, raw = results.figure(ours.RECEIVE), results.figure(ours.RECEIVE, ours.PACKETS)
    if receive is not None and raw is not None:
        share = raw.wall_s / receive.wall_s
        yield _at_least("receiver ≥ 0.7 of a raw socket's speed", share, 0.7, _two_digits)


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
    yield _at_least("merge ≥ 150 k changes/s", merge.per_second, 150_000, _thousands)
    debezium = results.figure(peers_log.READ_LOG, peers_log.DEBEZIUM)
    if debezium is not None:
        measured = f"{_thousands(merge.per_second)} against {_thousands(debezium.per_second)}"
        yield Goal("merge faster than Debezium reads", measured, merge.per_second >= debezium.per_second)


def _load(results: Figures) -> Iterator[Goal]:
    """For the speed like beside like: both into Arrow. For the CPU also what is staged, which does more."""
    for task in load_tasks.LOADS:
        arrow = results.figure(task, load_tasks.TO_ARROW)
        peer = results.figure(task, load_tasks.CONNECTORX)
        if arrow is not None and peer is not None:
            measured = f"{_thousands(arrow.per_second)} against {_thousands(peer.per_second)}"
            yield Goal(
                f"{task}: at least as fast as ConnectorX", measured, arrow.per_second >= peer.per_second
            )
    for task in load_tasks.LOADS:
        peers = [figure for name in load_tasks.PEERS if (figure := results.figure(task, name)) is not None]
        if not peers:
            continue
        least = min(peers, key=lambda figure: figure.cpu_s_per_million)
        for system in (load_tasks.TO_ARROW, load_tasks.STAGED):
            if (mine := results.figure(task, system)) is not None:
                cpu, peer_cpu = mine.cpu_s_per_million, least.cpu_s_per_million
                measured = f"{cpu:.2f} against {peer_cpu:.2f} ({least.system})"
                yield Goal(f"{task}: {system}: less CPU than each peer", measured, cpu < peer_cpu)


def _memory(results: Figures) -> Iterator[Goal]:
    shares = [
        figure
        for divisor in load_tasks.SHARES
        if (figure := results.figure(load_tasks.memory(divisor), load_tasks.STAGED)) is not None
    ]
    if len(shares) == len(load_tasks.SHARES):
        measured = " / ".join(f"{figure.rss_mb:.0f}" for figure in shares) + " MB"
        text = f"memory is flat: half and the whole take at most {_FLAT - 1:.0%} more than a quarter"
        largest = max(figure.rss_mb for figure in shares)
        yield Goal(text, measured, largest <= shares[0].rss_mb * _FLAT)


def _millions(value: float) -> str:
    return f"{value / 1e6:.2f} M/s"


def _thousands(value: float) -> str:
    return f"{value / 1e3:.0f} k/s"


def _megabytes(value: float) -> str:
    return f"{value:.0f} MB"


def _two_digits(value: float) -> str:
    return f"{value:.2f}"
