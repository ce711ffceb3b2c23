"""`penstock signal FILE TYPE …` sends a command to a pipeline; `penstock signals FILE` lists what was sent
and the answers."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.table import Table

from penstock import config as configuration
from penstock.commands.terminal import cell, console, say, say_json
from penstock.disk import directory
from penstock.errors import ConfigError
from penstock.model.signal import ENDED, Signal
from penstock.runtime.describe import ensure_run
from penstock.signals import commands
from penstock.signals.acceptance import accept
from penstock.state import StateStore

ID_WIDTH = 36
"""Characters of a generated id. The list shows it whole, because `penstock signals FILE ID` asks for it."""
START_SECONDS_MAX = 600
"""Seconds that the command waits until a running pipeline has started the signal. It starts signals between
two epochs, and a large epoch takes minutes."""


def signal(
    file: Path,
    kind: str,
    tables: list[str],
    *,
    where: str | None,
    keys: list[str],
    data: str | None,
    signal_id: str | None,
    wait: bool,
    as_json: bool,
) -> int:
    """Sends a signal and waits for the pipeline. Returns the exit code: 1 if the signal was refused, or
    failed for some of its tables."""
    config = configuration.load(file)
    fields = commands.parse_data(data) if data is not None else _data(kind, tables, where, keys)
    if data is not None and (tables or where or keys):
        raise ConfigError("Give either --data, or tables and options, not both.")
    commands.parse(kind, fields)  # invalid data is refused before anything is sent
    ensure_run(config)
    state = StateStore(config.state)
    state.limit_signals(config.signals)
    try:
        until = has_ended if wait else is_started
        found = sent(state, kind, fields, config.state, signal_id=signal_id, until=until)
    finally:
        state.close()
    if as_json:
        say_json(found.to_json())
    else:
        _print(found)
    return 1 if found.status in ("refused", "failed") else 0


def _data(kind: str, tables: list[str], where: str | None, keys: list[str]) -> dict[str, Any]:
    """Returns the signal's data in Debezium's layout, from the command line's options."""
    if kind in ("add-table", "remove-table", "park", "unpark"):
        return {"tables": tables}
    fields: dict[str, Any] = {"data-collections": tables} if tables else {}
    if where is not None:
        fields["additional-conditions"] = [{"data-collection": table, "filter": where} for table in tables]
    if keys:
        try:
            values = [json.loads(key) for key in keys]
        except ValueError:
            raise ConfigError(
                f"--key {' --key '.join(keys)} is not JSON.",
                hint="""Write keys as JSON, in single quotes for the shell: '5', '"x"', '[5, "x"]'.""",
            ) from None
        fields["keys"] = [value if isinstance(value, list) else [value] for value in values]
    return fields


def sent(
    state: StateStore,
    kind: str,
    data: dict[str, Any],
    folder: Path,
    *,
    signal_id: str | None = None,
    until: Callable[[Signal], bool],
) -> Signal:
    """Sends the signal, waits until `until` returns True for it, and returns it. Does not wait if the
    pipeline is not running. Gives up after `START_SECONDS_MAX` if the pipeline has not started to process the
    signal."""
    signal_id = signal_id or str(uuid.uuid4())
    accept(state, signal_id, kind, data, "command")
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        found = state.signal(signal_id)
        assert found is not None
        if until(found) or not directory.is_held(folder):
            return found
        waits = any(one.get("status") == "waiting" for one in found.answer.get("tables", {}).values())
        if (waits or not is_started(found)) and time.monotonic() > deadline:
            return found
        time.sleep(0.1)  # polls for the answer, with a limit


def is_started(signal: Signal) -> bool:
    return signal.status != "accepted"


def has_ended(signal: Signal) -> bool:
    return signal.status in ENDED


def _print(found: Signal) -> None:
    say(f"signal {found.id}: {_summary(found)}")
    for name, item in found.answer.get("tables", {}).items():
        say(f"  {name}: {', '.join(f'{key} {value}' for key, value in item.items())}")


def _summary(found: Signal) -> str:
    if found.status == "accepted":
        return "accepted; the pipeline processes it when it runs"
    if found.status == "refused":
        return f"refused: {found.answer.get('message', '')} {found.answer.get('hint', '')}".rstrip()
    plain = {name: value for name, value in found.answer.items() if name not in ("tables", "offset", "found")}
    return found.status + (f" {json.dumps(plain)}" if plain else "")


def signals(file: Path, signal_id: str | None, *, types: bool, as_json: bool) -> None:
    if types:
        _types()
        return
    config = configuration.load(file)
    state = StateStore(config.state, read_only=True)
    try:
        found = state.signals() if signal_id is None else [state.signal(signal_id)]
    finally:
        state.close()
    known = [one for one in found if one is not None]
    if signal_id is not None and not known:
        raise ConfigError(
            f"There is no signal with the id {signal_id!r}.", hint="`penstock signals FILE` lists all."
        )
    if as_json:
        say_json([one.to_json() for one in known])
        return
    if signal_id is not None:
        say(f"{known[0].type} (channel: {known[0].channel})")
        _print(known[0])
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("id", no_wrap=True, min_width=ID_WIDTH)
    for name in ("type", "status", "received (UTC)"):
        table.add_column(name, no_wrap=True)
    for one in known:
        received = one.to_json()["received"][5:19].replace("T", " ")  # they are kept for less than a year
        table.add_row(*map(cell, (one.id, one.type, one.status, received)))
    console().print(table)


def _types() -> None:
    table = Table("type", "data")
    for name, model in commands.TYPES.items():
        table.add_row(name, ", ".join(field.alias or key for key, field in model.model_fields.items()))
    console().print(table)
