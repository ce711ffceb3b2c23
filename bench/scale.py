"""How Penstock behaves where there is much of everything: tables, chunks, log, one transaction.

    python -m bench.scale                            all parts, at the sizes that the goals speak of
    python -m bench.scale --parts tables --tables 200
    python -m bench.scale --parts transaction --gib 5 --json /tmp/scale.json

Each part runs against a private MySQL of its own, in a folder that is removed at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from bench.measure import ROOT
from bench.scaling import Line, chunks, log, tables, transaction
from penstock.errors import PenstockError

RESULTS = ROOT / "bench" / "results" / "scale.json"
PARTS = (tables.PART, chunks.PART, log.PART, transaction.PART)


def main() -> int:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything started here is stopped
    console = Console(stderr=True)
    lines: list[Line] = []
    machine = {"cores": os.cpu_count(), "busy_before_percent": psutil.cpu_percent(interval=2)}
    try:
        for line in measured(options):
            lines.append(line)
            console.print(f"  {line.part}: {line.what}: {line.value:,.3f} {line.unit}", markup=False)
    except PenstockError as error:
        console.print(f"bench: {error}", style="red", markup=False)
        return 1
    finally:  # what was measured is kept whatever comes
        keep(lines, options.json, machine)
    show(lines)
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.scale", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS, metavar="PART",
                        help=f"which of: {' '.join(PARTS)}")  # fmt: skip
    parser.add_argument("--tables", type=int, default=1000, help="tables of the part `tables`")
    parser.add_argument("--chunks", type=int, default=10_000, help="chunks of the part `chunks`")
    parser.add_argument("--rows", type=int, default=1_000_000, help="... and rows of its tables")
    parser.add_argument("--gib", type=float, default=1.0, help="size of the part `transaction`")
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the figures go")
    return parser.parse_args()


def measured(options: argparse.Namespace) -> Iterator[Line]:
    if tables.PART in options.parts:
        yield from tables.run(options.tables)
    if chunks.PART in options.parts:
        yield from chunks.run(options.chunks, options.rows)
    if log.PART in options.parts:
        yield from log.run()
    if transaction.PART in options.parts:
        yield from transaction.run(options.gib)


def keep(lines: list[Line], path: Path, machine: dict[str, Any]) -> None:
    """Figures of parts that did not run stay as they were."""
    known: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    parts = known.get("parts", {})
    for part in dict.fromkeys(line.part for line in lines):
        figures = [line.to_json() for line in lines if line.part == part]
        parts[part] = {"measured": time.strftime("%Y-%m-%d"), **machine, "figures": figures}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"parts": parts}, indent=1) + "\n", "utf-8")


def show(lines: list[Line]) -> None:
    table = Table("part", "what", "value", "goal", "", box=SIMPLE_HEAD)
    for line in lines:
        goal = "" if line.goal is None else f"< {line.goal:g} {line.unit}"
        verdict = {None: "", True: "reached", False: "missed"}[line.reached]
        table.add_row(line.part, line.what, f"{line.value:,.2f} {line.unit}", goal, verdict)
    Console(width=None if sys.stdout.isatty() else 140).print(table)


if __name__ == "__main__":
    sys.exit(main())
