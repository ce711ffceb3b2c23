"""Where the relay log ends in the topics, and whether they can be read on from there. Pure.

The log's own position at the source is a time: everything that the topics had at that time is in the log.
The receiver takes the time, then asks for the ends of all partitions, and writes the time once it has read up
to them. So a log that has reached the present time has everything that was in the topics before.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from penstock.errors import LogDiverged, LogPurged
from penstock.model.offset import SourcePosition
from penstock.relaylog import segment_format
from penstock.sources.debezium.connection import LOST_HINT, Bounds, Place

CREATED_ANEW_HINT = (
    "If the topic was deleted and created again, its table has to begin again, too: use a new `state`, or "
    "another name of the topic."
)


def now_us() -> int:
    return time.time_ns() // 1000


def position(time_us: int) -> SourcePosition:
    return segment_format.number_position(time_us)


def next_time_us(last_us: int) -> int:
    """A time for a look at the ends of the partitions. It only grows, even if the clock is set back."""
    return max(now_us(), last_us + 1)


def check_ids(known: Mapping[str, str], found: Mapping[str, str], read: Iterable[str]) -> None:
    """Raises `LogDiverged` if one of the topics that were read has another id than it had then: offsets begin
    again in a topic that was created again, and may be greater already."""
    for name in read:
        if name in known and name in found and known[name] != found[name]:
            raise LogDiverged(
                f"The topic {name} was deleted and created again since the relay log has read it.",
                hint=CREATED_ANEW_HINT, topic=name,
            )  # fmt: skip


def held_back(new: Mapping[Place, int], known: Iterable[Place]) -> dict[Place, int]:
    """The `new` partitions that belong to topics with `known` ones. Rows may have moved to them: their older
    changes are in the known partitions, and must be read first."""
    grown = {topic for topic, _ in known}
    return {place: at for place, at in new.items() if place[0] in grown}


def starts(known: Mapping[Place, int], bounds: Mapping[Place, Bounds]) -> dict[Place, int]:
    """The offsets from which the partitions of `bounds` are read: `known` has those of the log. Partitions
    that it does not have begin at their first message. Raises `LogPurged` or `LogDiverged` if a partition
    cannot be continued."""
    found = {}
    for place, at in bounds.items():
        wanted = known.get(place, at.first)
        name = f"{place[0]}[{place[1]}]"
        if wanted < at.first:
            raise LogPurged(
                f"The messages {wanted} to {at.first - 1} of {name} were deleted before they were received.",
                hint=LOST_HINT, needed=wanted, oldest=at.first,
            )  # fmt: skip
        if wanted > at.next:
            raise LogDiverged(
                f"{name} ends at offset {at.next}, and the relay log has it up to {wanted}: it is another "
                "topic of the same name.",
                hint=CREATED_ANEW_HINT, position=wanted,
            )  # fmt: skip
        found[place] = wanted
    return found
