"""Places of a PostgreSQL server's log in relay logs. A place is a position (LSN). Every relay log of the
server has the same transactions at the same positions, whichever slot they come from."""

from __future__ import annotations

from penstock.errors import ConfigError
from penstock.model.offset import Offset
from penstock.relaylog.first_transaction import first_transaction
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment_format import lsn_position
from penstock.sources.log_start import LogStart
from penstock.sources.postgresql.log_position import lsn_of, system_of
from penstock.sources.postgresql.options import StartAtLsn
from penstock.sources.source_places import NotReached, SourcePlace, purged


class PostgreSqlPlaces:
    """`Places`."""

    def start(self, log: RelayLog, start: LogStart) -> Offset:
        assert isinstance(start, StartAtLsn) and start.lsn is not None
        wanted = lsn_position(lsn_of(start.lsn))
        if log.position_at(log.start).order > wanted.order:
            raise ConfigError(f"The relay log begins behind {wanted}.", hint="Use a later `start`.")
        if not log.reached(wanted):
            raise ConfigError(
                f"The relay log ends at {log.position_at(log.end)}, before {wanted}.",
                hint="Use an earlier `start`, or wait until the receiver has got there.",
            )
        return _behind(log, wanted.order[0])

    def find(self, log: RelayLog, wanted: SourcePlace) -> tuple[Offset, int]:
        if wanted.server_uuid and system_of(wanted.server_uuid) != system_of(log.source_uuid):
            raise ConfigError(
                f"{wanted} is a position of another server ({wanted.server_uuid}).",
                hint="Remove what is stored of the client; it then begins at the destination's `start`.",
            )
        if log.position_at(log.start).order > wanted.position.order:
            raise purged(log, wanted)
        if not log.reached(wanted.position):
            raise NotReached(f"The relay log has not reached {wanted} yet.")
        return _behind(log, wanted.position.order[0]), wanted.entries

    def server_id(self, log: RelayLog, offset: Offset) -> int:
        return 0


def _behind(log: RelayLog, lsn: int) -> Offset:
    """Where the first transaction begins whose commit is not before a position. Positions of the log are ends
    of commits, so no commit is across one."""
    near = Offset(max(log.offset_within(lsn_position(lsn)), log.start))
    return first_transaction(log, near, lambda _id, place, _time: lsn_of(place) >= lsn)
