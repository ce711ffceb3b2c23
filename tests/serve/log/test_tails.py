"""Subscribers of one view share what is read of the log's end. The log is made up here, and counts reads."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from penstock.errors import TransientError
from penstock.model.offset import Offset
from penstock.serve.batches import Block, Piece, Place
from penstock.serve.filters import Filter
from penstock.serve.log import reader as reader_module
from penstock.serve.log import tails as tails_module
from penstock.serve.log.reader import Reader
from penstock.serve.log.served_log import ServedLog
from penstock.serve.log.tails import Share, Tails
from penstock.serve.log.view import View

VIEW = View(Filter(), "json", True, True, True, False, ())


class Log:
    """Transaction n ends at n, and has one to three entries. `read`: transactions that were read."""

    is_merged = False

    def __init__(self) -> None:
        self.end = Offset(0)
        self.read = 0
        self.broken_at: int | None = None

    def look(self) -> None:
        pass

    def grow(self, count: int) -> None:
        self.end = Offset(self.end + count)

    @staticmethod
    def entries(number: int) -> list[bytes]:
        return [f"{number}.{one}".encode() for one in range(1 + number % 3)]


class FakeScan:
    def __init__(self, log: Log, _view: View, place: Place) -> None:
        self._log = log
        self._skip = place.entries
        self.passed = place.offset

    def read(self, _size: int) -> list[Piece] | None:
        if self.passed == self._log.end:
            return None
        number = self.passed + 1
        if number == self._log.broken_at:
            raise TransientError("this transaction cannot be read")
        self._log.read += 1
        skip, self._skip = self._skip, 0
        piece = Piece(Place(self.passed, skip), Log.entries(number)[skip:], Offset(number))
        self.passed = Offset(number)
        return [piece]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    for module in (reader_module, tails_module):
        monkeypatch.setattr(module, "scan_of", FakeScan)
    return Log()


class Subscriber:
    def __init__(self, log: Log, tails: Tails, threads: ThreadPoolExecutor) -> None:
        self.found: list[bytes] = []
        self.reader = Reader(cast(ServedLog, log), tails, VIEW, Place(Offset(0)), threads)

    async def catch_up(self) -> None:
        """Until it has everything."""
        while True:
            blocks = self.reader.ready()
            if blocks is None:
                block = await self.reader.read(100)
                blocks = [] if block is None else [block]
            self.found += [entry for one in blocks for entry in one.entries()]
            if not blocks and self.reader.level and self.reader.shares:
                return


def with_subscribers(log: Log, count: int, work: Callable[[Tails, list[Subscriber]], Any]) -> None:
    async def run() -> None:
        tails = Tails(cast(ServedLog, log))
        tails.begin(asyncio.get_running_loop())
        with ThreadPoolExecutor(2) as threads:
            subscribers = [Subscriber(log, tails, threads) for _ in range(count)]
            for one in subscribers:
                await one.catch_up()
            await work(tails, subscribers)

    asyncio.run(run())


async def advance(tails: Tails) -> None:
    """As the thread that follows the log does it."""
    await asyncio.get_running_loop().run_in_executor(None, tails.advance)
    await asyncio.sleep(0)


def written(log: Log) -> list[bytes]:
    return [entry for number in range(1, log.end + 1) for entry in Log.entries(number)]


class LateEnds(FakeScan):
    """Tells the end of a transaction in a step of its own, as happens with large ones."""

    def __init__(self, log: Log, view: View, place: Place) -> None:
        super().__init__(log, view, place)
        self._open: Piece | None = None

    def read(self, size: int) -> list[Piece] | None:
        if self._open is not None:
            last, self._open = self._open, None
            assert last.end is not None
            self.passed = last.end
            return [Piece(last.own_place(len(last.entries)), [], last.end)]
        found = super().read(size)
        if not found:
            return found
        [self._open] = found
        self.passed = self._open.start.offset
        return [Piece(self._open.start, self._open.entries)]


def test_what_was_given_does_not_come_again_to_who_joins_behind_it(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(tails: Tails, _subscribers: list[Subscriber]) -> None:
        monkeypatch.setattr(tails_module, "scan_of", LateEnds)
        monkeypatch.setattr(tails_module, "STEP_BYTES", 1)
        with ThreadPoolExecutor(1) as threads:
            first = Subscriber(log, tails, threads)
            await first.catch_up()
            for _ in range(3):
                log.grow(1)
                await advance(tails)
            await first.catch_up()
            assert first.found == written(log)
            for place in range(4):
                late = Subscriber(log, tails, threads)
                late.reader.at = Place(Offset(place))
                await late.catch_up()
                assert late.found == [one for n in range(place + 1, 4) for one in Log.entries(n)]

    with_subscribers(log, 0, work)


def test_who_is_inside_of_a_transaction_keeps_its_place_until_that_ends(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tail may count the entries of a transaction from another offset: here transaction 1 has none for it,
    and 2 has not ended yet."""

    async def work(tails: Tails, _subscribers: list[Subscriber]) -> None:
        monkeypatch.setattr(tails_module, "scan_of", lambda *_: cast(Any, None))
        joined = tails.join(VIEW, Place(Offset(0)), at_end=True)
        assert joined is not None
        window = joined[0].window
        window.add(Block([Piece(Place(Offset(1)), [b"2.1", b"2.2"])]), 10_000)
        window.passed = Offset(1)
        with ThreadPoolExecutor(1) as threads:
            reader = Reader(cast(ServedLog, log), tails, VIEW, Place(Offset(0), 2), threads)
            assert reader.ready() is None and reader.at == Place(Offset(0), 2)

    with_subscribers(log, 0, work)


