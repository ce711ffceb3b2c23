"""`penstock status FILE`, `penstock resnapshot FILE TABLE…`, `penstock unpark FILE TABLE…`: looking at a
pipeline, and asking one for something."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock import config as configuration
from penstock import directory
from penstock.commands.run import render
from penstock.config import PipelineConfig
from penstock.errors import ConfigError, TransientError
from penstock.model.schema import TableId
from penstock.progress import change_json, collect, read_status
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.status import read_status as read_receiver
from penstock.state import StateStore

ANSWER_SECONDS_MAX = 600


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


def resnapshot(file: Path, tables: list[str], *, as_json: bool) -> None:
    """Asks the pipeline to read tables again; waits for its word if it runs."""
    _ask(
        file, "resnapshot", tables, as_json=as_json,
        later="will be read again from its beginning when the pipeline runs",
        done=lambda answer: "is read again from its beginning",
    )  # fmt: skip


def unpark(file: Path, tables: list[str], *, as_json: bool) -> None:
    """Asks the pipeline to bring parked tables back; waits for its word if it runs."""

    def done(answer: dict[str, Any]) -> str:
        if answer["action"] == "goes on":
            return f"goes on from offset {answer['offset']}, where it stopped"
        if answer["action"] == "read again":
            return f"is read again from its beginning: {answer['why']}"
        return "is not parked: there is nothing to do"

    _ask(file, "unpark", tables, as_json=as_json, later="is unparked when the pipeline runs", done=done)


def _ask(
    file: Path,
    kind: str,
    tables: list[str],
    *,
    as_json: bool,
    later: str,
    done: Callable[[dict[str, Any]], str],
) -> None:
    """Requests are durable: a pipeline that does not run finds them when it does (`later`)."""
    config = configuration.load(file)
    describe(config)
    state = StateStore(config.state)
    try:
        names = [_table_id(name) for name in tables]
        asked = [(table, state.request(kind, str(table))) for table in names]
        waits = not directory.is_held(config.state)
        answers: dict[str, dict[str, Any]] = {
            str(table): {"ok": True, "waits": True} if waits else _answer(state, request)
            for table, request in asked
        }
    finally:
        state.close()
    if as_json:
        print(json.dumps(answers))
    for table, answer in answers.items():
        if not answer.get("ok"):
            raise ConfigError(f"{table}: {answer['message']}", hint=answer.get("hint", ""))
        if not as_json:
            print(f"{table} {later if waits else done(answer)}.")


def _table_id(name: str) -> TableId:
    try:
        return TableId.parse(name)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _answer(state: StateStore, request: int) -> dict[str, Any]:
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    while time.monotonic() < deadline:
        answer = state.answer_to(request)
        if answer is not None:
            return answer
        time.sleep(0.1)  # polls for the answer, with a limit
    raise TransientError(
        f"The pipeline has not answered for {ANSWER_SECONDS_MAX} s.",
        hint="Is it running? The request is kept and done when it runs again.",
    )
