"""Starts pending resnapshots. A resnapshot is pending if somebody requested it, or if the log does not say
which rows a table has.

Pending resnapshots are stored in the state (`ResnapshotPending`), so a killed pipeline continues with them.
A table that cannot be read again now does not stop the others. It is retried later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.backoff import Backoff, Schedule
from penstock.cascades.waiting import Nobody, waits_for
from penstock.config import PipelineConfig
from penstock.errors import PenstockError, TransientError
from penstock.model.schema import TableId
from penstock.model.table import (
    DEFINITION_DOES_NOT_FIT,
    Change,
    Dropped,
    ResnapshotPending,
    TableState,
    is_resnapshot_pending,
)
from penstock.planning.discovery import TableGone, Wait, restart_table
from penstock.planning.source_end import SourceEnd
from penstock.relaylog.reader import RelayLog
from penstock.sinks.base import TargetState
from penstock.sources.base import Source
from penstock.state import StateStore

log = logging.getLogger(__name__)

RETRY = Schedule.steady(5.0)
"""Pause after a table could not be restarted, or the source did not answer. Each attempt reads definitions
from the source."""
WAIT_SECONDS = 5.0
"""How long planning waits for the relay log to reach the source's end. A moment before it had reached it, and
all other tables wait meanwhile."""


class Resnapshots:
    """Starts pending resnapshots. The loop that plans epochs calls it between two epochs. `renew` forces a
    transaction end at the source, because rows are placed only after the new start. `open_target`: see
    `Sink.open`."""

    def __init__(
        self,
        state: StateStore,
        relay_log: RelayLog,
        source: Source,
        config: PipelineConfig,
        open_target: Callable[[TableId], TargetState],
        *,
        wait: Wait,
        renew: Callable[[], None],
    ) -> None:
        self._state = state
        self._log = relay_log
        self._source = source
        self._config = config
        self._open_target = open_target
        self._wait = wait
        self._renew = renew
        self._backoff = Backoff(RETRY)
        self._goal: SourceEnd | None = None

    def work(self) -> None:
        """Starts the pending resnapshots whose tables can be read now. Never waits for long, because the
        same loop plans the epochs of other tables."""
        pending = self._state.tables_that(is_resnapshot_pending)
        waiting = waits_for(self._state.tables()) if pending else {}
        tables = [table for table in pending if waiting.get(table.table) == Nobody()]
        if not tables or not self._backoff.ready:
            return
        # If the receiver has a backlog, this is repeated until the relay log reaches the source's end.
        self._log.refresh()
        self._goal = self._goal or SourceEnd(self._source, self._log)
        if not self._log.reached(self._goal.position()):
            return
        self._goal = None
        for table in tables:
            try:
                self._begin(table)
            except TransientError as error:
                log.warning("the resnapshot of %s is delayed: %s", table.table, error)
                self._backoff.failed()
            except PenstockError as error:
                log.warning("the resnapshot of %s is not possible: %s", table.table, error)
                at = self._state.position or table.start
                with self._state.transaction():
                    # The new reason replaces the one for which the table was parked before.
                    self._state.put_table(replace(table, phase=ResnapshotPending(table.resnapshot_pending)))
                    self._state.park(table.table, offset=at, reason=error.message, hint=error.hint)

    def _begin(self, table: TableState) -> None:
        why = table.resnapshot_pending
        if table.parked is not None and why == DEFINITION_DOES_NOT_FIT and not self._explained(table):
            self._state.put_table(replace(table, phase=table.parked))
            return
        try:
            restart_table(
                self._state,
                self._log,
                self._source,
                table.table,
                self._config,
                open_target=self._open_target,
                wait=self.wait_shortly,
                why=why,
            )
            self._renew()
        except TableGone as error:
            at = self._state.position or table.start
            with self._state.transaction():
                self._state.put_table(replace(table, phase=Dropped(at, error.message)))
                self._state.add_change(
                    Change(table.table, table.schema.version, at, "dropped", "target kept")
                )

    def wait_shortly(self, condition: Callable[[], Any], what: str, *, seconds: float = WAIT_SECONDS) -> None:
        """Waits, but at most `WAIT_SECONDS`."""
        self._wait(condition, what, seconds=min(seconds, WAIT_SECONDS))

    def _explained(self, table: TableState) -> bool:
        """Whether reading the table again helps. The definition may have been newer than a log that began
        in the past; then it helps once. After that, it helps only if the catalog has another definition by
        now."""
        if not any(
            one.table == table.table and one.decision == DEFINITION_DOES_NOT_FIT
            for one in self._state.history()
        ):
            return True
        now = self._source.catalog.read_table(table.table)
        return not self._source.catalog.same_definition(now, table.schema)
