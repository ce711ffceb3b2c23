"""What subscription servers of the model stand on: a source whose changes are numbered, and each server's log
of it, in which they have offsets of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.model.offset import Offset
from penstock.relaylog.segment_format import position
from penstock.serve.batches import Block, Piece, Place
from penstock.serve.log.destination_log import Clients
from penstock.serve.source_places import NotReached, SourcePlace

FILE = "binlog.000001"


def transaction_of(place: SourcePlace) -> int:
    return place.position.order[-1]


@dataclass
class Source:
    """Transactions of one to three entries. Entries are numbered from 1 over all of them."""

    sizes: list[int]

    def before(self, transaction: int) -> int:
        """The number of the last entry before it."""
        return sum(self.sizes[:transaction])

    def entries(self, transaction: int) -> list[bytes]:
        first = self.before(transaction) + 1
        return [b"%d" % number for number in range(first, first + self.sizes[transaction])]

    def number(self, place: SourcePlace) -> int:
        """The number of the last entry before a place."""
        return self.before(transaction_of(place)) + place.entries


class Log:
    """`ServedLog` and `DestinationLog`. It has the source's first `received` transactions; transaction N
    begins at the offset `10 N + number`."""

    def __init__(self, source: Source, number: int) -> None:
        self.source, self.number = source, number
        self.received = 0
        self.id = f"log-{number}"
        self.clients = Clients()

    def offset(self, transaction: int) -> Offset:
        return Offset(10 * transaction + self.number)

    def transaction(self, offset: Offset) -> int:
        found, rest = divmod(offset, 10)
        assert rest == self.number, "an offset of another server's log"
        return found

    # `ServedLog` --------------------------------------------------------------------------------------------

    @property
    def start(self) -> Offset:
        return self.offset(0)

    @property
    def end_position(self) -> str:
        return f"{FILE}:{self.received}"

    def place_of(self, place: SourcePlace) -> Place:
        transaction = transaction_of(place)
        if transaction > self.received or (place.entries and transaction == self.received):
            raise NotReached("The relay log has not reached it.")
        return Place(self.offset(transaction), place.entries)

    def source_place(self, place: Place) -> SourcePlace:
        return SourcePlace(position(FILE, self.transaction(place.offset)), place.entries)

    def place_in(self, log_id: str, place: Place) -> Place | None:
        return place if log_id == self.id else None

    # `DestinationLog` ---------------------------------------------------------------------------------------

    @property
    def end(self) -> Any:
        """A `Place` as a `DestinationLog` has it; the places of a log are offsets, and are compared alike."""
        return Place(self.offset(self.received))

    def begin(self, start: Any) -> Place:
        return Place(self.start)

    def has(self, place: Place) -> bool:
        return True

    def reaches(self, place: Place) -> bool:
        return bool(place <= self.end)

    def reader(self, view: Any, place: Place) -> Reader:
        return Reader(self, place)

    def behind(self, place: Place) -> dict[str, Any]:
        return {}

    def acknowledged(self, place: Place) -> dict[str, Any]:
        return {}

    def needs(self, place: Place) -> dict[Any, Offset]:
        return {self: place.offset}

    def stored(self, place: Place) -> dict[str, Place]:
        return {self.id: place}

    def restored(self, places: Mapping[str, Place]) -> Place | None:
        return places.get(self.id)


class Reader:
    """`destination_log.AnyReader`: everything is read already."""

    shares = True

    def __init__(self, log: Log, place: Place) -> None:
        self._log = log
        self.at = place
        self.waiting: set[Any] = set()

    @property
    def level(self) -> bool:
        return bool(self.at == self._log.end)

    def has_read(self, end: Place) -> bool:
        return self.at >= end

    def close(self) -> None: ...

    def ready(self) -> list[Block]:
        found = []
        while self.at < self._log.end:
            transaction, skip = self._log.transaction(self.at.offset), self.at.entries
            entries = self._log.source.entries(transaction)[skip:]
            piece = Piece(self.at, entries, self._log.offset(transaction + 1))
            found.append(Block([piece]))
            self.at = piece.own_place(len(entries))
        return found
