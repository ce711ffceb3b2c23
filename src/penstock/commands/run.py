"""`penstock run FILE`: runs the pipeline in the foreground, until it is stopped.

At a terminal it shows a screen (`screen.py`) with log lines above it. If stderr is not a terminal, it prints
a line every few seconds. With `--json`, it prints one JSON document per line on stdout.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.live import Live
from rich.text import Text

from penstock import config as configuration
from penstock.commands.screen import closing_line, screen, summary_line
from penstock.commands.terminal import console, say
from penstock.config import PipelineConfig
from penstock.errors import TablesParked
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

    Raises `TablesParked` if a run with `once` ends with parked tables, so that a scheduler does not take it
    for a success.
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
    if as_json:
        return pipeline.run(once=once, on_progress=lambda progress: say(printable_json(progress.text())))
    errors = console(stderr=True)
    if not errors.is_terminal:
        progress = pipeline.run(once=once, on_progress=_Plain())
        say(f"ended: {closing_line(progress.to_json())}", file=sys.stderr)
        return progress
    starting = Text("starting the receiver and Spark …")
    with (
        Live(starting, console=errors, refresh_per_second=SCREENS_PER_SECOND, redirect_stdout=False) as live,
        logged_above(live),
    ):

        def draw(progress: Progress) -> None:
            live.update(screen(progress.to_json(), lines=errors.height))

        pipeline.end_screen = live.stop
        return pipeline.run(once=once, on_progress=draw)


def refuse_parked(tables: list[dict[str, Any]]) -> None:
    """Raises `TablesParked`, with reasons and hints, if a table is parked."""
    parked = [table for table in tables if table["status"] == "parked"]
    if parked:
        reasons = [
            f"{table['table']}: {table['parked']['reason']} {table['parked']['hint']}" for table in parked
        ]
        more = len(reasons) - PARKED_SHOWN_MAX
        raise TablesParked(
            f"{len(parked)} of {len(tables)} tables are parked; the others are up to date. "
            + " ".join(reasons[:PARKED_SHOWN_MAX])
            + (f" {more} more are parked." if more > 0 else ""),
            hint="`penstock status FILE` lists all tables with the reasons.",
            tables=[table["table"] for table in parked],
        )


@contextlib.contextmanager
def logged_above(live: Live) -> Iterator[None]:
    """Shows log lines above the screen while the block runs, instead of inside it. `live` must have started
    and must redirect stderr."""
    handlers = [one for one in logging.getLogger().handlers if isinstance(one, logging.StreamHandler)]
    before = [handler.setStream(sys.stderr) for handler in handlers]
    try:
        yield
    finally:
        for handler, stream in zip(handlers, before, strict=True):
            if stream is not None:  # None: the handler had this stream already
                handler.setStream(stream)


class _Plain:
    """Prints one line every few seconds, for logs."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, progress: Progress) -> None:
        if time.monotonic() >= self._next:
            say(summary_line(progress.to_json()), file=sys.stderr)
            self._next = time.monotonic() + PLAIN_EVERY_SECONDS
