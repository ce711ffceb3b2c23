"""What other processes ask a running pipeline for, through its state: `penstock verify`, `resnapshot` and
`unpark`. Answered by the pipeline's loop, between two epochs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

from penstock.errors import PenstockError
from penstock.model.offset import Offset, SourcePosition
from penstock.model.schema import TableId
from penstock.relaylog.reader import RelayLog
from penstock.rereads import Rereads
from penstock.state import StateStore
from penstock.unpark import unpark

log = logging.getLogger(__name__)

HOLD_SECONDS_MAX = 20.0
"""Longest time that `penstock verify` keeps the pipeline from planning while it opens a read view."""


class Requests:
    """`needs`: says to retention what tables still have to read; to be called when that has grown."""

    def __init__(
        self, state: StateStore, relay_log: RelayLog, sink: Any, rereads: Rereads, needs: Callable[[], None]
    ) -> None:
        self._state = state
        self._log = relay_log
        self._sink = sink
        self._rereads = rereads
        self._needs = needs
        self.held_until = 0.0
        """On the monotonic clock: nothing is to be planned before."""

    def work(self) -> Iterator[Offset]:
        """Does what is asked; yields offsets at which an epoch has to end."""
        for request, kind, argument in self._state.open_requests():
            if kind == "hold":
                self.held_until = time.monotonic() + HOLD_SECONDS_MAX
                self._state.answer(request, {"held": True})
            elif kind == "cut":
                self.held_until = 0.0
                yield from self._cut(request, argument)
            elif kind in ("resnapshot", "unpark"):
                self._bring_back(request, kind, TableId.parse(argument))

    def _cut(self, request: int, argument: str) -> Iterator[Offset]:
        """Answers with the target's version once every change up to a place of the source's log is in it."""
        name, file, position = argument.rsplit("|", 2)
        self._log.refresh()
        goal = self._log.offset_reaching(SourcePosition(file, int(position)))
        now = self._state.position
        found = self._state.table(TableId.parse(name))
        if goal is None or now is None or (found is not None and found.catching_up):
            return
        if now >= goal:
            self._state.answer(request, {"offset": now, "version": self._sink.version(TableId.parse(name))})
        else:
            yield goal

    def _bring_back(self, request: int, kind: str, table: TableId) -> None:
        try:
            answer: dict[str, Any] = {"ok": True}
            if kind == "unpark":
                answer = unpark(self._state, self._log, self._sink, table)
                self._needs()  # what it still has to read stays
            else:
                self._rereads.restart(table)
            self._state.answer(request, answer)
        except PenstockError as error:
            log.warning("%s: %s is not done: %s", table, kind, error)  # who asked may be gone
            self._state.answer(request, error.to_json())
