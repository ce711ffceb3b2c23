"""What a subscription has read ahead, and the batches that its client has got. Pure: no I/O and no waiting.

A place is a committed offset of the log and a number of entries behind it. The entries behind an offset are
the same each time, as long as the filter is, so a place inside a large transaction can be found again.

A batch takes whole transactions as long as they fit its limit. Only a transaction that is larger than the
limit itself is divided. Batches are acknowledged in the order in which they were given, each once.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import TypeVar

from penstock._core import MessageValues
from penstock.model.offset import Offset

T = TypeVar("T")

BATCH_BYTES_MAX = 4 * 1024**2
"""The most bytes of entries in a batch, whatever the client asks for. Only a single entry may be larger."""
READ_BYTES = 128 * 1024
"""Bytes of changes that are read at once for a client without batches."""
OUTSTANDING_MAX = 10_000
"""Batches without acknowledgement: a client that never acknowledges must not fill the memory."""
SOURCES_MAX = 64
"""Sources whose changes are merged. Each has a receiver, and a thread."""


@dataclass(frozen=True, order=True)
class Place:
    """A place in the log: `entries` entries after `offset`."""

    offset: Offset
    entries: int = 0

    def __str__(self) -> str:
        return f"{self.offset}.{self.entries}"

    @classmethod
    def parse(cls, text: str) -> Place:
        """Raises `ValueError`."""
        match = re.fullmatch(r"([0-9]{1,18})\.([0-9]{1,18})", text)
        if match is None:
            raise ValueError("this is not a place in the log")
        return cls(Offset(int(match[1])), int(match[2]))

    @property
    def outside(self) -> Place:
        """The place before the transaction that this place is in."""
        return Place(self.offset)


@dataclass(frozen=True)
class Places:
    """A place in several logs that are merged: one in each of them, in the order of the sources."""

    each: tuple[Place, ...]

    def __str__(self) -> str:
        return ",".join(map(str, self.each))

    @property
    def outside(self) -> Places:
        return Places(tuple(one.outside for one in self.each))


AnyPlace = Place | Places


def later(one: AnyPlace, other: AnyPlace) -> AnyPlace:
    """For each log, the farther one of two places."""
    if isinstance(one, Place) and isinstance(other, Place):
        return max(one, other)
    assert isinstance(one, Places) and isinstance(other, Places)
    return Places(tuple(map(max, one.each, other.each)))


def parse_place(text: str) -> AnyPlace:
    """Raises `ValueError`."""
    if "," not in text:
        return Place.parse(text)
    return Places(tuple(map(Place.parse, text.split(",", SOURCES_MAX))))


@dataclass(frozen=True)
class Piece:
    """Entries of one transaction, or of a statement. `start`: the place before the first of them. `end`:
    where the transaction ends; None: more of it follows, or may follow. `until`: where it ends if that is
    known and more of it may follow: behind a statement. `commit_us`: when the transaction was committed;
    0: not known, or it is the transaction of the piece before."""

    start: Place
    entries: Sequence[bytes]
    end: Offset | None = None
    until: Offset | None = None
    commit_us: int = 0

    def place(self, count: int) -> AnyPlace:
        """The place behind the first `count` entries."""
        return self.own_place(count)

    def own_place(self, count: int) -> Place:
        """The place behind the first `count` entries, in the log of their own source."""
        if self.end is not None and count == len(self.entries):
            return Place(self.end)
        return Place(self.start.offset, self.start.entries + count)

    def before(self, count: int) -> Piece:
        """The first `count` entries, and not all."""
        return self._part(self.start, self.entries[:count], None)

    def behind(self, count: int) -> Piece:
        """The entries behind the first `count`."""
        return self._part(self.own_place(count), self.entries[count:], self.end) if count else self

    def _part(self, start: Place, entries: Sequence[bytes], end: Offset | None) -> Piece:
        return Piece(start, entries, end, self.until, self.commit_us)

    @cached_property
    def bytes(self) -> int:
        return sum(sizes(self.entries))


def sizes(entries: Sequence[bytes]) -> Iterable[int]:
    """The bytes of each entry, without a copy of it."""
    return entries.sizes() if isinstance(entries, MessageValues) else map(len, entries)


class Block:
    """Pieces that were read together. Subscribers of the same entries share a block and its rendered
    forms."""

    __slots__ = ("_rendered", "bytes", "items", "pieces")

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self.pieces = tuple(pieces)
        self.items = sum(len(one.entries) for one in self.pieces)
        self.bytes = sum(one.bytes for one in self.pieces)
        self._rendered: dict[Callable[[Block], object], object] = {}

    @classmethod
    def of(cls, pieces: Iterable[Piece], *, behind_open: bool = False) -> Block | None:
        """A block of these pieces, except those that say nothing. None: none of them says anything.
        `behind_open`: the transaction before them has not ended yet, so its end alone says something, and the
        block may have no entries."""
        kept: list[Piece] = []
        for one in pieces:
            # The end of a transaction may come without an entry.
            if one.entries or (one.end is not None and (not kept or kept[-1].end is None)):
                kept.append(one)
        says = any(one.entries for one in kept) or (behind_open and bool(kept))
        return cls(kept) if says else None

    @property
    def end(self) -> Offset | None:
        """The place where the block's last transaction ends. None: more of it may follow."""
        return self.pieces[-1].end

    @property
    def place(self) -> AnyPlace:
        """The place behind the block."""
        last = self.pieces[-1]
        return last.place(len(last.entries))

    def entries(self) -> Iterator[bytes]:
        return chain.from_iterable(one.entries for one in self.pieces)

    def rendered(self, render: Callable[[Block], T]) -> T:
        """The result of a function for this block. It is computed once."""
        found = self._rendered.get(render)
        if found is None:
            found = self._rendered[render] = render(self)
        return found  # type: ignore[return-value]


