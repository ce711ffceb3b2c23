"""Reads the newest part of the log once for all subscribers of the same entries.

A tail is a view of the log (`view.View`) with a window of its newest entries (`window`). It begins when a
subscriber reaches the log's end, and ends some seconds after its last subscriber has left. The thread that
follows the log reads all tails (`Tails.advance`), as soon as the log has grown; so entries take one way from
the log to the event loop, whatever the number of subscribers. Windows change only in the event loop.

A tail that cannot be read is given up. Its subscribers then read the log themselves, and see the error there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from dataclasses import dataclass

from penstock.errors import PenstockError
from penstock.model.offset import Offset
from penstock.serve.batches import Block, Place
from penstock.serve.log.scan import Scan, scan_of
from penstock.serve.log.served_log import ServedLog
from penstock.serve.log.view import View
from penstock.serve.log.window import Window

log = logging.getLogger(__name__)

TAILS_MAX = 32
"""Tails are read one after the other. Subscribers of more views read the log themselves."""
WINDOWS_BYTES, WINDOW_BYTES_MAX = 32 * 1024**2, 32 * 1024**2
"""Memory of all windows, and of one: some seconds of a busy source. If many subscribers fell behind the
window at once, each would have to read the log itself."""
STEP_BYTES = 256 * 1024
"""Bytes of entries that are read before they are given to subscribers."""
STEPS_MAX = 8
"""Steps that wait for the event loop: a reader that is faster than it must not fill the memory."""
UNUSED_S = 5.0
"""How long a tail is read without subscribers. A subscriber that rolls back or connects again leaves it, and
soon comes back."""


@dataclass(frozen=True)
class Share:
    """How much of a `total` each of several clients may use: an equal part, from `least` to `most`."""

    total: int
    most: int
    least: int

    def of(self, clients: int) -> int:
        return max(self.least, min(self.most, self.total // max(1, clients)))


class Tail:
    def __init__(self, view: View, scan: Scan, start: Offset) -> None:
        self.view = view
        self.scan = scan
        self.window = Window(start)
        self.level = True
        """Whether the window reaches the log's end, as of the last reading."""
        self.ended = False
        self.is_open = False
        """Whether the last transaction that was read has not ended yet."""
        self.subscribers = 0
        self.unused_since = time.monotonic()
        self.waiting: set[asyncio.Future[None]] = set()
        """Subscribers that wait for more."""


@dataclass(frozen=True)
class _Step:
    """The result of one step of reading a tail. `level`: the end of the log is reached. `ended`: the tail is
    given up."""

    tail: Tail
    blocks: list[Block]
    level: bool = False
    ended: bool = False
    unused: bool = False
    passed: Offset | None = None


class Tails:
    """The tails of a log. Used in the event loop, except `advance`. `waiting`: subscribers without a tail
    that wait for the log to grow."""

    def __init__(self, served: ServedLog) -> None:
        self._served = served
        self._tails: dict[View, Tail] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._places = threading.Semaphore(STEPS_MAX)
        self._stopping = threading.Event()
        self.waiting: set[asyncio.Future[None]] = set()

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def stop(self) -> None:
        self._stopping.set()

    # for subscribers ----------------------------------------------------------------------------------------

    def join(self, view: View, place: Place, *, at_end: bool) -> tuple[Tail, int, Block | None] | None:
        """A tail that has everything behind a place, with what `Window.find` says of it. None: there is none.
        `at_end`: the place is the log's end, where a tail may begin."""
        tail = self._tails.get(view)
        if tail is None:
            if not at_end or place.entries or len(self._tails) >= TAILS_MAX:
                return None
            tail = Tail(view, scan_of(self._served, view, place), place.offset)
            self._tails[view] = tail
            self._served.look()
        found = tail.window.find(place)
        if found is None:
            return None
        tail.subscribers += 1
        return tail, *found

    def leave(self, tail: Tail) -> None:
        tail.subscribers -= 1
        tail.unused_since = time.monotonic()

    # the thread that follows the log ------------------------------------------------------------------------

    def advance(self) -> None:
        """Reads all tails up to the log's end, and wakes whoever waits for that."""
        steps: list[_Step] = []
        for tail in list(self._tails.values()):
            if not tail.subscribers and time.monotonic() > tail.unused_since + UNUSED_S:
                steps.append(_Step(tail, [], unused=True))
                continue
            try:
                steps += self._read(tail)
            except PenstockError as error:
                log.warning("the newest entries cannot be read for all subscribers: %s", error)
                steps.append(_Step(tail, [], ended=True))
            except Exception:  # a bug must not end the thread that follows the log
                log.exception("the newest entries cannot be read")
                steps.append(_Step(tail, [], ended=True))
        self._give(steps)

    def _read(self, tail: Tail) -> list[_Step]:
        """Reads a tail up to the log's end. Returns the last step, and gives the earlier ones to the event
        loop."""
        blocks: list[Block] = []
        size = 0
        while not self._stopping.is_set():
            pieces = tail.scan.read(STEP_BYTES)
            if pieces is None:
                break
            block = Block.of(pieces, behind_open=tail.is_open)
            if block is not None:
                tail.is_open = block.end is None
                blocks.append(block)
                size += block.bytes
            if size >= STEP_BYTES:
                self._give([_Step(tail, blocks, passed=tail.scan.passed)])
                blocks, size = [], 0
        return [_Step(tail, blocks, level=True, passed=tail.scan.passed)]

    def _give(self, steps: list[_Step]) -> None:
        """Passes steps to the event loop, once the loop has taken most of the earlier ones."""
        while not self._places.acquire(timeout=0.2):
            if self._stopping.is_set():
                return
        with contextlib.suppress(RuntimeError):  # the loop has just ended
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._take, steps)

    # the event loop -----------------------------------------------------------------------------------------

    def _take(self, steps: list[_Step]) -> None:
        self._places.release()
        memory_max = min(WINDOW_BYTES_MAX, WINDOWS_BYTES // max(1, len(self._tails)))
        for step in steps:
            tail = step.tail
            if step.ended or step.unused:
                if (step.ended or not tail.subscribers) and not tail.ended:
                    tail.ended = True
                    del self._tails[tail.view]
                    wake(tail.waiting)
                continue
            for block in step.blocks:
                tail.window.add(block, memory_max)
            tail.window.passed = max(tail.window.passed, step.passed or tail.window.passed)
            # Who merges this log with others waits for its time, too.
            news = bool(step.blocks) or tail.level != step.level or self._served.is_merged
            tail.level = step.level
            if news:
                wake(tail.waiting)
        if all(step.level or step.ended or step.unused for step in steps):
            wake(self.waiting)


def wake(waiting: set[asyncio.Future[None]]) -> None:
    for one in waiting:
        if not one.done():
            one.set_result(None)
    waiting.clear()
