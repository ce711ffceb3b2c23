"""Answers the signals of `penstock verify`, in the pipeline's loop between two epochs. Without a position:
nothing is planned, while `penstock verify` opens a read view. With one: an epoch ends there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.model.offset import Offset, SourcePosition
from penstock.model.schema import TableId
from penstock.model.signal import Signal
from penstock.model.table import TableState
from penstock.relaylog.reader import RelayLog
from penstock.sinks.base import Readable, Sink
from penstock.state import StateStore
from penstock.state.database import now_us
from penstock.verify.subject import ComparedVersion, Subject, not_compared

HOLD_SECONDS_MAX = 20.0
"""How long a signal keeps the pipeline from planning, unless it is renewed. It ends by itself, so that a
killed `verify` cannot stop the pipeline."""


class Comparisons:
    """Follows the signals that `Signals` has started."""

    def __init__(self, state: StateStore, relay_log: RelayLog, sink: Sink) -> None:
        self._state = state
        self._log = relay_log
        self._sink = sink
        self.held = False
        """Whether nothing may be planned."""

    def work(self) -> list[Offset]:
        """Returns the offsets at which an epoch has to end, and sets `held`."""
        self.held, cuts = False, list[Offset]()
        for signal in self._state.verifying():
            if not signal.answer:
                cuts += self._cut(signal)
            elif abs(now_us() - signal.updated_us) > HOLD_SECONDS_MAX * 1_000_000:
                self._state.set_signal(signal.id, "done", signal.answer)
            else:
                self.held = True
        return cuts

    def _cut(self, signal: Signal) -> list[Offset]:
        """Answers with the versions of the targets, once they have every change up to a place in the
        source's log. With `stay`, nothing is planned from then on, until the signal is ended, or not renewed
        for `HOLD_SECONDS_MAX`."""
        question = signal.data
        self._log.refresh()
        goal = self._log.offset_reaching(SourcePosition.from_json(question["position"]))
        now = self._state.position
        if goal is None or now is None:
            return []
        if now < goal:
            return [goal]
        known = self._state.tables()
        found = [self._subject(known[TableId(*name)], known).to_json() for name in question["tables"]]
        answer: dict[str, Any] = {"offset": now, "tables": found, "epoch": self._state.last_epoch()}
        self._state.set_signal(signal.id, "running" if question["stay"] else "done", answer)
        self.held |= question["stay"]
        return []

    def _subject(self, table: TableState, tables: Mapping[TableId, TableState]) -> Subject:
        return not_compared(table, tables) or ComparedVersion(
            self._sink.hold(table.table) if isinstance(self._sink, Readable) else None,
            table.schema.version,
        )
