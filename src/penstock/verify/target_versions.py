"""Brings targets to one place of the source's log, for `penstock verify`.

A running pipeline gets two signals. After the first one it plans no epoch, so it cannot pass the watermark
that is about to be taken. The second one has the watermark's position: the pipeline ends an epoch there, and
answers with the versions of the targets. For a stopped pipeline the targets are used as they are, if they
lack nothing of the source's log up to the watermark. The lock on its state shows whether a pipeline runs."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping
from typing import Any, Literal

from penstock.config import PipelineConfig
from penstock.disk import directory
from penstock.errors import CLASSES, ConfigError, InternalError, TransientError, rebuilt
from penstock.model.offset import LogRange, Offset, SourcePosition
from penstock.model.schema import TableId, TableSchema
from penstock.model.signal import VERIFY
from penstock.relaylog import lease
from penstock.relaylog.reader import RelayLog
from penstock.state import StateStore
from penstock.verify.subject import ComparedVersion, NotCompared, Subject, Why, not_compared

RECEIVE_SECONDS_MAX = 60
"""How long a receiver that runs without a pipeline may take to reach the watermark. A receiver that follows
the source has it within a second, and a receiver with a backlog should not keep the command waiting."""
RUN_FIRST = "Start it (`penstock run FILE`, or with --once to catch up), then verify."


class PipelineVersions:
    """`verify.check.VersionsAt` for a pipeline, running or not."""

    def __init__(self, config: PipelineConfig, state: StateStore, relay_log: RelayLog) -> None:
        self._config = config
        self._state = state
        self._log = relay_log
        self._asked = ""
        """The id of the newest signal. The pipeline may be waiting because of it."""
        state.limit_signals(config.signals)

    def hold(self, tables: Collection[TableId]) -> Mapping[TableId, TableSchema | NotCompared]:
        """See `VersionsAt.hold`."""
        self._ask({}, timeout="hold_timeout")
        known = self._state.tables()
        return {name: not_compared(known[name], known) or known[name].schema for name in tables}

    def versions_at(
        self, tables: Collection[TableId], position: SourcePosition
    ) -> tuple[Offset, Mapping[TableId, Subject]]:
        offset, found, _ = self.cut(tables, position, stay=False)
        return offset, found

    def cut(
        self, tables: Collection[TableId], position: SourcePosition, *, stay: bool
    ) -> tuple[Offset, Mapping[TableId, Subject], int]:
        """`versions_at`, and the pipeline's newest epoch at this moment. `stay`: from then on the pipeline
        plans nothing until `release`, if it is told to `stay` every few seconds."""
        names = [(table.database, table.table) for table in tables]
        question = {"tables": names, "position": position.to_json(), "stay": stay}
        answer = self._ask(question, timeout="apply_timeout")
        if answer is None:
            epoch = self._state.last_epoch()
            if stay and self._state.has_pending():
                raise ConfigError(
                    f"The pipeline {self._config.name} is not running and has not ended its last epoch.",
                    hint=RUN_FIRST,
                )
            return *self._stopped(tables, position), epoch
        found = map(_subject, answer["tables"])
        return Offset(answer["offset"]), dict(zip(tables, found, strict=True)), int(answer["epoch"])

    def stay(self) -> None:
        """Tells the pipeline that it must wait longer."""
        self._state.renew_signal(self._asked)

    def release(self) -> None:
        """Tells the pipeline that it can continue."""
        self._state.set_signal(self._asked, "done", {})
        self._asked = ""

    def is_unchanged(self, epoch: int) -> bool:
        """Whether no epoch after this one was planned, so that nothing was written to a target."""
        return self._state.last_epoch() == epoch and not self._state.has_pending()

    def _stopped(
        self, tables: Collection[TableId], position: SourcePosition
    ) -> tuple[Offset, Mapping[TableId, Subject]]:
        goal = self._reached(position)
        applied = self._state.applied_offset()
        if goal is None or applied is None:
            raise ConfigError(
                f"The pipeline {self._config.name} is not running, and its relay log ends before "
                f"{position}, the source's current position.",
                hint=f"{RUN_FIRST} Where verify writes a watermark into the source's log, keep the pipeline "
                "or `penstock receive FILE` running.",
            )
        missing = LogRange(min(applied, goal), goal)
        touched = self._log.tables(missing).keys() if missing else set()
        if missing and (touched & set(tables) or any(self._log.statements(missing))):
            raise ConfigError(
                f"The pipeline {self._config.name} is not running and has not applied {missing.bytes} bytes "
                "of log.",
                hint=RUN_FIRST,
            )
        known = self._state.tables()
        found: dict[TableId, Subject] = {
            name: not_compared(known[name], known) or ComparedVersion(None, known[name].schema.version)
            for name in tables
        }
        return applied, found

    def _reached(self, position: SourcePosition) -> Offset | None:
        """The offset of this position, once the relay log has it. None: no receiver is running, or time is
        up."""
        deadline = time.monotonic() + RECEIVE_SECONDS_MAX
        while True:
            receives = lease.is_held(self._log.path)
            self._log.refresh()
            goal = self._log.offset_reaching(position)
            if goal is not None or not receives or time.monotonic() > deadline:
                return goal
            time.sleep(0.05)  # polls the log, with a limit

    def _ask(
        self, question: dict[str, Any], *, timeout: Literal["hold_timeout", "apply_timeout"]
    ) -> dict[str, Any] | None:
        """The pipeline's answer; None: it is not running, or has ended. `timeout`: the option of the section
        `verify` that limits the wait."""
        seconds = getattr(self._config.verify, timeout) / 1000
        deadline = time.monotonic() + seconds
        before, self._asked = self._asked, ""
        while directory.is_held(self._config.state):
            if not self._asked:
                self._asked = str(uuid.uuid4())
                self._state.send(self._asked, VERIFY, question, VERIFY)
                self._state.set_signal(before, "done", {})
            if answer := self._answer():
                return answer
            if time.monotonic() > deadline:
                self.release()
                raise TransientError(
                    f"The pipeline {self._config.name} runs, but did not answer within {seconds:g} s.",
                    hint="Check with `penstock status FILE` whether it is still starting, its process is "
                    f"suspended, or its lag is large. To wait longer, raise `verify.{timeout}`.",
                )
            time.sleep(0.01)  # polls for the answer, with a limit
        answer = self._answer()  # it may have answered before it ended
        self.release()
        return answer

    def _answer(self) -> dict[str, Any] | None:
        signal = self._state.signal(self._asked)
        if signal is not None and signal.status == "refused":
            raise rebuilt(signal.answer, CLASSES, unknown=InternalError)
        return signal.answer or None if signal is not None else None


def _subject(answer: dict[str, Any]) -> Subject:
    if "why" in answer:
        return NotCompared(Why(answer["why"]), answer["reason"])
    return ComparedVersion(answer["version"], answer["schema"])
