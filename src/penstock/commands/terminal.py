"""Prints the output of commands for people. Text from a source is never interpreted as markup or as a
terminal command."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from penstock.printable import printable, printable_json


def console(**options: Any) -> Console:
    """Returns a console that prints `[red]` and `:smile:` literally, because they may be parts of a name."""
    return Console(markup=False, emoji=False, highlight=False, **options)


def cell(text: Any, style: str = "") -> Text:
    """Returns a table cell. Line breaks in `text` are shown as `\\n`."""
    return Text(printable(text), style=style)


def say(text: Any, *, lines: bool = False, file: TextIO | None = None) -> None:
    """Prints one line. With `lines`, line breaks in `text` are kept."""
    print(printable(text, lines=lines), file=file or sys.stdout, flush=True)


def say_json(document: Any, *, plain: bool = False, file: TextIO | None = None) -> None:
    """Prints one line of JSON with names unchanged. `plain`: non-ASCII letters are not escaped."""
    text = json.dumps(document, default=str, ensure_ascii=not plain)
    print(printable_json(text), file=file or sys.stdout, flush=True)


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
