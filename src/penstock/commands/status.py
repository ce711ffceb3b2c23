"""`penstock status FILE`: how a pipeline is doing."""

from __future__ import annotations

import math
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.table import Table

from penstock import config as configuration
from penstock.commands.consumers import age_text
from penstock.commands.run import render, size_text
from penstock.commands.terminal import cell, console, say_json
from penstock.config import PipelineConfig
from penstock.disk.directory import is_held
from penstock.errors import ConfigError
from penstock.relaylog import lease
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.status import read_status as read_receiver
from penstock.relaylog.status import silence
from penstock.runtime.progress import REPORT_SECONDS_MAX, change_json, collect
from penstock.state import StateStore
from penstock.state.report import read_end, read_status, report_age_seconds


def status(file: Path, *, history: bool, as_json: bool) -> None:
    if history:
        _history(configuration.load(file), as_json=as_json)
        return
    document = describe(configuration.load(file))
    if as_json:
        say_json(document)
        return
    out = console()
    out.print(render(document))
    out.print(cell(f"running: {_running(document)}; offset {document['offset']} "
                  f"of {document['log_end']} ({document['source_position']})"))  # fmt: skip
    if document.get("stopping"):
        out.print(cell(f"stopping; still running: {'; '.join(document['stopping'])}"), soft_wrap=True)
    if not document["running"] and document.get("ended"):
        out.print(cell(f"{document['ended']['at'][:19]}: {document['ended']['message']}"), soft_wrap=True)
    for one in document.get("consumers", ()):
        if one["name"] != document["pipeline"] or not one["alive"]:
            out.print(cell(consumer_line(one)), soft_wrap=True)
    if document.get("receiver"):
        out.print(cell(f"receiver: {document['receiver']}"), soft_wrap=True)
    if document.get("rest"):
        out.print(cell(f"signals over HTTP: {document['rest']}"))


def _running(document: dict[str, Any]) -> str:
    if not document["running"]:
        return "no"
    silent = document["silent_seconds"]
    return "yes" if silent is None else f"yes, but it has reported nothing for {silent} s"


def ensure_run(config: PipelineConfig) -> None:
    """Raises `ConfigError` for a pipeline that was never run: no other command has anything to work on."""
    if not StateStore.exists(config.state):
        raise ConfigError(
            f"Pipeline {config.name} has not been run yet: {config.state} holds no state.",
            hint="Start it with `penstock run FILE`.",
        )


def describe(config: PipelineConfig) -> dict[str, Any]:
    """What the running pipeline says, else what its files say. `running`: a process holds its state;
    `silent_seconds`: that process has not reported for so long."""
    ensure_run(config)
    lives = is_held(config.state)
    report = read_status(config.state) if lives else None
    silent = report_age_seconds(report) if report is not None else None
    if report is not None and silent is not None and silent < REPORT_SECONDS_MAX:
        return report | {"silent_seconds": None}
    with closing(StateStore(config.state, read_only=True)) as state:
        document = collect(config, state, RelayLog.open(config.relay_log_path))
    return document | {
        "running": lives,
        "silent_seconds": round(silent) if silent is not None and math.isfinite(silent) else None,
        "receiver": describe_receiver(config.relay_log_path),
        "ended": None if lives else read_end(config.state),
    }


def consumer_line(one: dict[str, Any]) -> str:
    """Another reader of the relay log, or this pipeline when it does not run."""
    oldest = "" if one["seconds"] is None else f", the oldest {age_text(one['seconds'])} old"
    running = "runs" if one["alive"] else "does not run"
    seen = "" if one["seen"] is None else f", last seen {age_text(time.time() - one['seen'])} ago"
    return f"relay log: {size_text(one['bytes'])} kept for {one['name']}{oldest} ({running}{seen})"


def _history(config: PipelineConfig, *, as_json: bool) -> None:
    """Every change of a definition, oldest first: what happened, and what was made of it."""
    ensure_run(config)
    state = StateStore(config.state, read_only=True)
    try:
        changes = [change_json(change) for change in state.history()]
    finally:
        state.close()
    if as_json:
        say_json(changes)
        return
    table = Table()
    for name in ("committed (UTC)", "table", "version", "what", "decision", "statement"):
        table.add_column(name, overflow="fold")
    for change in changes:
        at = (change["committed"] or change["noted"])[:23].replace("T", " ")
        cells = (change["table"], str(change["version"]), change["what"], change["decision"])
        table.add_row(*map(cell, (at, *cells, change["statement"])))
    console().print(table)


def describe_receiver(folder: Path) -> str:
    """What the receiver of a relay log does, if there is one; else what it ended with."""
    report = read_receiver(folder)
    if not report:
        return ""
    message = f": {report['message']}" if report.get("message") else ""
    if report.get("state") in ("stopped", "failed"):
        return f"{report['state']}{message}"
    if not lease.is_held(folder):
        return "killed"
    return f"{report.get('state')} (process {report.get('pid')}){silence(report)}{message}"
