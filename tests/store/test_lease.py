"""What every lease in a store promises: races, answers that are lost, and holders that are suspended."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.store.conftest import options

from penstock.errors import ConfigError, PenstockError
from penstock.store.base import Store
from penstock.store.errors import StoreUnavailable
from penstock.store.lease import Holder, Lease, ProcessLease, Times, read
from penstock.store.opening import open_store
from penstock.testing.faulty_proxy import Fault, FaultyProxy, put
from penstock.testing.scenario import wait_for

KEY = "lease.json"
NOT_ATOMIC = "If-Match is compared before the write, not with it"
SHORT = Times(free_s=0.6, valid_s=0.4, renew_s=0.1)
LONG = Times(free_s=3600, valid_s=3000, renew_s=600)


class Lost(PenstockError):
    pass


class Counted(Lease):
    """Holders write numbers into it."""

    def lost_to(self, by: Holder) -> Lost:
        return Lost(f"to {by.payload.get('name')}")


def held(store: Store, name: str, times: Times = SHORT) -> Counted:
    """A lease that nobody had before, or that is free."""
    lease = Counted(store, KEY, times)
    generation = lease.look().generation + 1
    assert lease.is_free and lease.acquire({"name": name}, generation) and lease.alive(generation)
    return lease


def content(store: Store) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(store.get(KEY).data)
    return fields


# races ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", ["none", "given up"])
def test_exactly_one_of_several_gets_a_free_lease(store: Store, flaws: frozenset[str], before: str) -> None:
    if before == "given up":
        if NOT_ATOMIC in flaws:
            pytest.skip(NOT_ATOMIC)
        held(store, "first").write({}, stopped=True)
    leases = [Counted(store, KEY, LONG) for _ in range(8)]
    found = [lease.look() for lease in leases]
    assert all(lease.is_free for lease in leases)
    with ThreadPoolExecutor(len(leases)) as threads:
        got = list(threads.map(lambda n: leases[n].acquire({"name": n}, found[n].generation + 1), range(8)))
    assert got.count(True) == 1
    winner = got.index(True)
    assert content(store)["name"] == winner and [lease.alive() for lease in leases] == got
    for lease in leases:
        lease.look()
        assert lease.is_free == (lease is leases[winner])


def test_no_two_are_alive_at_once_and_no_write_of_a_holder_is_lost(
    store: Store, flaws: frozenset[str]
) -> None:
    """They give it up, or are killed, or go on writing; and count in the object itself."""
    if NOT_ATOMIC in flaws:
        pytest.skip(NOT_ATOMIC)
    alive: list[tuple[float, float]] = []
    counted = 0

    def work(number: int) -> None:
        nonlocal counted
        lease, rounds = Counted(store, KEY, SHORT), 0
        while rounds < 8:
            found = lease.look()
            generation, count = found.generation + 1, int(found.payload.get("count", 0))
            if not lease.is_free or not lease.acquire({"count": count}, generation):
                continue
            began = ended = now = time.monotonic()
            rounds += 1
            with suppress(Lost):  # the machine was busy for longer than the lease lasts
                for added in range(1, 4):
                    lease.write({"count": count + added}, stopped=added == 3 and rounds % 8 > 0)
                    with guard:
                        counted += 1
                    now = time.monotonic()
                    ended = now if lease.alive(generation) and added < 3 else ended
            alive.append((began, ended))
            if rounds % 8 == 0:
                lease = Counted(store, KEY, SHORT)  # it was killed

    guard = threading.Lock()
    with ThreadPoolExecutor(3) as threads:
        for one in [threads.submit(work, number) for number in range(3)]:
            one.result()
    assert int(content(store)["count"]) == counted > 3 * 8
    alive.sort()
    assert all(one[1] <= next_[0] for one, next_ in itertools.pairwise(alive))


def test_a_lease_that_is_renewed_is_never_free(store: Store) -> None:
    lease, other = held(store, "one"), Counted(store, KEY, SHORT)
    ends = time.monotonic() + 3 * SHORT.free_s
    while time.monotonic() < ends:
        lease.write({"name": "one"})
        other.look()
        assert not other.is_free and lease.alive()


def test_a_holder_stops_before_another_one_may_begin_and_writes_nothing_any_more(store: Store) -> None:
    lease, other = held(store, "one"), Counted(store, KEY, SHORT)
    other.look()
    seen = []
    while not other.is_free:
        seen.append(lease.alive())
        other.look()
    assert seen[0] and not lease.alive()
    assert other.acquire({"name": "two"}, 2)
    with pytest.raises(Lost, match="to two"):
        lease.write({"name": "one"})
    assert (content(store)["name"], content(store)["generation"]) == ("two", 2)
    assert other.alive(2) and not other.alive(1) and not lease.alive(1)


def test_who_has_a_shorter_time_waits_as_long_as_the_holder_relies_on(store: Store) -> None:
    lease = held(store, "one", Times(free_s=1.0, valid_s=0.8, renew_s=0.2))
    other = Counted(store, KEY, Times(free_s=0.1, valid_s=0.08, renew_s=0.02))
    other.look()
    while not other.is_free:
        other.look()
    assert not lease.alive()


# answers that are lost --------------------------------------------------------------------------------------

UNHEARD = {
    "lost answer": Fault("lost answer"),
    "done, but 500": Fault("done, but answer", status=500, code="InternalError"),
    "not done": Fault("answer"),
}


@pytest.fixture
def impatient(proxy: FaultyProxy, url: str) -> Store:
    """A store behind the proxy that tries each request once."""
    return open_store(url, options(proxy.url, attempts=1))


@pytest.mark.parametrize("fault", UNHEARD.values(), ids=UNHEARD)
def test_a_holder_goes_on_after_writes_whose_answers_were_lost(
    impatient: Store, proxy: FaultyProxy, fault: Fault
) -> None:
    lease = held(impatient, "one", LONG)
    for number in range(3):
        proxy.plan(fault, when=put)
        with pytest.raises(StoreUnavailable):
            lease.write({"name": number})
        assert proxy.faults_left == 0 and lease.alive(1)
    lease.write({"name": "last"})
    assert content(impatient)["name"] == "last" and lease.alive(1)


def test_a_holder_goes_on_however_many_of_its_writes_arrive_late(
    impatient: Store, proxy: FaultyProxy
) -> None:
    lease = held(impatient, "one", LONG)
    for number in range(3):
        proxy.plan(Fault("late", seconds=0.3 + 0.3 * number), when=put)
        with pytest.raises(StoreUnavailable):
            lease.write({"name": number})
    assert content(impatient)["name"] == "one"
    ends = time.monotonic() + 2
    while time.monotonic() < ends:
        lease.write({"name": "last"})
        assert content(impatient)["name"] in ("last", 0, 1, 2)
    lease.write({"name": "last"})
    assert content(impatient)["name"] == "last" and lease.alive(1)


@pytest.mark.parametrize("kind", ["lost answer", "late"])
def test_who_did_not_hear_that_it_has_the_lease_takes_it_at_once(
    impatient: Store, proxy: FaultyProxy, kind: Any
) -> None:
    held(impatient, "first").write({}, stopped=True)
    lease, other = Counted(impatient, KEY, LONG), Counted(impatient, KEY, LONG)
    assert lease.look().generation == 1
    proxy.plan(Fault(kind, seconds=0.5), when=put)
    with pytest.raises(StoreUnavailable):
        lease.acquire({"name": "one"}, 2)
    assert not lease.alive()
    wait_for(lambda: content(impatient).get("name") == "one", "the late write", seconds=20)
    other.look()
    assert not other.is_free
    assert lease.look().payload == {"name": "one"}
    assert lease.is_free and lease.acquire({"name": "one"}, 3) and lease.alive(3)


# processes --------------------------------------------------------------------------------------------------

_HOLDER = """
import sys
from penstock.errors import PenstockError
from penstock.store.lease import Lease, Times
from penstock.store.opening import open_store

