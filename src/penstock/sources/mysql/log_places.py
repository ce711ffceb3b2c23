"""Places of a MySQL server's log in relay logs, as Canal's clients and other servers of ours know them.

Canal writes the position of an *event*: of the last event of a transaction, if that was acknowledged as a
whole, and of its first one, if only a part of it was. In the second case the transaction comes again.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from penstock._core import GtidSet, read_statement
from penstock.errors import ConfigError
from penstock.model.offset import Offset
from penstock.relaylog import segment_format
from penstock.relaylog.first_transaction import first_transaction
from penstock.relaylog.reader import RelayLog
from penstock.sources.log_start import LogStart
from penstock.sources.mysql.binlog_position import BinlogPosition
from penstock.sources.mysql.options import StartAt
from penstock.sources.source_places import NotReached, SourcePlace, purged

_LATER = "Use a later `start`."
_EARLIER = "Use an earlier `start`, or wait until the receiver has got there."
_HEADER = struct.Struct("<IBIIIH")
"""The header of an event: time, type, server id, length, where it ends in the source's log, flags."""
_QUERY, _XID, _XA_PREPARE = 2, 16, 38
_MAGIC = b"\xfebin"


class MySqlPlaces:
    """`Places`."""

    def start(self, log: RelayLog, start: LogStart) -> Offset:
        assert isinstance(start, StartAt)
        if start.file is not None and start.position is not None:
            return _at_position(log, start.file, start.position)
        assert start.gtid is not None
        return _behind_transactions(log, start.gtid)

    def find(self, log: RelayLog, wanted: SourcePlace) -> tuple[Offset, int]:
        if wanted.server_uuid in ("", log.source_uuid):
            return _by_position(log, wanted)
        if wanted.executed:
            return _by_gtids(log, wanted), 0
        raise ConfigError(
            f"{wanted} is a position of another server ({wanted.server_uuid}), and there are no GTIDs.",
            hint="Remove what is stored of the client; it then begins at the destination's `start`.",
        )

    def server_id(self, log: RelayLog, offset: Offset) -> int:
        """From the first event of the segment."""
        path, _ = log.segment_of(offset)
        if not isinstance(path, str):
            return 0
        with open(path, "rb") as segment:
            header = segment.read(len(_MAGIC) + _HEADER.size)[len(_MAGIC) :]
        return int(_HEADER.unpack(header)[2]) if len(header) == _HEADER.size else 0

    def to_canal(self, place: SourcePlace) -> dict[str, Any]:
        at = BinlogPosition.of(place.position)
        return {
            "gtid": place.executed,
            "included": False,
            "journalName": at.file,
            "position": at.position,
            "serverId": place.server_id,
            "timestamp": place.commit_us // 1_000_000 * 1000,  # as in the log: whole seconds
        }

    def of_canal(self, fields: Mapping[str, Any]) -> SourcePlace:
        if not fields.get("journalName"):
            raise ValueError("it has no file and position")
        return SourcePlace(
            segment_format.position(str(fields["journalName"]), int(fields["position"])),
            executed=str(fields.get("gtid") or ""),
            server_id=int(fields.get("serverId") or 0),
            commit_us=1000 * int(fields.get("timestamp") or 0),
        )


# Where a subscription begins


def _at_position(log: RelayLog, file: str, position: int) -> Offset:
    wanted = segment_format.position(file, position)
    if log.position_at(log.start).order > wanted.order and not _in_head(log, file):
        raise ConfigError(f"The relay log begins behind {wanted}.", hint=_LATER)
    if not log.reached(wanted):
        end = log.position_at(log.end)
        raise ConfigError(f"The relay log ends at {end}, before {wanted}.", hint=_EARLIER)
    before: list[str] = []

    def finds(_: str | None, found: str, __: int) -> bool:
        name, _, place = found.rpartition(":")
        if segment_format.position(name, int(place or 0)).order >= wanted.order:
            return True
        before[:] = [found] if name == file else []
        return False

    offset = first_transaction(log, log.offset_within(wanted) or log.start, finds)
    if before and log.position_at(offset).order > wanted.order:
        raise ConfigError(
            f"{wanted} is inside of a transaction.",
            hint=f"It begins at {before[0]} and ends at {log.position_at(offset)}.",
        )
    return offset


def _in_head(log: RelayLog, file: str) -> bool:
    """Whether the log has this file of the source from its beginning. The first events of a file describe it,
    and the log starts behind them: so 4, where all files begin, is before the log's start."""
    _, base = log.segment_of(log.start)
    return str(log.position_at(log.start)) == f"{file}:{log.start - base}"


def _behind_transactions(log: RelayLog, text: str) -> Offset:
    executed = GtidSet(text)
    if not log.executed_at(log.start).issubset(executed):
        raise ConfigError(f"The relay log begins behind `start.gtid` {text}.", hint=_LATER)
    if not executed.issubset(GtidSet(str(log.executed_at(log.end)))):
        raise ConfigError(
            f"`start.gtid` names transactions that the relay log does not have: {text}.", hint=_EARLIER
        )
    near = log.window_start(executed, not_after=log.end)
    return first_transaction(
        log, near, lambda gtid, *_: gtid is not None and not GtidSet(gtid).issubset(executed)
    )


# Where a stored place is


def _by_position(log: RelayLog, wanted: SourcePlace) -> tuple[Offset, int]:
    position = wanted.position
    if log.position_at(log.start).order > position.order:
        raise purged(log, wanted)
    if not log.reached(position):
        raise NotReached(f"The relay log has not reached {wanted} yet.")
    near = Offset(max(log.offset_within(position), log.start))
    if wanted.at_event:
        event = _event(log, wanted)
        return (near if event is None else log.committed_before(event)), 0
    for known in (near, _guess(log, wanted)):
        if known is not None and log.position_at(known).order == position.order:
            return known, wanted.entries
    # Another way through the same log, say a file that was switched. What is between comes again.
    return near, 0


def _guess(log: RelayLog, wanted: SourcePlace) -> Offset | None:
    """Where the position is, since a segment has the events of the source one behind the other. None: not
    there."""
    reaching = log.offset_reaching(wanted.position)
    if reaching is None:
        return None
    known, at = BinlogPosition.of(log.position_at(reaching)), BinlogPosition.of(wanted.position)
    found = Offset(reaching - (known.position - at.position))
    return found if known.file == at.file and log.start <= found <= reaching else None


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
    if end != (BinlogPosition.of(wanted.position).position + length) % 2**32:
        return None
    if kind == _QUERY:
        sql = str(read_statement(path, int(at - base))["sql"]).lstrip().upper()
        return at if sql.startswith(("BEGIN", "XA START")) else Offset(at + length)
    return Offset(at + length) if kind in (_XID, _XA_PREPARE) else at


def _by_gtids(log: RelayLog, wanted: SourcePlace) -> Offset:
    """The offset of the place with these GTIDs, or one before it: some transactions may come again."""
    executed = GtidSet(wanted.executed)
    if not log.executed_at(log.start).issubset(executed):
        raise purged(log, wanted)
    if not executed.issubset(GtidSet(str(log.executed_at(log.end)))):
        raise NotReached(f"The relay log does not have all transactions up to {wanted} yet.")
    return log.window_start(executed, not_after=log.end)
