"""Which feed reads a view."""

from __future__ import annotations

from typing import Protocol

from penstock.model.offset import Offset
from penstock.serve.batches import Piece, Place
from penstock.serve.log.feed import Feed, View
from penstock.serve.log.served_log import ServedLog


class AnyFeed(Protocol):
    """See `Feed`."""

    passed: Offset

    def read(self, size: int, /) -> list[Piece] | None: ...


def feed_of(served: ServedLog, view: View, place: Place) -> AnyFeed:
    if view.format == "arrow":
        from penstock.serve.log.typed_feed import TypedFeed  # Arrow is large

        return TypedFeed(served, view, place)
    return Feed(served, view, place)
