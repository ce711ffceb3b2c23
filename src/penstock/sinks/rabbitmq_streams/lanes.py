"""Publishes messages into many streams over one connection, without waiting for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock.sinks.rabbitmq_streams.connection import Confirmed, StreamConnection

MESSAGES_MAX = 500
"""Messages of one frame."""
BYTES_MAX = 256 * 1024
"""Bytes of one frame, about. Servers take at most 1 MiB by default."""
UNCONFIRMED_MAX = 5000
"""Messages that were sent and are not confirmed yet."""
WAITING_BYTES_MAX = 16 * 1024**2
"""Bytes that wait in all streams together until frames are full."""
PUBLISHERS_MAX = 200
"""A connection has at most 256."""


@dataclass(eq=False)
class Lane:
    """A stream, while an epoch is written to it. `written`: the number of the epoch's messages that it has
    from an earlier attempt. `count`: the number of the epoch's messages that it was given so far."""

    stream: str
    publisher: int
    written: int
    count: int = 0
    waiting: list[tuple[int, bytes]] = field(default_factory=list)
    waiting_bytes: int = 0
    unconfirmed: int = 0


class Lanes:
    """The streams of an epoch. `opened`: declares a publisher with a number for a stream, and returns the
    lane. `wait`: waits for the next event of the connection and takes it. `look`: takes the events that have
    arrived."""

    def __init__(
        self, connection: StreamConnection, opened: Callable[[str, int], Lane], wait: Callable[[], None],
        look: Callable[[], None],
    ) -> None:  # fmt: skip
        self._connection = connection
        self._opened = opened
        self._wait = wait
        self._look = look
        self._lanes: dict[str, Lane] = {}
        self._ended: dict[str, tuple[int, int]] = {}
        """`count` and `written` of streams that have no lane any more in this epoch."""
        self._by_publisher: dict[int, Lane] = {}
        self._unconfirmed = 0
        self._waiting_bytes = 0

    def __getitem__(self, stream: str) -> Lane:
        if (lane := self._lanes.get(stream)) is None:
            number = len(self._lanes) + 1
            if number > PUBLISHERS_MAX:
                number = self._end(next(iter(self._lanes.values())))
            lane = self._lanes[stream] = self._by_publisher[number] = self._opened(stream, number)
            lane.count, lane.written = self._ended.pop(stream, (lane.count, lane.written))
        return lane

    def begin(self, bases: Mapping[str, int]) -> None:
        """Begins an epoch. `bases`: for each stream, the number of messages in it that will not be given
        again."""
        self._ended = {}
        for lane in self._lanes.values():
            lane.count = bases.get(lane.stream, 0)

    def written(self) -> dict[str, int]:
        """How many messages of the epoch are in each of its streams, when `finish` has returned."""
        found = self._ended | {lane.stream: (lane.count, lane.written) for lane in self._lanes.values()}
        return {stream: max(counts) for stream, counts in found.items()}

    def committed(self) -> None:
        """Says that the epoch is committed: the next message belongs to another one."""
        self._ended = {}
        for lane in self._lanes.values():
            lane.count = lane.written = 0

    def add(self, lane: Lane, id: int, data: bytes) -> None:
        lane.waiting.append((id, data))
        lane.waiting_bytes += len(data)
        self._waiting_bytes += len(data)
        if len(lane.waiting) >= MESSAGES_MAX or lane.waiting_bytes >= BYTES_MAX:
            self._send(lane)
        if self._waiting_bytes >= WAITING_BYTES_MAX:
            self._send_all()
        while self._unconfirmed > UNCONFIRMED_MAX:
            self._wait()

    def finish(self) -> None:
        """Returns when the streams have all messages."""
        self._send_all()
        while self._unconfirmed:
            self._wait()

    def confirmed(self, event: Confirmed) -> None:
        if (lane := self._by_publisher.get(event.publisher)) is not None:
            lane.unconfirmed -= len(event.ids)
            self._unconfirmed -= len(event.ids)

    def _send_all(self) -> None:
        for lane in self._lanes.values():
            self._send(lane)

    def _send(self, lane: Lane) -> None:
        if not lane.waiting:
            return
        self._look()
        begin = 0
        while begin < len(lane.waiting):  # a large message goes alone
            end, size = begin + 1, len(lane.waiting[begin][1])
            while end < len(lane.waiting) and size + len(lane.waiting[end][1]) <= BYTES_MAX:
                size += len(lane.waiting[end][1])
                end += 1
            self._connection.publish(lane.publisher, lane.waiting[begin:end])
            begin = end
        lane.unconfirmed += len(lane.waiting)
        self._unconfirmed += len(lane.waiting)
        self._waiting_bytes -= lane.waiting_bytes
        lane.waiting, lane.waiting_bytes = [], 0

    def _end(self, lane: Lane) -> int:
        """Ends a lane. Returns the number of its publisher."""
        self._send(lane)
        while lane.unconfirmed:
            self._wait()
        self._connection.delete_publisher(lane.publisher)
        del self._lanes[lane.stream]
        self._ended[lane.stream] = lane.count, lane.written
        return lane.publisher
