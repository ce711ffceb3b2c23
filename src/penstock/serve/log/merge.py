"""Merges the transactions of several sources into one order. Pure.

**The rule.** Of the next transaction of each source, the one that was committed first comes first; of two
at the same microsecond, that of the source that is named first. Each source's own order stays, whatever its
clock says. Transactions are not mixed: another source's comes when the one before has ended.

**A source without a next transaction** holds the others up until it is known that what it may still send was
committed later (`Seen.reached_us`): its log says so by a later transaction of any table, or its receiver by
a heartbeat of the source. If a transaction comes later than it should, since clocks differ or a commit took
long, it is given when it comes.

**Places.** Each piece knows the places in all logs behind it. So a client goes on exactly there, however the
sources are mixed the next time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from penstock.model.offset import Offset
from penstock.serve.batches import Piece, Place, Places


@dataclass(frozen=True)
class Seen:
    """What is known of a source. `passed`: everything up to here was read, and given to `Merge.add`.
    `reached_us`: what comes behind that was committed later. None: there is more to be read."""

    passed: Offset
    reached_us: int | None


@dataclass(frozen=True)
class MergedPiece(Piece):
    """A piece of the log of one source, which is given by its number. `others`: the places in all logs before
    the piece."""

    source: int = 0
    others: tuple[Place, ...] = field(default=())

    def place(self, count: int) -> Places:
        at = self.source
        return Places((*self.others[:at], self.own_place(count), *self.others[at + 1 :]))

    def _part(self, start: Place, entries: Sequence[bytes], end: Offset | None) -> Piece:
        return MergedPiece(start, entries, end, self.until, self.commit_us, self.source, self.others)


class Merge:
    """Merges the pieces of several sources by the time of commits. `place`: the place behind all that was
    taken."""

    def __init__(self, place: Places) -> None:
        self._places = list(place.each)
        self._next: list[deque[Piece]] = [deque() for _ in place.each]
        self.sizes = [0] * len(place.each)
        """Bytes of each source that wait."""
        self._last: tuple[int, Piece] | None = None
        """The source and the piece that was taken last, if its transaction may go on."""
        for source, one in enumerate(place.each):
            if one.entries:  # inside of a transaction: at most one is
                self._last = source, Piece(one, ())

    @property
    def place(self) -> Places:
        return Places(tuple(self._places))

    def add(self, source: int, pieces: Iterable[Piece]) -> None:
        for one in pieces:
            self._next[source].append(one)
            self.sizes[source] += one.bytes

    def waits(self, source: int) -> bool:
        """Whether a piece of this source was added and not taken yet."""
        return bool(self._next[source])

    def take(self, seen: Sequence[Seen], size: int) -> list[Piece]:
        """The next pieces, of about `size` bytes."""
        for source, (known, pieces) in enumerate(zip(seen, self._next, strict=True)):
            if not pieces:
                self._places[source] = max(self._places[source], Place(known.passed))
        found: list[Piece] = []
        while size > 0 and (chosen := self._chosen(seen)) is not None:
            self._leave(seen)
            piece = self._take(chosen)
            size -= max(1, piece.bytes)
            found.append(piece)
        return found

    def _take(self, source: int) -> Piece:
        piece = self._next[source].popleft()
        self.sizes[source] -= piece.bytes
        made = MergedPiece(
            piece.start, piece.entries, piece.end, piece.until, piece.commit_us, source, tuple(self._places)
        )
        self._places[source] = piece.own_place(len(piece.entries))
        self._last = (source, piece) if piece.end is None else None
        return made

    def _leave(self, seen: Sequence[Seen]) -> None:
        """Moves the place of the last transaction's source behind that transaction, if it has ended. Until
        then, the place is at its last entry."""
        if self._last is not None and self._going_on(seen) is None:
            source, _ = self._last
            pieces = self._next[source]
            behind = pieces[0].start if pieces else Place(seen[source].passed)
            self._places[source] = max(self._places[source], behind)
            self._last = None

    def can_take(self, seen: Sequence[Seen]) -> bool:
        return self._chosen(seen) is not None

    def _chosen(self, seen: Sequence[Seen]) -> int | None:
        """The source whose piece comes next. None: it is not known yet."""
        going_on = self._going_on(seen)
        if going_on is not None:
            return going_on if self._next[going_on] else None
        first = min(
            ((pieces[0].commit_us, source) for source, pieces in enumerate(self._next) if pieces),
            default=None,
        )
        if first is None:
            return None
        for known, pieces in zip(seen, self._next, strict=True):
            if not pieces and (known.reached_us is None or known.reached_us < first[0]):
                return None
        return first[1]

    def _going_on(self, seen: Sequence[Seen]) -> int | None:
        """The source whose transaction has not ended."""
        if self._last is None:
            return None
        source, last = self._last
        pieces = self._next[source]
        ended = pieces[0].start.offset if pieces else seen[source].passed
        # Entries are counted from the end of the transaction before, so a later one counts from farther on.
        return None if ended > last.start.offset else source