class Held(Lease):
    def lost_to(self, by):
        return PenstockError(f"lost to {by.payload['name']}")

lease = Held(open_store(sys.argv[1]), "lease.json", Times(0.6, 0.4, 0.1))
lease.look()
assert lease.acquire({"name": "asleep"}, 1)
print("held", flush=True)
for line in sys.stdin:
    print(lease.alive(1), flush=True)
    try:
        lease.write({"name": "asleep"})
    except PenstockError as error:
        print(error, flush=True)
"""


def test_the_clock_of_a_suspended_holder_goes_on(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    command = [sys.executable, "-c", _HOLDER, tmp_path.as_uri()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        os.kill(holder.pid, signal.SIGSTOP)
        other = Counted(store, KEY, SHORT)
        other.look()
        wait_for(lambda: other.look() and other.is_free, "the lease to be free", seconds=20)
        assert other.acquire({"name": "awake"}, 2)
        os.kill(holder.pid, signal.SIGCONT)
        out, _ = holder.communicate("go on\n", timeout=60)
    assert out == "False\nlost to awake\n"
    assert content(store)["name"] == "awake"


class Process(ProcessLease):
    def held_by(self, by: Holder) -> Lost:
        return Lost(f"{by.payload['id']} holds it")

    lost_to = held_by


def process(store: Store, id_: str, times: Times = SHORT) -> Process:
    lease = Process(store, KEY, times, id_)
    lease.claim(lease.identity(), lease.wait_until_free(lambda: False).generation + 1)
    lease.keep()
    return lease


def test_a_process_renews_its_lease_until_it_ends_and_then_nobody_waits(store: Store) -> None:
    lease = process(store, "one")
    with pytest.raises(Lost, match="one holds it"):
        process(store, "two")
    lease.check()
    lease.release()
    waiting = Process(store, KEY, LONG, "two")
    assert waiting.wait_until_free(lambda: False).stopped and waiting.is_free


def test_a_process_that_is_asked_to_stop_does_not_take_the_lease_for_which_it_waits(store: Store) -> None:
    lease = process(store, "one", LONG)
    waiting = Process(store, KEY, LONG, "two")
    with pytest.raises(PenstockError, match="interrupted"):
        waiting.wait_until_free(lambda: True)
    assert not waiting.is_free
    lease.check()
    lease.release()


def test_a_process_with_the_id_of_an_ended_one_need_not_wait(store: Store) -> None:
    lease = Process(store, KEY, LONG, "one")
    lease.claim(lease.identity(), 1)  # killed
    again = process(store, "one", LONG)
    assert again.alive(2)
    with pytest.raises(Lost):
        lease.renew()
        lease.raise_if_lost()
    again.release()


# objects ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data", [b"", b"no JSON", b"[]", b"7", b'{"generation": "x"}', b'{"generation": 1e999}']
)
def test_an_object_that_is_no_lease_is_named_and_left_alone(store: Store, data: bytes) -> None:
    store.put(KEY, data)
    with pytest.raises(ConfigError, match=f"{KEY} is not a lease") as error:
        Counted(store, KEY, SHORT).look()
    assert "Remove it" in error.value.hint and store.get(KEY).data == data


def test_a_lease_in_the_form_of_earlier_versions_is_read(store: Store) -> None:
    earlier = {"id": "a", "generation": 7, "fences": True, "pid": 5, "stopped": False, "renewed": "f00"}
    store.put(KEY, json.dumps(earlier).encode())
    found, _ = read(store, KEY)
    assert (found.generation, found.stopped, found.payload["fences"]) == (7, False, True)
    lease, same = Counted(store, KEY, LONG), Process(store, KEY, LONG, "a")
    lease.look(), same.look()
    assert same.is_free and not lease.is_free
    store.put(KEY, json.dumps({**earlier, "stopped": True}).encode())
    lease.look()
    assert lease.is_free


def test_a_lease_that_was_deleted_is_free_and_lost_for_its_holder(store: Store) -> None:
    holder = held(store, "one")
    store.delete(KEY)
    with pytest.raises(Lost):
        holder.write({})
    assert not holder.alive()
    assert held(store, "two").alive(1)
