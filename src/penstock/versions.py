"""Brings a target to one place of the source's log, for `penstock verify`.

A running pipeline is asked: first to `hold` (it plans no epoch, so it cannot run past a mark that is about
to be taken), then to end an epoch at the mark and tell the target's version. Of a pipeline that does not
run, the target is as its state says, and will do if nothing of the source's log up to the mark is missing.
"""

from __future__ import annotations

import time
from typing import Any

from penstock.config import PipelineConfig
from penstock.errors import ConfigError, TransientError
from penstock.model.offset import LogRange, Offset, SourcePosition
from penstock.model.schema import TableId
from penstock.progress import read_status
from penstock.relaylog.reader import RelayLog
from penstock.state import StateStore

HOLD_SECONDS_MAX = 60
CUT_SECONDS_MAX = 900


class PipelineVersions:
    """`verify.check.VersionAt` for a pipeline, running or not."""

    def __init__(self, config: PipelineConfig, state: StateStore, relay_log: RelayLog) -> None:
        self._config = config
        self._state = state
        self._log = relay_log

    def hold(self) -> None:
        """To be called before a read view is opened: nothing beyond it is applied until its mark is asked
        for."""
        if self._running():
            self._ask("hold", "", HOLD_SECONDS_MAX)

    def version_at(self, table: TableId, position: SourcePosition) -> tuple[Offset, str | None]:
        if self._running():
            answer = self._ask("cut", f"{table}|{position.file}|{position.position}", CUT_SECONDS_MAX)
            return Offset(answer["offset"]), answer["version"]
        return self._stopped(table, position), None

    def _stopped(self, table: TableId, position: SourcePosition) -> Offset:
        self._log.refresh()
        goal = self._log.offset_reaching(position)
        applied = self._state.applied_offset()
        if goal is None or applied is None:
            raise ConfigError(
                f"The pipeline {self._config.name} is not running, and its relay log ends before "
                f"{position}, where the source is now.",
                hint="Run it (`penstock run FILE`, or with --once to catch up), then verify.",
            )
        if applied < goal and table in self._log.tables(LogRange(applied, goal)):
            raise ConfigError(
                f"The pipeline {self._config.name} is not running and has {goal - applied} bytes of log to "
                f"apply.",
                hint="Run it (`penstock run FILE`, or with --once to catch up), then verify.",
            )
        return applied

    def _running(self) -> bool:
        return read_status(self._config.state) is not None

    def _ask(self, kind: str, argument: str, seconds: float) -> dict[str, Any]:
        request = self._state.request(kind, argument)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            answer = self._state.answer_to(request)
            if answer is not None:
                return answer
            if not self._running():
                break
            time.sleep(0.01)  # polls for the answer, with a limit
        self._state.answer(request, {"given_up": True})
        raise TransientError(
            f"The pipeline {self._config.name} did not answer within {seconds:.0f} s.",
            hint="Is it running, and does its lag go down? See `penstock status FILE`.",
        )
