"""Answers the requests of `penstock verify` to a running pipeline. They come through its state, and the
pipeline's loop answers them between two epochs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping

from penstock.model.offset import Offset, SourcePosition
from penstock.model.schema import TableId
from penstock.model.table import TableState
from penstock.relaylog.reader import RelayLog
from penstock.sinks.base import Readable, Sink
from penstock.state import StateStore
from penstock.verify.subject import ComparedVersion, Subject, not_compared

HOLD_SECONDS_MAX = 20.0
"""How long a request keeps the pipeline from planning, while `penstock verify` opens a read view. It ends
by itself, so that a killed `verify` cannot stop the pipeline."""


class Requests:
    """Answers the requests."""

    def __init__(self, state: StateStore, relay_log: RelayLog, sink: Sink) -> None:
        self._state = state
        self._log = relay_log
        self._sink = sink
        self.no_plan_before = 0.0
        """Time on the monotonic clock before which nothing may be planned."""

    def work(self) -> Iterator[Offset]:
        """Answers open requests. Yields offsets at which an epoch has to end."""
        for request, kind, argument in self._state.open_requests():
            if kind == "hold":
                self._hold()
                self._state.answer(request, {"held": True})
            elif kind == "release":
                self.no_plan_before = 0.0
                self._state.answer(request, {"held": False})
            elif kind == "cut":
                self.no_plan_before = 0.0
                yield from self._cut(request, argument)

    def _hold(self) -> None:
        self.no_plan_before = time.monotonic() + HOLD_SECONDS_MAX

    def _cut(self, request: int, argument: str) -> Iterator[Offset]:
        """Answers with the versions of the targets, once they have every change up to a place in the
        source's log. With `stay`, nothing is planned from then on until `release`, or until no `hold`
        came for `HOLD_SECONDS_MAX`."""
        question = json.loads(argument)
        if not isinstance(question["position"], dict):
            self._state.answer(request, {"given_up": True})  # asked by an earlier version, which has ended
            return
        self._log.refresh()
        goal = self._log.offset_reaching(SourcePosition.from_json(question["position"]))
        now = self._state.position
        if goal is None or now is None:
            return
        if now < goal:
            yield goal
            return
        known = self._state.tables()
        found = [self._subject(known[TableId(*name)], known).to_json() for name in question["tables"]]
        if question.get("stay"):
            self._hold()
        self._state.answer(request, {"offset": now, "tables": found, "epoch": self._state.last_epoch()})

    def _subject(self, table: TableState, tables: Mapping[TableId, TableState]) -> Subject:
        return not_compared(table, tables) or ComparedVersion(
            self._sink.hold(table.table) if isinstance(self._sink, Readable) else None,
            table.schema.version,
        )
