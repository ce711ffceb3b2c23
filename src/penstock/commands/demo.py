"""`penstock demo`: runs a pipeline on a private server under load and verifies the result."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from penstock.commands.screen import screen, summary_line
from penstock.testing.demo import Demo, DemoOptions, DemoResult

PLAIN_EVERY_SECONDS = 5
"""Seconds between two lines where the output is no terminal, so that a log of the run stays short."""


def demo(options: DemoOptions, *, as_json: bool) -> int:
    """Runs the demo and prints the result. Returns exit code 0 only if every table was proven equal."""
    console = Console(stderr=as_json)
    if console.is_terminal and not as_json:
        with Live(console=console, refresh_per_second=2, transient=True) as live:
            result = Demo(
                options, say=console.print, show=lambda s: live.update(screen(s, lines=console.height))
            ).run()
    else:
        result = Demo(options, say=console.print, show=_Plain(console)).run()
    report(console, options, result)
    if as_json:
        sys.stdout.write(json.dumps(result.to_json()) + "\n")
    return 0 if result.equal else 1


class _Plain:
    """Prints a line of progress every few seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = 0.0

    def __call__(self, status: dict[str, Any]) -> None:
        if time.monotonic() - self._last >= PLAIN_EVERY_SECONDS:
            self._last = time.monotonic()
            self._console.print("  " + summary_line(status), highlight=False, soft_wrap=True)


def canal_demo(rows: int | None, seconds: float, *, as_json: bool) -> int:
    """Runs the demo of the subscription server. Returns exit code 0 only if every table was proven equal."""
    from penstock.testing.canal.demo import CanalDemo, CanalDemoOptions

    console = Console(stderr=as_json)
    options = CanalDemoOptions(seconds=seconds) if rows is None else CanalDemoOptions(rows, seconds)
    result = CanalDemo(options, say=lambda text: console.print(text, markup=False, highlight=False)).run()
    console.print(_tables(result.tables))
    console.print(
        f"{result.rows:,} changes in {result.batches:,} batches; {result.repeated:,} came again after a "
        f"kill, {result.after_acknowledgement} of them although they had been acknowledged; "
        f"killed: {', '.join(result.kills)}; {result.seconds:.0f} s"
    )
    if as_json:
        sys.stdout.write(json.dumps(result.to_json()) + "\n")
    return 0 if result.equal else 1


def _tables(tables: list[dict[str, Any]]) -> Table:
    table = Table(title="Source and target", title_justify="left")
    for name in ("table", "rows at the source", "rows at the target", "equal"):
        table.add_column(name, justify="left" if name in ("table", "equal") else "right")
    for item in tables:
        mark = "[green]yes[/]" if item["equal"] else "[red]NO[/]"
        table.add_row(item["table"], f"{item['rows_source']:,}", f"{item['rows_target']:,}", mark)
    return table


def report(console: Console, options: DemoOptions, result: DemoResult) -> None:
    console.print(_tables(result.tables))
    phases = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in result.phases.items())
    console.print(
        f"{result.rows:,} rows, {result.changes:,} changes while it ran, {result.chunks} chunks, "
        f"killed: {', '.join(result.kills)}; {result.seconds:.0f} s ({phases})"
    )
    if options.keep:
        console.print(f"Everything is kept in {result.folder}. To query the target:")
        console.print(_query_hint(options, result), highlight=False, markup=False)
    elif options.lake == "local":
        console.print("Run it with --keep to keep the warehouse and query it.")


def _query_hint(options: DemoOptions, result: DemoResult) -> str:
    file = f"{result.folder}/shop.yaml"
    return f'  penstock query {file} "SELECT status, count(*) FROM orders GROUP BY status"'
