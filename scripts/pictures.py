"""Draws docs/demo.svg and docs/status.svg from a real run of the demo: `python scripts/pictures.py`.

The demo runs as `penstock demo` does, and everything in the pictures is what it printed: its lines, the
screen as it stood in the middle of the snapshot, and the verdict at the end. While it streams, `penstock
status` is run beside it. Only the temporary folder's name is replaced. `--rows` chooses the size of the shop.
Takes some minutes, and a quiet machine.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from penstock.commands.demo import report
from penstock.commands.screen import screen
from penstock.testing.demo import Demo, DemoOptions

DOCS = Path(__file__).resolve().parents[1] / "docs"
WIDTH = 104
LAG_SECONDS_MAX = 1.0
"""When `penstock status` is run: the backlog of the crashes has been worked off."""
_FONT_FROM_ELSEWHERE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


class Pictures:
    """Follows a demo and keeps what is to be drawn."""

    def __init__(self, options: DemoOptions) -> None:
        self._options = options
        self._demo = Console(record=True, width=WIDTH, force_terminal=True, file=io.StringIO())
        self._has_screen = False
        self._status = ""
        self.demo = Demo(options, say=self._say, show=self._show)

    def run(self) -> bool:
        command = f"penstock demo --rows {self._options.rows}"
        self._demo.print(f"[bold green]$[/] [bold]{command}[/]", highlight=False)
        result = self.demo.run()
        report(self._demo, self._options, result)
        _save(self._demo, DOCS / "demo.svg", command)
        shown = Console(record=True, width=WIDTH, force_terminal=True, file=io.StringIO())
        shown.print("[bold green]$[/] [bold]penstock status shop.yaml[/]", highlight=False)
        shown.print(Text.from_ansi(self._status))
        _save(shown, DOCS / "status.svg", "penstock status shop.yaml")
        return result.equal

    def _say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)
        self._demo.print(line.replace(self.demo.result.folder, "/tmp/penstock-demo"), soft_wrap=True)

    def _show(self, status: dict[str, Any]) -> None:
        snapshot, lag = status["snapshot"], status["lag"]["seconds"]
        share = snapshot["chunks_placed"] / max(1, snapshot["chunks"])
        if not self._has_screen and 0.25 <= share < 1 and snapshot["seconds_left"] is not None:
            self._has_screen = True
            self._demo.print(screen(status))
        if not self._status and snapshot["done"] and lag is not None and lag < LAG_SECONDS_MAX:
            self._status = _status(Path(self.demo.result.folder) / "shop.yaml")


def _status(file: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "status", str(file)],
        env={**os.environ, "COLUMNS": str(WIDTH), "FORCE_COLOR": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


def _save(console: Console, path: Path, title: str) -> None:
    """An SVG that fetches nothing from elsewhere, and is named the same each time."""
    svg = console.export_svg(title=title, unique_id=f"penstock-{path.stem}")
    path.write_text(_FONT_FROM_ELSEWHERE.sub("", svg).rstrip() + "\n", "utf-8")
    print(path, file=sys.stderr)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=1_000_000)
    rows = arguments.parse_args().rows
    return 0 if Pictures(DemoOptions(rows=rows)).run() else 1


if __name__ == "__main__":
    sys.exit(main())
