"""Transactions of a log, as pieces that a scan reads."""

from __future__ import annotations

from penstock.model.offset import Offset
from penstock.serve.batches import Piece, Place


def pieces_of(sizes: list[int], cut: int) -> list[Piece]:
    """Transactions of so many entries, in pieces of at most `cut`. Transaction n ends at the offset
    100·(n + 1), and its entries are counted from the end of the one before."""
    found = []
    for number, size in enumerate(sizes):
        entries = [f"{number}.{one}".encode() for one in range(size)]
        for at in range(0, size, cut):
            end = Offset(100 * (number + 1)) if at + cut >= size else None
            found.append(Piece(Place(Offset(100 * number), at), entries[at : at + cut], end))
    return found
