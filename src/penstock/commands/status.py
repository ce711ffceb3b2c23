"""`penstock status FILE`: offset, lag, snapshot progress, and the state of each table."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from penstock import config as configuration
from penstock.commands.consumers import age_text
from penstock.commands.screen import screen
from penstock.commands.terminal import cell, console, say_json
from penstock.config import PipelineConfig
from penstock.printable import size_text
from penstock.runtime.describe import describe, describe_member, ensure_run
from penstock.runtime.progress import change_json
from penstock.state import StateStore
from penstock.state.report import end_text


def status(file: Path, *, history: bool, as_json: bool) -> None:
    if history:
        _history(configuration.load(file), as_json=as_json)
        return
    config, members = configuration.load_several(file)
    if members:
        documents = {name: describe_member(member) for name, member in members.items()}
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


def _show(document: dict[str, Any]) -> None:
    out = console()
    if "tables" not in document:
        out.print(cell(_without_tables(document)), soft_wrap=True)
        return
    out.print(screen(document))
    out.print(cell(f"running: {_running(document)}; offset {document['offset']} "
                  f"of {document['log_end']} ({document['source_position']})"))  # fmt: skip
    if document.get("stopping"):
        out.print(cell(f"stopping; still waiting for: {', '.join(document['stopping'])}"), soft_wrap=True)
    if not document["running"] and document.get("ended"):
        out.print(cell(end_text(document["ended"])), soft_wrap=True)
    for one in document.get("consumers", ()):
        if one["name"] != document["pipeline"] or not one["running"]:
            out.print(cell(consumer_line(one)), soft_wrap=True)
    for one in document.get("views", ()):
        if one["error"]:
            out.print(cell(f"view {one['view']} is not up to date: {one['error']}"), soft_wrap=True)
    if document.get("receiver"):
        out.print(cell(f"receiver: {document['receiver']}"), soft_wrap=True)
    if document.get("http"):
        out.print(cell(f"HTTP: {document['http']}"))


def _without_tables(document: dict[str, Any]) -> str:
    """The line for a sink that has received nothing."""
    if document["running"]:
        return "It is starting."
    return end_text(document["ended"]) if document["ended"] else "It has not been run yet."


def _running(document: dict[str, Any]) -> str:
    if not document["running"]:
        return "no"
    silent = document["silent_seconds"]
    return "yes" if silent is None else f"yes, but its last report is {silent} s old"


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
    out = console()
    for change in changes:
        at = (change["committed"] or change["recorded"])[:23].replace("T", " ")
        out.print(cell(f"{at} UTC  {change['table']}  version {change['version']}", "bold"), soft_wrap=True)
        out.print(cell(f"  {change['what']}: {change['decision']}"), soft_wrap=True)
        if change["statement"]:
            out.print(cell(f"  {change['statement']}"), soft_wrap=True)
