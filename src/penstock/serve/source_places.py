"""Places in a relay log as other servers find them: in the same relay log by their offsets, else as the
source's kind finds them (`sources/source_places.py`)."""

from __future__ import annotations

from typing import Any

from penstock.errors import ConfigError
from penstock.model.offset import Offset, SourcePosition
from penstock.relaylog.archive_restore import identity_of
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment_format import format_of
from penstock.serve.batches import Place
from penstock.sources import registry
from penstock.sources.source_places import NotReached, Places, SourcePlace, purged

__all__ = ["NotReached", "SourcePlace"]


def places_of(log: RelayLog) -> Places | None:
    """None: places of the log's source mean nothing in another relay log."""
    kind = registry.of_format(format_of(log.facts))
    return None if kind is None or kind.places is None else kind.places()


def of_place(log: RelayLog, place: Place) -> SourcePlace:
    """The position at the source of a place in the log. Raises `LogPurged`."""
    offset, places = place.offset, places_of(log)
    return SourcePlace(
        log.position_at(offset),
        entries=place.entries,
        executed=str(log.executed_at(offset)),
        server_uuid=log.server_uuid_at(offset),
        server_id=0 if places is None else places.server_id(log, offset),
        commit_us=log.commit_time_us_at(offset) or 0,
        relay_log=identity_of(log.facts),
        offset=int(offset),
    )


def to_place(log: RelayLog, wanted: SourcePlace) -> Place:
    """The place in this log for a place at the source. Raises `NotReached`, `LogPurged`, and `ConfigError` if
    the log cannot tell."""
    same = wanted.relay_log == identity_of(log.facts)
    if same and wanted.offset <= log.end:
        if wanted.offset < log.start:
            raise purged(log, wanted)
        return Place(Offset(wanted.offset), wanted.entries)
    places = places_of(log)
    if same and places is None:
        raise NotReached(f"The relay log has not reached offset {wanted.offset} yet.")
    if places is None:
        raise ConfigError(
            f"The stored place is one of another relay log ({wanted.relay_log}), and places of this source "
            "mean nothing in another one.",
            hint="Let the servers read one relay log, or a copy of it from its archive. Or remove what is "
            "stored of the client; it then begins at the destination's `start`.",
        )
    if not log.segments():
        raise NotReached(f"The relay log is empty; {wanted} is not in it yet.")
    return Place(*places.find(log, wanted))


def behind_end(place: SourcePosition, end: SourcePosition | None) -> dict[str, Any]:
    """How far a position is behind the end of the source's log: its last number, and for logs in files, how
    many files."""
    unknown = {"files_behind": None, "position_behind": None}
    if end is None or not place.order or len(place.order) != len(end.order) or place.order > end.order:
        return unknown
    files = end.order[0] - place.order[0] if len(place.order) == 2 else None
    same = place.order[:-1] == end.order[:-1]
    return {"files_behind": files, "position_behind": end.order[-1] - place.order[-1] if same else None}
