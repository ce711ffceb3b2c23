"""`penstock status FILE`: offset, lag, snapshot progress, and the state of each table."""

from __future__ import annotations

import math
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.table import Table

from penstock import config as configuration
from penstock.commands.consumers import age_text
from penstock.commands.screen import screen, size_text
from penstock.commands.terminal import cell, console, say_json
from penstock.config import PipelineConfig
from penstock.disk.directory import is_held
from penstock.errors import ConfigError
from penstock.relaylog import lease
from penstock.relaylog.files import LogPlace
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.status import read_status as read_receiver
from penstock.relaylog.status import silence
from penstock.runtime.progress import STALE_INTERVALS, change_json, collect
from penstock.state import StateStore
from penstock.state.report import read_end, read_status, report_age_seconds


def status(file: Path, *, history: bool, as_json: bool) -> None:
    if history:
        _history(configuration.load(file), as_json=as_json)
        return
    config, members = configuration.load_several(file)
    if members:
        documents = {name: _described(member) for name, member in members.items()}
        if as_json:
            say_json({"pipeline": config.name, "sinks": documents})
            return
        for name, document in documents.items():
            console().print(cell(f"{file}#{name}"))
            _show(document)
        return
    document = describe(config)
    if as_json:
        say_json(document)
        return
    _show(document)


def _described(config: PipelineConfig) -> dict[str, Any]:
    """Of one of several sinks, which may not have run yet."""
    if StateStore.exists(config.state) and RelayLog.exists(LogPlace.of(config)):
        return describe(config)
    ended = read_end(config.state) if config.state.is_dir() else None
    return {"pipeline": config.name, "running": False, "ended": ended}


def _show(document: dict[str, Any]) -> None:
    out = console()
    if "tables" not in document:
        said = document["ended"]["message"] if document["ended"] else "It has not been run yet."
        out.print(cell(said), soft_wrap=True)
        return
    out.print(screen(document))
    out.print(cell(f"running: {_running(document)}; offset {document['offset']} "
                  f"of {document['log_end']} ({document['source_position']})"))  # fmt: skip
    if document.get("stopping"):
        out.print(cell(f"stopping; still running: {'; '.join(document['stopping'])}"), soft_wrap=True)
    if not document["running"] and document.get("ended"):
        out.print(cell(f"{document['ended']['at'][:19]}: {document['ended']['message']}"), soft_wrap=True)
    for one in document.get("consumers", ()):
        if one["name"] != document["pipeline"] or not one["running"]:
            out.print(cell(consumer_line(one)), soft_wrap=True)
    if document.get("receiver"):
        out.print(cell(f"receiver: {document['receiver']}"), soft_wrap=True)
    if document.get("rest"):
        out.print(cell(f"signals over HTTP: {document['rest']}"))


def _running(document: dict[str, Any]) -> str:
    if not document["running"]:
        return "no"
    silent = document["silent_seconds"]
    return "yes" if silent is None else f"yes, but its last report is {silent} s old"


def ensure_run(config: PipelineConfig) -> None:
    """Raises `ConfigError` if the pipeline has never run: other commands need its state."""
    if not StateStore.exists(config.state):
        raise ConfigError(
            f"Pipeline {config.name} has not been run yet: there is no state in {config.state}.",
            hint="Start it with `penstock run FILE`.",
        )


def describe(config: PipelineConfig) -> dict[str, Any]:
    """Returns the running pipeline's last report. If there is no recent report, reads the pipeline's files
    instead. `running`: whether a process holds the lock on the state. `silent_seconds`: age of that process's
    last report in seconds, or None if the report is recent."""
    ensure_run(config)
    lives = is_held(config.state)
    report = read_status(config.state) if lives else None
    silent = report_age_seconds(report) if report is not None else None
    silent_max = STALE_INTERVALS * config.report_interval / 1000
    if report is not None and silent is not None and silent < silent_max:
        return report | {"silent_seconds": None}
    with closing(StateStore(config.state, read_only=True)) as state:
        document = collect(config, state, RelayLog.open(LogPlace.of(config)))
    return document | {
        "running": lives,
        "silent_seconds": round(silent) if silent is not None and math.isfinite(silent) else None,
        "receiver": describe_receiver(config.relay_log_path),
        "ended": None if lives else read_end(config.state),
    }


def consumer_line(one: dict[str, Any]) -> str:
    """Returns a line about a consumer of the relay log: how much log is kept for it, and when it was last
    seen."""
    age = one["oldest_seconds"]
    oldest = "" if age is None else f", oldest change {age_text(age)} old"
    running = "running" if one["running"] else "not running"
    seen = one["last_seen"]
    last_seen = "" if seen is None else f", last seen {age_text(time.time() - seen)} ago"
    return f"relay log: {size_text(one['bytes'])} kept for {one['name']}{oldest} ({running}{last_seen})"


def _history(config: PipelineConfig, *, as_json: bool) -> None:
    """Prints every schema change, oldest first, with what the pipeline did about it."""
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
        at = (change["committed"] or change["recorded"])[:23].replace("T", " ")
        cells = (change["table"], str(change["version"]), change["what"], change["decision"])
        table.add_row(*map(cell, (at, *cells, change["statement"])))
    console().print(table)


def describe_receiver(folder: Path) -> str:
    """Returns what the receiver of a relay log is doing, or how it ended. Empty if it never ran."""
    report = read_receiver(folder)
    if not report:
        return ""
    message = f": {report['message']}" if report.get("message") else ""
    if report.get("state") in ("stopped", "failed"):
        return f"{report['state']}{message}"
    if not lease.is_held(folder):
        return "killed"
    return f"{report.get('state')} (process {report.get('pid')}){silence(report)}{message}{_archive(report)}"


def _archive(report: dict[str, Any]) -> str:
    """How far the archive is, and why it does not get on."""
    archive = report.get("archive")
    if not isinstance(archive, dict):
        return ""
    behind = size_text(max(0, int(report.get("offset") or 0) - int(archive.get("end") or 0)))
    trouble = f": {archive['error']}" if archive.get("error") else ""
    return f"; {behind} not in the archive yet{trouble}"
