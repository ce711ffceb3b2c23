"""`penstock resnapshot FILE TABLE…` and `penstock unpark FILE TABLE…`: each sends one signal per table and
prints the pipeline's answer."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection
from contextlib import closing
from pathlib import Path
from typing import Any

from penstock import config as configuration
from penstock.commands.signal import START_SECONDS_MAX, sent
from penstock.commands.table_arguments import table_named
from penstock.commands.terminal import say, say_json
from penstock.commands.working import Working
from penstock.disk.directory import is_held
from penstock.errors import ConfigError, TransientError
from penstock.model.pattern import exactly
from penstock.model.schema import TableId
from penstock.model.signal import ENDED, Signal
from penstock.model.table import Parked
from penstock.runtime.describe import ensure_run
from penstock.signals.acceptance import accept
from penstock.state import StateStore
from penstock.steps import step

PENDING: dict[str, Any] = {"ok": True, "pending": True}


def resnapshot(file: Path, tables: list[str], *, recreate: bool, as_json: bool) -> None:
    """Starts a new snapshot of each table. If the pipeline runs, returns once it has started to read.
    `recreate`: the target is dropped and created again first."""
    into: dict[str, Any] = {"target": "recreate"} if recreate else {}
    where = " into a new target" if recreate else ""
    _send_and_report(
        file,
        "execute-snapshot",
        {str(table): {"data-collections": [exactly(table)]} | into for table in map(table_named, tables)},
        as_json=as_json,
        later=f"will be read again{where} when the pipeline runs",
        done=lambda answer: f"is being read again{where}",
    )


def unpark(file: Path, tables: list[str], *, as_json: bool) -> None:
    """Brings parked tables back, and prints how each table continues."""

    def done(answer: dict[str, Any]) -> str:
        if answer["action"] == "continue":
            return f"continues from offset {answer['offset']}, where it was parked"
        if answer["action"] == "resnapshot":
            return f"is being read again: {answer['reason']}"
        return "is not parked"

    signals = {str(table): {"tables": [exactly(table)]} for table in map(table_named, tables)}
    _send_and_report(
        file,
        "unpark",
        signals,
        as_json=as_json,
        done=done,
        later="will be unparked when the pipeline runs, if it is parked",
    )


def _send_and_report(
    file: Path,
    kind: str,
    signals: dict[str, dict[str, Any]],
    *,
    as_json: bool,
    later: str,
    done: Callable[[dict[str, Any]], str],
) -> None:
    """Sends the signals, waits for the answers and prints them. `later` is printed if the pipeline does not
    run and will take the signal at its next start. Raises `ConfigError` for a table that the pipeline
    refuses."""
    config = configuration.load(file)
    ensure_run(config)
    with closing(StateStore(config.state)) as state, Working("waiting for the pipeline's answer"):
        state.limit_signals(config.signals)
        ids = {table: str(uuid.uuid4()) for table in signals}
        if not is_held(config.state):
            _refuse_unknown(state, signals)
        for table, data in signals.items():  # all signals are durable before the first wait
            accept(state, ids[table], kind, data, "command")
        answers = {
            table: _answer(
                sent(state, kind, data, config.state, signal_id=ids[table], until=_is_answered),
                table,
                config.state,
            )
            for table, data in signals.items()
        }
        for table, answer in answers.items():
            if answer.get("action") == "resnapshot":
                answers[table] = _once_reading(state, TableId.parse(table), answer, config.state)
    if as_json:
        say_json(answers)
    for table, answer in answers.items():
        if not answer["ok"]:
            raise ConfigError(f"{table}: {answer['message']}", hint=answer.get("hint", ""))
        if not as_json:
            say(f"{table} {later if answer == PENDING else done(answer)}.")


def _refuse_unknown(state: StateStore, tables: Collection[str]) -> None:
    """Raises `ConfigError` for a table that a pipeline which does not run would refuse at its next start."""
    known = {str(table).casefold() for table in state.tables()}
    for table in tables:
        if table.casefold() not in known:
            raise ConfigError(
                f"The pipeline does not capture {table}.", hint="`penstock status FILE` lists its tables."
            )


def _is_answered(signal: Signal) -> bool:
    tables = signal.answer.get("tables", {}).values()
    return signal.status in ENDED or (
        signal.status == "running" and not any(_is_waiting(one) for one in tables)
    )


def _is_waiting(item: dict[str, Any]) -> bool:
    return item.get("status") == "waiting"


def _answer(signal: Signal, table: str, folder: Path) -> dict[str, Any]:
    if signal.status == "refused":
        return {"ok": False} | signal.answer
    item: dict[str, Any] = signal.answer.get("tables", {}).get(table, {})
    if item.get("status") == "stopped":
        return {"ok": False, "message": item.get("reason", ""), "hint": item.get("hint", "")}
    if signal.status == "accepted" or _is_waiting(item):
        if is_held(folder):
            raise TransientError(
                f"The pipeline has not answered for {START_SECONDS_MAX} s.",
                hint=f"Check that it is running. Signal {signal.id} stays queued until it does.",
            )
        return PENDING
    return {"ok": True} | ({} if "reads" in item else item)


def _once_reading(state: StateStore, table: TableId, answer: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Waits until the table is being read again, and returns `answer`. If the table was parked again instead,
    returns a failure with the reason. Gives up, and returns `answer`, if the pipeline ends or after
    `START_SECONDS_MAX`."""
    step("waiting until %s is being read", table)
    deadline = time.monotonic() + START_SECONDS_MAX
    while (now := state.table(table)) is not None:
        if isinstance(now.phase, Parked):
            reason, hint = now.phase.reason, now.phase.hint
            return {"ok": False, "message": f"The table was parked again: {reason}", "hint": hint}
        if not now.resnapshot_pending or not is_held(folder) or time.monotonic() > deadline:
            break
        time.sleep(0.1)  # polls, with a limit
    return answer
