"""`penstock run FILE`: runs the pipeline in the foreground, until it is stopped.

At a terminal it shows a screen (`screen.py`) with log lines above it. If stderr is not a terminal, it prints
a line every few seconds. With `--json`, it prints one JSON document per line on stdout.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from penstock import config as configuration
from penstock.commands.screen import closing_line, screen, summary_line
from penstock.commands.terminal import console, logged_above, say, say_json
from penstock.commands.working import PROGRESS, Working
from penstock.config import PipelineConfig
from penstock.errors import PenstockError, TablesParked
from penstock.printable import printable_json
from penstock.runtime.pipeline import Pipeline
from penstock.runtime.progress import Progress
from penstock.runtime.several import run_several

PLAIN_EVERY_SECONDS = 5
"""Seconds between two lines where the output is no terminal, so that a log of the run stays short."""
PARKED_SHOWN_MAX = 5
"""Parked tables whose reasons the last message gives, so that it stays readable. `penstock status` has
all."""
SCREENS_PER_SECOND = 2
"""How often the screen is drawn. The pipeline reports once a second, and drawing costs CPU."""


def run(file: Path, *, once: bool, as_json: bool, child: bool = False) -> None:
    """Runs until SIGTERM or SIGINT. With `once`, runs until everything committed so far is at the targets.
    With `child`, it also ends when standard input does.

    Raises `TablesParked` if a run with `once` ends with parked tables, or with tables whose rows are not all
    at their targets, so that a scheduler does not take it for a success.
    """
    config, members = configuration.load_several(file)
    if members:
        _run_several(file, config, members, once=once, as_json=as_json)
        return
    pipeline = Pipeline.load(file)
    pipeline.exits = True
    if child:
        threading.Thread(target=_obey, args=(pipeline,), name="parent", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: pipeline.stop())
    progress = _watched(pipeline, once=once, as_json=as_json)
    if once:
        refuse_parked(progress.to_json()["tables"])


def _obey(pipeline: Pipeline) -> None:
    """Stops the pipeline when the parent process has ended."""
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    pipeline.stop()


def _run_several(
    file: Path, config: PipelineConfig, members: dict[str, PipelineConfig], *, once: bool, as_json: bool
) -> None:
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    run_several(file, config, members, stopping, once=once, out=sys.stdout if as_json else None)


def _watched(pipeline: Pipeline, *, once: bool, as_json: bool) -> Progress:
    """Runs the pipeline. Until its first report, shows what it is doing."""
    errors = console(stderr=True)
    with contextlib.ExitStack() as stack:
        starting = contextlib.ExitStack()
        stack.enter_context(starting).enter_context(Working("starting"))
        if as_json:
            pipeline.say_forced = lambda message: say_json(PenstockError(message).to_json(), file=sys.stderr)
            show: Callable[[Progress], None] = _say_report
        elif errors.is_terminal:
            live = Live(console=errors, refresh_per_second=SCREENS_PER_SECOND, redirect_stdout=False)
            stack.callback(live.stop)
            screens = contextlib.ExitStack()
            screens.callback(live.stop)
            screens.callback(starting.close)
            pipeline.end_screen = screens.close
            show = partial(_draw, stack, live, errors)
        else:
            show = _Plain()

        def report(progress: Progress) -> None:
            starting.close()
            show(progress)

        progress = pipeline.run(once=once, on_progress=report)
    if not as_json and not errors.is_terminal:
        PROGRESS.info("ended: %s", closing_line(progress.to_json()))
    return progress


def _say_report(progress: Progress) -> None:
    say(printable_json(progress.text()))


def _draw(stack: contextlib.ExitStack, live: Live, errors: Console, progress: Progress) -> None:
    if not live.is_started:
        live.start()
        stack.enter_context(logged_above(live))
    live.update(screen(progress.to_json(), lines=errors.height))


def refuse_parked(tables: list[dict[str, Any]]) -> None:
    """Raises `TablesParked`, with reasons and hints, if a table is parked or its rows are not at its target
    for another reason."""
    parked = [table for table in tables if table["status"] == "parked"]
    behind = [table for table in tables if table["status"] == "live" and is_behind(table)]
    if parked or behind:
        reasons = [
            f"{table['table']}: {table['parked']['reason']} {table['parked']['hint']}" for table in parked
        ]
        reasons += [f"{table['table']}: not all of its rows have been read." for table in behind]
        more = len(reasons) - PARKED_SHOWN_MAX
        unread = f" and {len(behind)} not complete" if behind else ""
        raise TablesParked(
            f"{len(parked)} of {len(tables)} tables are parked{unread}; the others are up to date. "
            + " ".join(reasons[:PARKED_SHOWN_MAX])
            + (f" {more} more are not up to date." if more > 0 else ""),
            hint="`penstock status FILE` lists all tables with the reasons.",
            tables=[table["table"] for table in (*parked, *behind)],
        )


def is_behind(table: dict[str, Any]) -> bool:
    """Whether the target of a table that is not parked lacks rows that the log alone does not bring."""
    busy = table["snapshot"] in ("splitting", "reading")
    return bool(table["resnapshot_pending"] or table["catching_up"] or busy)


class _Plain:
    """Prints one line every few seconds, for logs."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, progress: Progress) -> None:
        if time.monotonic() >= self._next:
            PROGRESS.info("%s", summary_line(progress.to_json()))
            self._next = time.monotonic() + PLAIN_EVERY_SECONDS
