"""Finds tables whose columns at the source are not those that the log describes.

A chunk whose table has changed waits for the statement that explains it. If the whole log of that moment is
planned and the table still has the same definition, there is no such statement: the definition was changed
without the log (`sql_log_bin = 0`), or it was not understood. Then the chunk would wait forever.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from penstock.epochs.table_outcome import resnapshot_reason
from penstock.errors import TableError
from penstock.model.offset import Offset
from penstock.model.schema import TableId
from penstock.model.table import TableState
from penstock.planning.source_end import HasEnd, SourceEnd
from penstock.printable import argument
from penstock.relaylog.reader import RelayLog
from penstock.state import StateStore

log = logging.getLogger(__name__)


class Drift:
    """Called between two epochs, like the planner. `rereads_max`: how often in 24 hours such a table is read
    again. After that, it stays parked."""

    def __init__(self, state: StateStore, relay_log: RelayLog, source: HasEnd, rereads_max: int) -> None:
        self._state = state
        self._log = relay_log
        self._source = source
        self._rereads_max = rereads_max
        self._goals: dict[TableId, tuple[int, Offset, SourceEnd]] = {}

    def work(self, misfits: Iterable[TableState]) -> None:
        """Has the tables among `misfits` (`SnapshotReader.misfits`) read again whose state no statement
        explains. Raises `TransientError` if the source does not answer."""
        known, self._goals = self._goals, {}
        for table in misfits:
            now = self._state.table(table.table)
            version, start = table.schema.version, table.start
            if now is None or not now.reading or (now.schema.version, now.start) != (version, start):
                continue  # a statement came, or another snapshot began
            at = known.get(table.table)
            if at is None or at[:2] != (version, start):
                at = (version, start, SourceEnd(self._source, self._log))
            reached, planned = self._log.offset_reaching(at[2].position()), self._state.position
            if reached is None or planned is None or planned < reached:
                self._goals[table.table] = at
                continue
            error = _unexplained(table.table)
            if not (again := resnapshot_reason(self._state, error, self._rereads_max)):
                log.warning("%s is parked: %s", table.table, error)
            self._state.park(
                table.table, offset=planned, reason=error.message, hint=error.hint, resnapshot=again
            )


def _unexplained(table: TableId) -> TableError:
    return TableError(
        f"Table {table} has other columns at the source than the log says, or its rows were moved while they "
        "were read, and no statement of the log explains that: it may have been altered with "
        "`sql_log_bin = 0`, or by VACUUM FULL without a key.",
        hint="It is read again with the columns that it has now. If it stays parked: "
        f"`penstock resnapshot FILE {argument(table)}`.",
        table=str(table),
        read_again=True,
    )