def test_a_hundred_subscribers_cost_one_read_of_what_is_new(log: Log) -> None:
    async def work(tails: Tails, subscribers: list[Subscriber]) -> None:
        for _ in range(10):
            log.grow(5)
            await advance(tails)
            for one in subscribers:
                await one.catch_up()
        assert log.read == 50
        assert all(one.found == written(log) for one in subscribers)

    with_subscribers(log, 100, work)


@pytest.mark.parametrize("seed", range(5))
def test_subscribers_at_any_pace_get_everything_once_and_in_order(
    log: Log, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(tails_module, "WINDOW_BYTES_MAX", 1000)
    dice = random.Random(seed)

    async def work(tails: Tails, subscribers: list[Subscriber]) -> None:
        for _ in range(200):
            log.grow(dice.randrange(4))
            await advance(tails)
            for one in subscribers:
                if dice.random() < 0.15:
                    await one.catch_up()
        for one in subscribers:
            await one.catch_up()
            assert one.found == written(log)

    with_subscribers(log, 6, work)
    assert log.read > 300  # some were behind the window


def test_a_tail_that_cannot_be_read_ends_and_its_subscribers_see_why(log: Log) -> None:
    async def work(tails: Tails, subscribers: list[Subscriber]) -> None:
        log.broken_at = 3
        log.grow(5)
        await advance(tails)
        for one in subscribers:
            with pytest.raises(TransientError, match="cannot be read"):
                await one.catch_up()
            assert one.found == Log.entries(1) + Log.entries(2)
        log.broken_at = None
        for one in subscribers:
            await one.catch_up()
            assert one.found == written(log)

    with_subscribers(log, 3, work)


def test_a_tail_without_subscribers_is_read_no_longer(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails_module, "UNUSED_S", 0.0)

    async def work(tails: Tails, subscribers: list[Subscriber]) -> None:
        for one in subscribers:
            one.reader.close()
        log.grow(5)
        await advance(tails)
        await advance(tails)
        assert log.read == 0
        await subscribers[0].catch_up()
        assert subscribers[0].found == written(log)

    with_subscribers(log, 2, work)


def test_waiting_subscribers_are_woken_when_there_is_more(log: Log) -> None:
    async def work(tails: Tails, subscribers: list[Subscriber]) -> None:
        never = asyncio.get_running_loop().create_future()
        waits = [asyncio.ensure_future(one.reader.wait(20, never)) for one in subscribers]
        await asyncio.sleep(0)
        log.grow(1)
        await advance(tails)
        assert await asyncio.wait_for(asyncio.gather(*waits), 10) == [True] * 3
        assert await subscribers[0].reader.wait(0.01, never) is False

    with_subscribers(log, 3, work)


@pytest.mark.parametrize(("clients", "each"), [(0, 100), (1, 100), (10, 50), (1000, 10)])
def test_a_share_is_between_its_bounds(clients: int, each: int) -> None:
    assert Share(total=500, most=100, least=10).of(clients) == each
