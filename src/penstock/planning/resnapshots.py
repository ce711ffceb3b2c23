"""Begins the resnapshots that are pending: somebody asked for them, or the log cannot tell what the rows of a
table are. That they are pending is stored (`ResnapshotPending`), so a killed pipeline continues here.

A table that cannot be read again now does not hinder the others. It is tried again later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.backoff import Backoff, Schedule
from penstock.cascades.keys import waits
from penstock.config import PipelineConfig
from penstock.errors import PenstockError, TransientError
from penstock.model.offset import SourcePosition
from penstock.model.table import (
    UNFIT,
    Change,
    Dropped,
    ResnapshotPending,
    TableState,
    is_resnapshot_pending,
)
from penstock.planning.discovery import TableGone, Wait, restart_table
from penstock.relaylog.reader import RelayLog
from penstock.sinks.base import Sink
from penstock.sources.base import Source
from penstock.state import StateStore

log = logging.getLogger(__name__)

RETRY = Schedule.steady(5.0)
"""When a table could not begin again, or the source did not answer."""
WAIT_SECONDS = 5.0
"""Longest time that planning waits for the relay log to reach the source's end, which it had reached."""


class Resnapshots:
    """Called between two epochs, by the loop that plans them. `renew` forces a transaction end at the source,
    because rows are placed only after the new start."""

    def __init__(
        self,
        state: StateStore,
        relay_log: RelayLog,
        source: Source,
        config: PipelineConfig,
        sink: Sink,
        *,
        wait: Wait,
        renew: Callable[[], None],
    ) -> None:
        self._state = state
        self._log = relay_log
        self._source = source
        self._config = config
        self._sink = sink
        self._wait = wait
        self._renew = renew
        self._backoff = Backoff(RETRY)
        self._goal: SourcePosition | None = None

    def work(self) -> None:
        """Begins the resnapshots that are pending, as far as tables can be read now. Never waits for long:
        epochs of the other tables are planned by the same loop."""
        pending = self._state.tables_that(is_resnapshot_pending)
        known = self._state.tables() if pending else {}
        tables = [table for table in pending if not waits(table, known)]
        if not tables or not self._backoff.ready:
            return
        # A backlog that is still to be received is waited for here, one look at a time.
        self._goal = self._goal or self._source.end_position()
        self._log.refresh()
        if not self._log.reached(self._goal):
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
                    # What it was parked for before is not what keeps it from being read.
                    self._state.put_table(replace(table, phase=ResnapshotPending(table.resnapshot_pending)))
                    self._state.park(table.table, offset=at, reason=error.message, hint=error.hint)

    def _begin(self, table: TableState) -> None:
        why = table.resnapshot_pending
        if table.parked is not None and why == UNFIT and not self._explained(table):
            self._state.put_table(replace(table, phase=table.parked))
            return
        try:
            restart_table(
                self._state,
                self._log,
                self._source,
                table.table,
                self._config,
                sink=self._sink,
                wait=self.wait_shortly,
                why=why,
            )
            self._renew()
        except TableGone as error:
            at = self._state.position or table.start
            self._state.put_table(replace(table, phase=Dropped(at, error.message)))
            self._state.note(Change(table.table, table.schema.version, at, "dropped", "target kept"))

    def wait_shortly(self, condition: Callable[[], Any], what: str, *, seconds: float = WAIT_SECONDS) -> None:
        self._wait(condition, what, seconds=min(seconds, WAIT_SECONDS))

    def _explained(self, table: TableState) -> bool:
        """Whether reading it again helps. The definition may have been newer than the log, which began in the
        past: then it helps once. After that only if the catalog says something else by now."""
        if not any(one.table == table.table and one.decision == UNFIT for one in self._state.history()):
            return True
        now = self._source.catalog.read_table(table.table)
        return not self._source.catalog.same_definition(now, table.schema)
