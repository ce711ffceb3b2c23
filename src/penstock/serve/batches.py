"""What a subscription has read ahead, and the batches that its client has got. Pure: no I/O and no waiting.

A place is a committed offset of the log and a number of entries behind it. The entries behind an offset are
the same each time, as long as the filter is, so a place inside a large transaction can be found again.

A batch takes whole transactions as long as they fit its limit. Only a transaction that is larger than the
limit itself is divided. Batches are acknowledged in the order in which they were given, each once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.model.offset import Offset

BATCH_BYTES_MAX = 4 * 1024**2
"""The most bytes of entries in a batch, whatever the client asks for. Only a single entry may be larger.
Server and client hold a batch about three times in memory while it is sent."""
OUTSTANDING_MAX = 10_000
"""Batches without acknowledgement: a client that never acknowledges must not fill the memory."""


@dataclass(frozen=True, order=True)
class Place:
    """A place in the log: `entries` entries after `offset`."""

    offset: Offset
    entries: int = 0


@dataclass(frozen=True)
class Piece:
    """Entries of one transaction, or of a statement outside of transactions. `start`: the place before the
    first of them. `end`: where the transaction ends; None: more of it follows, or may follow."""

    start: Place
    entries: Sequence[bytes]
    end: Offset | None = None

    def place(self, count: int) -> Place:
        """The place behind the first `count` entries."""
        if self.end is not None and count == len(self.entries):
            return Place(self.end)
        return Place(self.start.offset, self.start.entries + count)


@dataclass(frozen=True)
class Limit:
    """The most that a batch may have: a number of entries, and bytes of entries. `items` 0: any number."""

    items: int = 0
    bytes: int = BATCH_BYTES_MAX

    def allows(self, items: int, size: int) -> bool:
        return (not self.items or items <= self.items) and size <= self.bytes


@dataclass(frozen=True)
class Batch:
    id: int
    start: Place
    end: Place


class ReadAhead:
    """Entries that were read and not given yet, in order."""

    def __init__(self) -> None:
        self._pieces: deque[Piece] = deque()
        self._taken = 0
        """Entries of the first piece that were given."""
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def clear(self) -> None:
        self._pieces.clear()
        self._taken = self.bytes = 0

    def add(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            if piece.entries:
                self._pieces.append(piece)
                self.bytes += sum(map(len, piece.entries))

    def take(self, limit: Limit, *, more: bool) -> tuple[list[bytes], Place] | None:
        """The entries of the next batch, and the place behind them. `more`: something may be read behind what
        is here. None: nothing is here, or more must be read first to fill the batch."""
        items = size = 0
        whole: tuple[int, int] | None = None  # pieces and entries up to the last transaction's end that fits
        fits = 0  # entries that fit, of the first transaction
        full = False
        for number, piece in enumerate(self._pieces):
            entries = piece.entries[self._taken :] if not number else piece.entries
            for entry in entries:
                items, size = items + 1, size + len(entry)
                if not limit.allows(items, size) and (fits or whole):
                    full = True
                    break
                fits += 1
            if full:
                break
            if piece.end is not None:
                whole = number + 1, fits
        full = full or not limit.allows(items + 1, size + 1)
        if not fits or (more and not full):
            return None
        return self._cut(fits if whole is None else whole[1])

    def _cut(self, count: int) -> tuple[list[bytes], Place]:
        found: list[bytes] = []
        while True:
            piece = self._pieces[0]
            part = piece.entries[self._taken : self._taken + count - len(found)]
            found += part
            self._taken += len(part)
            place = piece.place(self._taken)
            if self._taken == len(piece.entries):
                self._pieces.popleft()
                self._taken = 0
            if len(found) == count:
                self.bytes -= sum(map(len, found))
                return found, place


class Outstanding:
    """The batches of a client that it has not acknowledged, oldest first."""

    def __init__(self) -> None:
        self._batches: deque[Batch] = deque()
        self._last = 0

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, start: Place, end: Place) -> Batch:
        self._last += 1
        batch = Batch(self._last, start, end)
        self._batches.append(batch)
        return batch

    def acknowledge(self, batch_id: int) -> Place:
        """The place behind the batch. Raises `ValueError` unless it is the oldest one."""
        if not any(one.id == batch_id for one in self._batches):
            raise ValueError(f"batch {batch_id} does not exist, or was acknowledged or rolled back before")
        if self._batches[0].id != batch_id:
            raise ValueError(
                f"batch {batch_id} is not the first one; batch {self._batches[0].id} has to be acknowledged "
                "before it"
            )
        return self._batches.popleft().end

    def roll_back(self, batch_id: int = 0) -> Place | None:
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
