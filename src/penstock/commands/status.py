"""`penstock status FILE`: how a pipeline is doing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock import config as configuration
from penstock.commands.run import render
from penstock.config import PipelineConfig
from penstock.errors import ConfigError
from penstock.progress import change_json, collect, read_status
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.status import read_status as read_receiver
from penstock.state import StateStore


def status(file: Path, *, history: bool, as_json: bool) -> None:
    if history:
        _history(configuration.load(file), as_json=as_json)
        return
    document = describe(configuration.load(file))
    if as_json:
        print(json.dumps(document))
        return
    console = Console()
    console.print(render(document))
    console.print(f"running: {'yes' if document['running'] else 'no'}; offset {document['offset']} "
                  f"of {document['log_end']} ({document['source_position']})")  # fmt: skip
    if document.get("receiver"):
        console.print(f"receiver: {document['receiver']}", soft_wrap=True)
    if document.get("rest"):
        console.print(f"signals over HTTP: {document['rest']}")


def describe(config: PipelineConfig) -> dict[str, Any]:
    """The running pipeline's own word if there is one, else what its files say."""
    if not (config.state / "state.sqlite").exists():
        raise ConfigError(
            f"Pipeline {config.name} has not been run yet: {config.state} holds no state.",
            hint="Start it with `penstock run FILE`.",
        )
    running = read_status(config.state)
    if running is not None:
        return running
    state = StateStore(config.state, read_only=True)
    try:
        document = collect(config, state, RelayLog.open(config.relay_log_path))
        return document | {"receiver": describe_receiver(config.relay_log_path)}
    finally:
        state.close()


def _history(config: PipelineConfig, *, as_json: bool) -> None:
    """Every change of a definition, oldest first: what happened, and what was made of it."""
    describe(config)
    state = StateStore(config.state, read_only=True)
    try:
        changes = [change_json(change) for change in state.history()]
    finally:
        state.close()
    if as_json:
        print(json.dumps(changes))
        return
    table = Table()
    for name in ("committed (UTC)", "table", "version", "what", "decision", "statement"):
        table.add_column(name, overflow="fold")
    for change in changes:
        at = (change["committed"] or change["noted"])[:23].replace("T", " ")
        cells = (change["table"], str(change["version"]), change["what"], change["decision"])
        table.add_row(at, *map(Text, (*cells, change["statement"])))
    Console().print(table)


def describe_receiver(folder: Path) -> str:
    """What the receiver of a relay log does, if there is one; else what it ended with."""
    report = read_receiver(folder)
    if not report:
        return ""
    message = f": {report['message']}" if report.get("message") else ""
    if report.get("state") in ("stopped", "failed"):
        return f"{report['state']}{message}"
    alive = Path("/proc", str(report.get("pid"))).exists()
    return f"{report.get('state')} (process {report.get('pid')}){message}" if alive else "killed"
