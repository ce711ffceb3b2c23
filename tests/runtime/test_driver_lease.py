"""Drivers of one pipeline on several machines: which one runs, and what the others are told."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import DriverReplaced, LeaseHeld, TransientError
from penstock.runtime import driver_lease
from penstock.runtime.driver_lease import DriverLease, identity
from penstock.store.base import Data, Store, Version
from penstock.store.errors import StoreUnavailable
from penstock.store.lease import Times
from penstock.store.opening import open_store
from penstock.testing.scenario import wait_for


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store((tmp_path / "store").absolute().as_uri())


@pytest.fixture(autouse=True)
def times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_lease, "TIMES", Times(free_s=0.6, valid_s=0.4, renew_s=0.05))


@pytest.fixture
def leases(store: Store) -> Iterator[Leases]:
    made = Leases(store)
    yield made
    for lease in made.taken:
        lease.release()


class Leases:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.taken: list[DriverLease] = []

    def take(self, id_: str, known: int = 0) -> DriverLease:
        lease = DriverLease(self.store, id_, known)
        lease.take()
        self.taken.append(lease)
        return lease


def suspend(lease: DriverLease) -> None:
    """The lease is not renewed any more, and its driver does not know."""
    lease._ending.set()
    thread = lease._thread
    assert thread is not None
    thread.join()


@pytest.fixture
def long_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that watches another one's lease does so longer than the test may take."""
    monkeypatch.setattr(driver_lease, "TIMES", Times(free_s=60, valid_s=0.4, renew_s=0.05))


@pytest.mark.usefixtures("long_watch")
def test_a_driver_follows_one_that_has_ended_at_once(leases: Leases) -> None:
    first = leases.take("a")
    first.release()
    began = time.monotonic()
    second = leases.take("b")
    assert time.monotonic() < began + 30
    assert (second.generation, second.must_fence) == (2, False)


@pytest.mark.usefixtures("long_watch")
def test_a_driver_in_the_same_directory_need_not_wait(leases: Leases) -> None:
    suspend(leases.take("a"))  # killed
    began = time.monotonic()
    second = leases.take("a")
    assert time.monotonic() < began + 30
    assert (second.generation, second.must_fence) == (2, False)


def test_a_second_driver_is_refused_while_the_first_one_lives(leases: Leases) -> None:
    first = leases.take("a")
    with pytest.raises(LeaseHeld, match="Another driver of this pipeline runs"):
        leases.take("b")
    first.check()


def test_a_driver_that_was_suspended_finds_out_before_it_writes(leases: Leases) -> None:
    first = leases.take("a")
    suspend(first)
    second = leases.take("b")
    assert second.must_fence and second.generation == 2
    with pytest.raises(DriverReplaced, match="has taken over"):
        first.check()
    first.release()  # says nothing in the name of the other one
    second.check()
    with pytest.raises(LeaseHeld):
        leases.take("c")


def test_targets_are_fenced_by_the_next_driver_if_this_one_ends_before(leases: Leases) -> None:
    suspend(leases.take("a"))
    suspend(leases.take("b"))
    third = leases.take("b")
    assert third.must_fence
    third.fenced_all()
    third.release()
    assert not leases.take("b").must_fence


def test_a_store_without_an_older_lease_continues_the_generations_of_the_state(leases: Leases) -> None:
    assert leases.take("a", known=7).generation == 8


def test_of_two_drivers_that_take_over_at_once_exactly_one_does(leases: Leases) -> None:
    suspend(leases.take("a"))
    refused: list[LeaseHeld] = []

    def take(id_: str) -> None:
        try:
            leases.take(id_)
        except LeaseHeld as error:
            refused.append(error)

    threads = [threading.Thread(target=take, args=(id_,)) for id_ in "bcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(leases.taken) == 2 and len(refused) == 2


class Outage:
    """A store that does not answer while `down` is set."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.down = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def put_if_unchanged(self, key: str, data: Data, *, seen: Version) -> Version:
        if self.down:
            raise StoreUnavailable("no answer")
        return self._store.put_if_unchanged(key, data, seen=seen)


def test_while_the_store_does_not_answer_nothing_may_be_written_and_then_it_goes_on(store: Store) -> None:
    outage = Outage(store)
    lease = Leases(outage).take("a")  # type: ignore[arg-type]
    outage.down = True
    wait_for(lambda: _is_unknown(lease), "the lease to be too old", seconds=10)
    outage.down = False
    lease.check()
    lease.release()


class Late(Outage):
    """What is written while it is down arrives later: one write before each of those that follow."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.late: list[tuple[str, Data]] = []

    def put_if_unchanged(self, key: str, data: Data, *, seen: Version) -> Version:
        if self.down:
            self.late.append((key, data))
        elif self.late:
            self._store.put_if_unchanged(*self.late.pop(0), seen=seen)
        return super().put_if_unchanged(key, data, seen=seen)


def test_a_driver_goes_on_however_many_of_its_renewals_reach_the_store_late(store: Store) -> None:
    late = Late(store)
    lease = Leases(late).take("a")  # type: ignore[arg-type]
    suspend(lease)
    late.down = True
    for _ in range(3):
        with pytest.raises(TransientError):
            lease.renew()
    late.down = False
    lease.renew()
    lease.check()
    assert not late.late
    lease.release()


def _is_unknown(lease: DriverLease) -> bool:
    try:
        lease.check()
    except TransientError as error:
        return "unknown" in error.message
    return False


def test_a_copy_of_a_directory_has_another_identity(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    known = identity(tmp_path / "one")
    assert identity(tmp_path / "one") == known
    (tmp_path / "two/driver-id").write_bytes((tmp_path / "one/driver-id").read_bytes())
    assert identity(tmp_path / "two") != known
