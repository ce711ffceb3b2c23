"""Places as other servers find them. An offset means something in one relay log only; the position in the
source's log, at which a transaction has ended, is the same for every server that follows this source.

Canal writes the position of an *event*: of the last event of a transaction, if that was acknowledged as a
whole, and of its first one, if only a part of it was. In the second case the transaction comes again.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from penstock._core import GtidSet, read_statement
from penstock.errors import ConfigError, LogPurged, TransientError
from penstock.model.offset import Offset, SourcePosition
from penstock.relaylog import segment_format
from penstock.relaylog.archive_restore import identity_of
from penstock.relaylog.reader import RelayLog
from penstock.serve.batches import Place

_HEADER = struct.Struct("<IBIIIH")
"""The header of an event: time, type, server id, length, where it ends in the source's log, flags."""
_QUERY, _XID, _XA_PREPARE = 2, 16, 38
_MAGIC = b"\xfebin"


@dataclass(frozen=True)
class SourcePlace:
    """A position in the source's log, and a number of entries behind it. `relay_log` and `offset`: the same
    place in one relay log. `view`: whose entries these are (`Subscribed`). `at_event`: the position is that
    of an event, as Canal writes it. `gtids`: what the source had executed there. `server_uuid`: the source;
    empty: not known."""

    file: str
    position: int
    entries: int = 0
    gtids: str = ""
    server_uuid: str = ""
    server_id: int = 0
    commit_us: int = 0
    relay_log: str = ""
    offset: int = 0
    view: str = ""
    at_event: bool = False

    def __str__(self) -> str:
        return f"{self.file}:{self.position}"

    @property
    def source_position(self) -> SourcePosition:
        return segment_format.position(self.file, self.position)


class NotReached(TransientError):
    """The relay log has not received this place yet."""


def of_place(log: RelayLog, place: Place) -> SourcePlace:
    """The position at the source of a place in the log. Raises `LogPurged`."""
    offset = place.offset
    file, _, position = str(log.position_at(offset)).rpartition(":")
    return SourcePlace(
        file=file,
        position=int(position or 0),
        entries=place.entries,
        gtids=str(log.executed_at(offset)),
        server_uuid=log.server_uuid_at(offset),
        server_id=_server_id(log, offset),
        commit_us=log.commit_time_us_at(offset) or 0,
        relay_log=identity_of(log.facts),
        offset=int(offset),
    )


def to_place(log: RelayLog, wanted: SourcePlace) -> Place:
    """The place in this log for a place at the source. Raises `NotReached`, `LogPurged`, and `ConfigError` if
    the log cannot tell."""
    if wanted.relay_log == identity_of(log.facts) and wanted.offset <= log.end:
        if wanted.offset < log.start:
            raise _purged(log, wanted)
        return Place(Offset(wanted.offset), wanted.entries)
    if not log.segments():
        raise NotReached(f"The relay log is empty; {wanted} is not in it yet.")
    if wanted.server_uuid in ("", log.source_uuid):
        return _by_position(log, wanted)
    if wanted.gtids:
        return Place(_by_gtids(log, wanted))
    raise ConfigError(
        f"{wanted} is a position of another server ({wanted.server_uuid}), and there are no GTIDs.",
        hint="Remove what is stored of the client; it then begins at the destination's `start`.",
    )


def _by_position(log: RelayLog, wanted: SourcePlace) -> Place:
    position = wanted.source_position
    if log.position_at(log.start).order > position.order:
        raise _purged(log, wanted)
    if not log.reached(position):
        raise NotReached(f"The relay log has not reached {wanted} yet.")
    near = Offset(max(log.offset_within(position), log.start))
    if wanted.at_event:
        event = _event(log, wanted)
        return Place(near if event is None else log.committed_before(event))
    for known in (near, _guess(log, wanted)):
        if known is not None and log.position_at(known).order == position.order:
            return Place(known, wanted.entries)
    # Another way through the same log, say a file that was switched. What is between comes again.
    return Place(near)


def _guess(log: RelayLog, wanted: SourcePlace) -> Offset | None:
    """Where the position is, since a segment has the events of the source one behind the other. None: not
    there."""
    known = log.offset_reaching(wanted.source_position)
    if known is None:
        return None
    file, _, position = str(log.position_at(known)).rpartition(":")
    found = Offset(known - (int(position or 0) - wanted.position))
    return found if file == wanted.file and log.start <= found <= known else None


def _event(log: RelayLog, wanted: SourcePlace) -> Offset | None:
    """Where the event at the position begins; behind it, if it ends its transaction. None: that cannot be
    seen."""
    at = _guess(log, wanted)
    if at is None or at >= log.end:
        return at
    path, base = log.segment_of(Offset(at + 1), start=at)
    if not isinstance(path, str):
        return None
    with open(path, "rb") as segment:
        segment.seek(at - base)
        header = segment.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    _, kind, _, length, end, _ = _HEADER.unpack(header)
    if end != (wanted.position + length) % 2**32:
        return None
    if kind == _QUERY:
        sql = str(read_statement(path, int(at - base))["sql"]).lstrip().upper()
        return at if sql.startswith(("BEGIN", "XA START")) else Offset(at + length)
    return Offset(at + length) if kind in (_XID, _XA_PREPARE) else at


def _by_gtids(log: RelayLog, wanted: SourcePlace) -> Offset:
    """The offset of the place with these GTIDs, or one before it: some transactions may come again."""
    executed = GtidSet(wanted.gtids)
    if not log.executed_at(log.start).issubset(executed):
        raise _purged(log, wanted)
    if not executed.issubset(log.executed_at(log.end)):
        raise NotReached(f"The relay log does not have all transactions up to {wanted} yet.")
    return log.window_start(executed, not_after=log.end)


def _purged(log: RelayLog, wanted: SourcePlace) -> LogPurged:
    return LogPurged(
        f"The relay log {log.place} begins behind {wanted}.",
        hint="Bring back a relay log that has it, or remove what is stored of the client. It then "
        "begins at the destination's `start`, and misses what is in between.",
    )


def _server_id(log: RelayLog, offset: Offset) -> int:
    """The id of the server whose log this is, from the first event of the segment. 0: not known."""
    path, _ = log.segment_of(offset)
    if not isinstance(path, str):
        return 0
    with open(path, "rb") as segment:
        header = segment.read(len(_MAGIC) + _HEADER.size)[len(_MAGIC) :]
    return int(_HEADER.unpack(header)[2]) if len(header) == _HEADER.size else 0


def behind_end(place: SourcePosition, end: SourcePosition | None) -> dict[str, Any]:
    """Files of the source's log, and bytes if it is the same file."""
    if end is None or len(place.order) != 2 or place.order > end.order:
        return {"files_behind": None, "position_behind": None}
    files = end.order[0] - place.order[0]
    return {"files_behind": files, "position_behind": end.order[1] - place.order[1] if not files else None}
