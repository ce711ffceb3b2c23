"""When chunks may begin: limits, load, and servers, as a script sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from penstock.config import SnapshotConfig
from penstock.errors import ConfigError
from penstock.model.schema import TypeOptions
from penstock.snapshot.gate import STALE_SECONDS, Gate, Permit
from penstock.sources.chunks import ChunkReader, ViewChoice
from penstock.sources.hosts import UsableHosts
from penstock.testing.scenario import wait_for


@dataclass(frozen=True)
class Server:
    """A host of which nothing is read."""

    address: str
    is_replica: bool = False

    def open_reader(self, *, types: TypeOptions, view: ViewChoice | None = None) -> ChunkReader:
        raise AssertionError("nothing is read here")


SOURCE, OTHER = Server("source:1"), Server("other:1")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Script:
    """Sees what it is told to."""

    def __init__(self, usable: UsableHosts | None = None) -> None:
        self.usable = usable
        self.looks = 0
        self.closed = 0

    @property
    def is_needed(self) -> bool:
        return self.usable is not None

    def followed(self) -> Server:
        return SOURCE

    def look(self) -> UsableHosts:
        self.looks += 1
        assert self.usable is not None
        return self.usable

    def close(self) -> None:
        self.closed += 1

    def hosts_to_json(self) -> list[dict[str, Any]]:
        return []


def gate(hosts: Script | None = None, clock: Clock | None = None, **options: Any) -> Gate:
    allowed = options.pop("allowed", lambda: True)
    config = SnapshotConfig.model_validate(options)
    return Gate(config, hosts or Script(), allowed=allowed, clock=clock or Clock())


def entered(gate: Gate) -> Permit:
    permit = gate.enter()
    assert permit is not None
    return permit


def test_never_more_chunks_are_read_than_parallel_says_also_when_it_changes() -> None:
    one = gate(parallel=2)
    permits = [entered(one), entered(one)]
    assert one.enter() is None
    one.limits(parallel=3)
    permits.append(entered(one))
    assert one.enter() is None
    one.limits(parallel=1)
    for permit in permits[:2]:
        one.leave(permit)
        assert one.enter() is None
    one.leave(permits[2])
    entered(one)
    assert one.enter() is None
    assert one.to_json()["limits"]["parallel"] == 1 and one.to_json()["throttled"] is None


def test_a_rate_holds_the_next_chunk_up_and_says_so() -> None:
    clock = Clock()
    one = gate(clock=clock, rows_per_second=100)
    one.leave(entered(one), rows=1000)
    assert one.enter() is None
    said = one.to_json()
    assert said["paused_by"] == "rows_per_second" and "10.0 s" in said["throttled"]
    one.limits(rows_per_second=1000)
    clock.now += 1.01
    entered(one)
    assert one.to_json()["throttled"] is None


def test_chunks_follow_one_another_under_a_permit_until_a_limit_says_no() -> None:
    clock, behind = Clock(), [False]
    one = gate(clock=clock, parallel=2, allowed=lambda: not behind[0])
    permits = [entered(one), entered(one)]
    assert all(one.may_read_another(permit, rows=10, bytes_=100) for permit in permits)
    one.limits(rows_per_second=100)
    assert (
        not one.may_read_another(permits[0], rows=50, bytes_=0)
        and one.to_json()["paused_by"] == "rows_per_second"
    )
    clock.now += 0.51
    assert one.may_read_another(permits[0], rows=0, bytes_=0) and one.to_json()["throttled"] is None
    behind[0] = True
    assert not one.may_read_another(permits[0], rows=0, bytes_=0)
    behind[0] = False
    one.limits(parallel=1)
    assert not one.may_read_another(permits[0], rows=0, bytes_=0)
    one.leave(permits[0])
    assert one.may_read_another(permits[1], rows=0, bytes_=0) and one.enter() is None
    one.leave(permits[1])
    entered(one)


def test_a_permit_ends_when_its_server_is_no_longer_fit() -> None:
    script = Script(UsableHosts((OTHER,)))
    one = gate(script)
    one.start()
    try:
        found: list[Permit | None] = [None]

        def begun() -> bool:
            found[0] = one.enter()
            return found[0] is not None

        wait_for(begun, "the chunk")
        permit = found[0]
        assert permit is not None and one.may_read_another(permit, rows=1, bytes_=1)
        script.usable = UsableHosts((SOURCE,))
        wait_for(lambda: not one.may_read_another(permit, rows=1, bytes_=1), "the other server")
    finally:
        one.stop()


def test_an_attempt_that_failed_gives_its_place_back() -> None:
    one = gate(parallel=1, rows_per_second=1)
    for _ in range(5):
        one.leave(entered(one))


def test_nothing_begins_while_too_much_log_waits() -> None:
    behind = [True]
    one = gate(allowed=lambda: not behind[0])
    assert one.enter() is None and one.to_json()["paused_by"] == "pause_when_behind"
    behind[0] = False
    entered(one)


def test_nothing_begins_before_the_servers_were_seen_or_on_what_was_seen_long_ago() -> None:
    clock, script = Clock(), Script(UsableHosts((OTHER,)))
    one = gate(script, clock)
    assert one.enter() is None and one.to_json()["paused_by"] == "load"
    one.start()
    try:
        wait_for(lambda: one.enter() is not None, "a look")
        assert script.looks
    finally:
        one.stop()
    clock.now += STALE_SECONDS + 1
    assert one.enter() is None and one.to_json()["paused_by"] == "load"


def test_load_holds_chunks_up_until_it_is_gone() -> None:
    script = Script(UsableHosts((), "source:1 has Threads_running = 40, more than 20", "threads_running"))
    one = gate(script)
    one.start()
    try:
        wait_for(lambda: one.enter() is None and one.to_json()["paused_by"] == "threads_running", "the load")
        assert "Threads_running = 40" in one.to_json()["throttled"]
        script.usable = UsableHosts((SOURCE,))
        wait_for(lambda: one.enter() is not None, "the chunk")
    finally:
        one.stop()


def test_chunks_are_spread_over_the_servers_that_are_fit() -> None:
    script = Script(UsableHosts((SOURCE, OTHER)))
    one = gate(script, parallel=4)
    one.start()
    try:
        permits: list[Permit] = []

        def taken() -> bool:
            if (permit := one.enter()) is not None:
                permits.append(permit)
            return len(permits) == 4

        wait_for(taken, "four chunks")
        assert sorted(permit.host.address for permit in permits) == ["other:1"] * 2 + ["source:1"] * 2
    finally:
        one.stop()


def test_nobody_looks_while_no_chunk_wants_to_begin() -> None:
    clock, script = Clock(), Script(UsableHosts((SOURCE,)))
    one = gate(script, clock)
    clock.now += 1000
    one.start()
    try:
        wait_for(lambda: script.closed, "the watcher to rest")
        assert script.looks == 0
        one.enter()
        wait_for(lambda: script.looks, "a look")
        clock.now += 1000
        closed = script.closed
        wait_for(lambda: script.closed > closed, "the watcher to rest again")
        assert one.to_json()["throttled"] is None
    finally:
        one.stop()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"hosts": ["replica"]}, "host:port"),
        ({"load": {"replicas": ["a:1"]}}, "needs `replica"),
        ({"load": {"replica_lag_max": "5s"}}, "needs `replica"),
        ({"load": {"threads_running_max": 0}}, "threads_running_max"),
        ({"rows_per_second": -1}, "rows_per_second"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], named: str) -> None:
    from penstock import config as configuration

    document = {"name": "x", "state": "/s", "source": {"user": "u"}, "tables": ["a.b"], "snapshot": options}
    with pytest.raises(ConfigError, match=named):
        configuration.parse({**document, "sink": {"type": "console"}})
