"""What commands print for people: text that others wrote is never taken for markup or obeyed by the
terminal."""

from __future__ import annotations

import json
import sys
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from penstock.printable import printable, printable_json


def console(**options: Any) -> Console:
    """Takes `[red]` and `:smile:` for what they are: characters of a name."""
    return Console(markup=False, emoji=False, highlight=False, **options)


def cell(text: Any, style: str = "") -> Text:
    """For tables. Lines that `text` has are shown as `\\n`."""
    return Text(printable(text), style=style)


def say(text: Any, *, lines: bool = False, file: TextIO | None = None) -> None:
    """Prints a line; with `lines`, a text that has lines by design."""
    print(printable(text, lines=lines), file=file or sys.stdout, flush=True)


def say_json(document: Any, *, plain: bool = False, file: TextIO | None = None) -> None:
    """Prints a line of JSON with every name as it is. `plain`: letters of any language stay readable."""
    text = json.dumps(document, default=str, ensure_ascii=not plain)
    print(printable_json(text), file=file or sys.stdout, flush=True)
