"""`penstock resnapshot FILE TABLE…` and `penstock unpark FILE TABLE…`: signals of their own, one a table, and
what the pipeline says to them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock import config as configuration
from penstock.commands.signal import BEGIN_SECONDS_MAX, sent
from penstock.commands.status import ensure_run
from penstock.commands.table_arguments import table_named
from penstock.commands.terminal import say, say_json
from penstock.disk.directory import is_held
from penstock.errors import ConfigError, TransientError
from penstock.model.pattern import exactly
from penstock.model.schema import TableId
from penstock.model.signal import ENDED, Signal
from penstock.signals.channels import accept
from penstock.state import StateStore

WAITS: dict[str, Any] = {"ok": True, "waits": True}


def resnapshot(file: Path, tables: list[str], *, fresh: bool, as_json: bool) -> None:
    """Has tables read again; returns when the pipeline has begun to, if it runs."""
    into: dict[str, Any] = {"target": "fresh"} if fresh else {}
    where = ", into a fresh target," if fresh else ""
    _ask(
        file,
        "execute-snapshot",
        {str(table): {"data-collections": [exactly(table)]} | into for table in map(table_named, tables)},
        as_json=as_json,
        later=f"will be read again from its beginning{where} when the pipeline runs",
        done=lambda answer: f"is read again from its beginning{where.rstrip(',')}",
    )


def unpark(file: Path, tables: list[str], *, as_json: bool) -> None:
    """Brings parked tables back."""

    def done(answer: dict[str, Any]) -> str:
        if answer["action"] == "goes on":
            return f"goes on from offset {answer['offset']}, where it stopped"
        if answer["action"] == "read again":
            return f"is read again from its beginning: {answer['why']}"
        return "is not parked: there is nothing to do"

    signals = {str(table): {"tables": [exactly(table)]} for table in map(table_named, tables)}
    _ask(file, "unpark", signals, as_json=as_json, later="is unparked when the pipeline runs", done=done)


def _ask(
    file: Path,
    kind: str,
    signals: dict[str, dict[str, Any]],
    *,
    as_json: bool,
    later: str,
    done: Callable[[dict[str, Any]], str],
) -> None:
    """A pipeline that does not run finds them when it does (`later`). Raises what keeps a table as it is."""
    config = configuration.load(file)
    ensure_run(config)
    state = StateStore(config.state)
    state.limit_signals(config.signals)
    try:
        ids = {table: str(uuid.uuid4()) for table in signals}
        for table, data in signals.items():  # all of them are durable before one is waited for
            accept(state, ids[table], kind, data, "command")
        answers = {
            table: _answer(
                sent(state, kind, data, config.state, signal_id=ids[table], until=_is_told),
                table,
                config.state,
            )
            for table, data in signals.items()
        }
        for table, answer in answers.items():
            if answer.get("action") == "read again":
                answers[table] = _begun(state, TableId.parse(table), answer, config.state)
    finally:
        state.close()
    if as_json:
        say_json(answers)
    for table, answer in answers.items():
        if not answer["ok"]:
            raise ConfigError(f"{table}: {answer['message']}", hint=answer.get("hint", ""))
        if not as_json:
            say(f"{table} {later if answer == WAITS else done(answer)}.")


def _is_told(signal: Signal) -> bool:
    tables = signal.answer.get("tables", {}).values()
    return signal.status in ENDED or (signal.status == "running" and not any(_waits(one) for one in tables))


def _waits(item: dict[str, Any]) -> bool:
    return item.get("status") == "waits"


def _answer(signal: Signal, table: str, folder: Path) -> dict[str, Any]:
    if signal.status == "refused":
        return {"ok": False} | signal.answer
    item: dict[str, Any] = signal.answer.get("tables", {}).get(table, {})
    if item.get("status") == "stopped":
        return {"ok": False, "message": item.get("reason", ""), "hint": item.get("hint", "")}
    if signal.status == "accepted" or _waits(item):
        if is_held(folder):
            raise TransientError(
                f"The pipeline has not answered for {BEGIN_SECONDS_MAX} s.",
                hint=f"Is it running? The signal {signal.id} is kept and done when it runs again.",
            )
        return WAITS
    return {"ok": True} | ({} if "reads" in item else item)


def _begun(state: StateStore, table: TableId, answer: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The answer, once the table is being read again; or what parked it again instead."""
    deadline = time.monotonic() + BEGIN_SECONDS_MAX
    while (now := state.table(table)) is not None:
        if not now.due and now.status == "parked":
            return {"ok": False, "message": f"It is parked again: {now.reason}", "hint": now.hint}
        if not now.due or not is_held(folder) or time.monotonic() > deadline:
            break
        time.sleep(0.1)  # polls, with a limit
    return answer
