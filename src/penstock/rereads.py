"""Tables that are read again from their beginning: because somebody asked, or because a change at the source
left no other way (`TableState.due`, which is durable; so a pipeline killed here goes on here).

One table's trouble is its own: what keeps it from being read again now is tried again later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.config import PipelineConfig
from penstock.discovery import TableGone, Wait, restart_table
from penstock.errors import PenstockError, TransientError
from penstock.model.schema import TableId
from penstock.model.table import UNFIT, Change, TableState
from penstock.relaylog.reader import RelayLog
from penstock.sources.mysql.session import SourceSession
from penstock.state import StateStore

log = logging.getLogger(__name__)

AGAIN_SECONDS = 5.0


class Rereads:
    """Called between two epochs, by the loop that plans them. `renew`: makes the source say something, since
    rows are placed only beyond the new start."""

    def __init__(
        self,
        state: StateStore,
        relay_log: RelayLog,
        source: SourceSession,
        config: PipelineConfig,
        sink: Any,
        *,
        cascading: Callable[[], set[TableId]],
        wait: Wait,
        renew: Callable[[], None],
    ) -> None:
        self._state = state
        self._log = relay_log
        self._source = source
        self._config = config
        self._sink = sink
        self._cascading = cascading
        self._wait = wait
        self._renew = renew
        self._not_before: dict[TableId, float] = {}

    def work(self) -> None:
        """Begins the tables that are due, as far as they can be read now."""
        now = time.monotonic()
        for table in self._state.tables().values():
            if table.due and table.status != "dropped" and self._not_before.get(table.table, 0.0) <= now:
                try:
                    self._begin(table)
                except TransientError as error:
                    log.warning("%s is not read again yet: %s", table.table, error)
                    self._not_before[table.table] = time.monotonic() + AGAIN_SECONDS
                except PenstockError as error:
                    log.warning("%s cannot be read again: %s", table.table, error)
                    self._state.put_table(replace(table, due="", status="live"))
                    at = self._state.position or table.start
                    self._state.park(table.table, offset=at, reason=error.message, hint=error.hint)

    def restart(self, table: TableId, why: str = "asked for") -> None:
        """Raises what keeps it from being read."""
        restart_table(
            self._state,
            self._log,
            self._source,
            table,
            self._config,
            sink=self._sink,
            cascading=self._cascading(),
            wait=self._wait,
            why=why,
        )
        self._renew()

    def _begin(self, table: TableState) -> None:
        if table.status == "parked" and table.due == UNFIT and not self._explained(table):
            self._state.put_table(replace(table, due=""))
            return
        try:
            self.restart(table.table, table.due)
        except TableGone as error:
            at = self._state.position or table.start
            self._state.put_table(
                replace(table, due="", status="dropped", parked_at=at, reason=error.message)
            )
            self._state.note(Change(table.table, table.schema.version, at, "dropped", "target kept"))

    def _explained(self, table: TableState) -> bool:
        """Whether the catalog tells why the log did not fit: then the table is to be read again, else that
        would not help."""
        now = self._source.read_table(table.table)
        return now is None or (now.columns, now.key) != (table.schema.columns, table.schema.key)
