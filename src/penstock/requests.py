"""What `penstock verify` asks a running pipeline for, through its state. Answered by the pipeline's loop,
between two epochs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from penstock.model.offset import Offset, SourcePosition
from penstock.model.schema import TableId
from penstock.relaylog.reader import RelayLog
from penstock.state import StateStore

HOLD_SECONDS_MAX = 20.0
"""Longest time that `penstock verify` keeps the pipeline from planning while it opens a read view."""


class Requests:
    def __init__(self, state: StateStore, relay_log: RelayLog, sink: Any) -> None:
        self._state = state
        self._log = relay_log
        self._sink = sink
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
            self._state.answer(request, {"offset": now, "version": self._sink.hold(TableId.parse(name))})
        else:
            yield goal