@dataclass(frozen=True)
class Limit:
    """The most that a batch may have: a number of entries, and bytes of entries. `items` 0: any number."""

    items: int = 0
    size: int = BATCH_BYTES_MAX

    def allows(self, items: int, size: int) -> bool:
        return (not self.items or items <= self.items) and size <= self.size

    def count(self, entries: Sequence[bytes], items: int, size: int) -> int:
        """How many entries fit behind `items` entries with `size` bytes. The first one of a batch does."""
        for number, length in enumerate(sizes(entries)):
            items, size = items + 1, size + length
            if items > 1 and not self.allows(items, size):
                return number
        return len(entries)


@dataclass(frozen=True)
class Batch:
    id: int
    start: AnyPlace
    end: AnyPlace


class ReadAhead:
    """Entries that were read and not yet given to the client, in order."""

    def __init__(self) -> None:
        self._begun: deque[Piece] = deque()
        """The rest of a block whose first entries were given. It comes before `_blocks`."""
        self._blocks: deque[Block] = deque()
        self.items = self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._begun or self._blocks)

    def clear(self) -> None:
        self._begun.clear()
        self._blocks.clear()
        self.items = self.bytes = 0

    def add(self, block: Block) -> None:
        self._blocks.append(block)
        self.items += block.items
        self.bytes += block.bytes

    def take(self, limit: Limit, *, more: bool, whole: bool = False) -> tuple[list[Block], AnyPlace] | None:
        """The next batch, and the place behind it. `more`: something may be read behind what is here, and
        belongs to the batch if it fits. `whole`: the rest of a transaction may be read, and a batch that it
        fits into waits for it. None: nothing is here, or the batch waits."""
        blocks, items, size = self._whole_blocks(limit)
        behind = chain.from_iterable(one.pieces for one in islice(self._blocks, blocks, None))
        pieces, boundary = 0, 0 if blocks else None  # of the pieces that fit, those up to a transaction's end
        part, full = 0, False
        for piece in behind if blocks else chain(self._begun, behind):
            if limit.allows(items + len(piece.entries), size + piece.bytes):
                items, size, pieces = items + len(piece.entries), size + piece.bytes, pieces + 1
                if piece.end is not None:
                    boundary = pieces
                continue
            full = True
            if boundary is None:
                part = limit.count(piece.entries, items, size)
                if part == len(piece.entries):  # one entry that is larger than the limit
                    pieces, part, items = pieces + 1, 0, items + part
            break
        if not full and not limit.allows(items + 1, size + 1):
            full = True
        if not items and not part:
            return None
        if not full and (more or (whole and boundary is None)):
            return None
        if boundary is not None:
            pieces, part = boundary, 0
        return self._cut(blocks, pieces, part)

    def _whole_blocks(self, limit: Limit) -> tuple[int, int, int]:
        """How many blocks fit that end with a transaction, with their entries and bytes."""
        count = items = size = 0
        if not self._begun:
            for block in self._blocks:
                if block.end is None or not limit.allows(items + block.items, size + block.bytes):
                    break
                count, items, size = count + 1, items + block.items, size + block.bytes
        return count, items, size

    def _cut(self, blocks: int, pieces: int, part: int) -> tuple[list[Block], AnyPlace]:
        """Takes blocks, and behind them pieces, and a part of the next piece."""
        found = [self._blocks.popleft() for _ in range(blocks)]
        while len(self._begun) < pieces + bool(part):
            self._begun.extend(self._blocks.popleft().pieces)
        taken = [self._begun.popleft() for _ in range(pieces)]
        if part:
            piece = self._begun.popleft()
            taken.append(piece.before(part))
            self._begun.appendleft(piece.behind(part))
        if taken:
            found.append(Block(taken))
        self.items -= sum(one.items for one in found)
        self.bytes -= sum(one.bytes for one in found)
        return found, found[-1].place


class Outstanding:
    """The batches that a client has not acknowledged, oldest first. Numbers begin after `given`."""

    def __init__(self, given: int = 0) -> None:
        self._batches: deque[Batch] = deque()
        self.given = given
        """The number of the newest batch."""

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, start: AnyPlace, end: AnyPlace) -> Batch:
        self.given += 1
        batch = Batch(self.given, start, end)
        self._batches.append(batch)
        return batch

    def acknowledge(self, batch_id: int) -> AnyPlace:
        """Forgets the oldest batch, and returns the place behind it. Raises `ValueError` for any other
        batch."""
        if not any(one.id == batch_id for one in self._batches):
            raise ValueError(f"batch {batch_id} does not exist, or was acknowledged or rolled back before")
        if self._batches[0].id != batch_id:
            raise ValueError(
                f"batch {batch_id} is not the first one; batch {self._batches[0].id} has to be acknowledged "
                "before it"
            )
        return self._batches.popleft().end

    def roll_back(self, batch_id: int = 0) -> AnyPlace | None:
        """Gives up a batch and all later ones; 0: all. Returns the place before them; None: there are none.
        Raises `ValueError` for a batch that is not outstanding."""
        if not batch_id:
            start = self._batches[0].start if self._batches else None
            self._batches.clear()
            return start
        if not any(one.id == batch_id for one in self._batches):
            raise ValueError(f"batch {batch_id} does not exist, or was acknowledged or rolled back before")
        while True:
            batch = self._batches.pop()
            if batch.id == batch_id:
                return batch.start
