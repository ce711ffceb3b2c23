"""The newest entries of the log, as blocks that were read once for all subscribers of the same entries. Pure.

A subscriber that is behind the window reads the log itself until its place is in the window. So the window
is bounded, and drops its oldest blocks without asking anybody.

Blocks are numbered. Offsets of places differ between readers, since entries are counted from any offset
behind which the same ones follow. So a place is searched by the ends of transactions, which are the same for
all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from penstock.model.offset import Offset
from penstock.serve.batches import Block, Piece, Place

ENTRY_BYTES, COPIES = 60, 2
"""Memory of an entry beside its bytes, and how often these are there: also as they are sent."""


class Window:
    """`passed`: all entries up to here were added. `start`: all entries behind it are here. None: the
    beginning of a transaction was dropped, and its end is not known yet."""

    def __init__(self, start: Offset) -> None:
        self.start: Offset | None = start
        self.passed = start
        self.first = 0
        """The number of the oldest block."""
        self.memory = 0
        self._blocks: deque[Block] = deque()

    @property
    def next(self) -> int:
        """The number of the next block."""
        return self.first + len(self._blocks)

    def add(self, block: Block, memory_max: int) -> None:
        self._blocks.append(block)
        self.memory += _memory(block)
        if self.start is None:
            self.start = _first_end(iter(block.pieces))
        while self.memory > memory_max and self._blocks:
            self._drop()

    def _drop(self) -> None:
        block = self._blocks.popleft()
        self.first += 1
        self.memory -= _memory(block)
        last = block.pieces[-1]
        end = last.end if last.end is not None else last.until
        # Without one, the transaction goes on behind the block.
        self.start = (
            end if end is not None else _first_end(piece for one in self._blocks for piece in one.pieces)
        )

    def since(self, number: int) -> list[Block] | None:
        """The blocks from a number on. None: some of them were dropped."""
        if number < self.first:
            return None
        return list(islice(self._blocks, number - self.first, None))

    def find(self, place: Place) -> tuple[int, Block | None] | None:
        """The number of the block that is next behind a place, and what of the block before that is behind
        the place, if anything is. None: the window does not have everything behind the place."""
        if self.start is None or not self.start <= place.offset <= self.passed:
            return None
        skip, found = place.entries, False
        for number, block in enumerate(self._blocks, self.first):
            if not found and block.end is not None and block.end <= place.offset:
                continue
            for index, piece in enumerate(block.pieces):
                if not found:
                    end = self._end_of(number, index)
                    if end is not None and end <= place.offset:
                        continue
                    found = True
                if skip >= len(piece.entries):
                    skip -= len(piece.entries)
                    continue
                return number + 1, Block((piece.behind(skip), *block.pieces[index + 1 :]))
        return None if skip else (self.next, None)

    def _end_of(self, number: int, index: int) -> Offset | None:
        """The place where the transaction of a piece ends, if that is known."""
        blocks = islice(self._blocks, number - self.first, None)
        pieces = next(blocks).pieces[index:]
        return _first_end(piece for part in (pieces, *(one.pieces for one in blocks)) for piece in part)


def _first_end(pieces: Iterator[Piece]) -> Offset | None:
    for piece in pieces:
        if piece.end is not None:
            return piece.end
        if piece.until is not None:
            return piece.until
    return None


def _memory(block: Block) -> int:
    return COPIES * block.bytes + ENTRY_BYTES * block.items
