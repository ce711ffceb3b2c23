"""`penstock status FILE` and `penstock resnapshot FILE TABLE…`: looking at a pipeline, and asking one for
something."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from penstock import config as configuration
from penstock.commands.run import render
from penstock.config import PipelineConfig
from penstock.errors import ConfigError, TransientError
from penstock.model.schema import TableId
from penstock.progress import collect, read_status
from penstock.relaylog.reader import RelayLog
from penstock.state import StateStore

ANSWER_SECONDS_MAX = 600


def status(file: Path, *, as_json: bool) -> None:
    document = describe(configuration.load(file))
    if as_json:
        print(json.dumps(document))
        return
    console = Console()
    console.print(render(document))
    console.print(f"running: {'yes' if document['running'] else 'no'}; offset {document['offset']} "
                  f"of {document['log_end']} ({document['source_position']})")  # fmt: skip
    if document.get("receiver"):
        console.print(f"receiver: {document['receiver']}")


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
        return collect(config, state, RelayLog.open(config.relay_log_path))
    finally:
        state.close()


def resnapshot(file: Path, tables: list[str], *, as_json: bool) -> None:
    """Asks the running pipeline to read tables again; waits for its word."""
    config = configuration.load(file)
    describe(config)
    state = StateStore(config.state)
    try:
        names = [_table_id(name) for name in tables]
        asked = [(table, state.request("resnapshot", str(table))) for table in names]
        answers = {str(table): _answer(state, request) for table, request in asked}
    finally:
        state.close()
    if as_json:
        print(json.dumps(answers))
    for table, answer in answers.items():
        if not answer.get("ok"):
            raise ConfigError(f"{table}: {answer['message']}", hint=answer.get("hint", ""))
        if not as_json:
            print(f"{table} is read again from its beginning.")


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
