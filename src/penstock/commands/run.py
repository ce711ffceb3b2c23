"""`penstock run FILE`: the pipeline in the foreground, until it is stopped."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import Any

from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.commands.terminal import cell, console, say
from penstock.errors import TablesParked
from penstock.printable import printable, printable_json
from penstock.runtime.pipeline import Pipeline
from penstock.runtime.progress import Progress

PLAIN_EVERY_SECONDS = 5
PARKED_SHOWN_MAX = 5
RETRIES_SHOWN_MAX = 5
TABLES_SHOWN_MAX = 50
"""Drawing a thousand rows twice a second would cost more CPU time than the pipeline itself."""


def run(file: Path, *, once: bool, as_json: bool) -> None:
    """Runs until SIGTERM or SIGINT. With `once`, runs until everything committed so far is at the targets.

    Raises `TablesParked` if a run with `once` ends with parked tables, so that a scheduler does not take it
    for a success.
    """
    pipeline = Pipeline.load(file)
    pipeline.exits = True
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: pipeline.stop())
    progress = _watched(pipeline, once=once, as_json=as_json)
    if once:
        refuse_parked(progress.to_json()["tables"])


def _watched(pipeline: Pipeline, *, once: bool, as_json: bool) -> Progress:
    if as_json:
        return pipeline.run(once=once, on_progress=lambda progress: say(printable_json(progress.text())))
    errors = console(stderr=True)
    if not errors.is_terminal:
        return pipeline.run(once=once, on_progress=_Plain())
    with Live(Text("starting the receiver and Spark …"), console=errors, refresh_per_second=2) as live:
        return pipeline.run(once=once, on_progress=lambda progress: live.update(render(progress.to_json())))


def refuse_parked(tables: list[dict[str, Any]]) -> None:
    """Raises `TablesParked`, with the reason and the hint of each parked table, if there is one."""
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


class _Plain:
    """One line every few seconds, for logs."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, progress: Progress) -> None:
        if time.monotonic() >= self._next:
            say(summary_line(progress.to_json()), file=sys.stderr)
            self._next = time.monotonic() + PLAIN_EVERY_SECONDS


def summary_line(status: dict[str, Any]) -> str:
    """The pipeline in one line."""
    snapshot, lag = status["snapshot"], status["lag"]
    parts = [f"epoch {status['epoch']}", f"lag {_seconds(lag['seconds'])}, {size_text(lag['bytes'])}"]
    if snapshot["chunks"] and not snapshot["done"]:
        left = snapshot.get("seconds_left")
        parts.append(
            f"snapshot {snapshot['chunks_placed']}/{snapshot['chunks']} chunks, "
            f"{snapshot['rows_placed']:,} rows" + (f", {left} s left" if left is not None else "")
        )
    if snapshot["throttled"]:
        parts.append(f"snapshot paused: {snapshot['throttled']}")
    parts += [_retry(retry) for retry in status["retrying"]]
    parked = [table["table"] for table in status["tables"] if table["status"] == "parked"]
    if parked:
        parts.append("parked: " + ", ".join(parked))
    return "; ".join(parts)


def render(status: dict[str, Any]) -> Table:
    """The pipeline as a table: one line per captured table, the whole in the title."""
    rates = status.get("rates", {})
    lag = status["lag"]
    title = (
        f"{status['pipeline']}: epoch {status['epoch']}, lag {_seconds(lag['seconds'])} "
        f"({size_text(lag['bytes'])}, {lag['transactions']:,} transactions)"
    )
    caption = ""
    if rates:
        caption = (
            f"log {size_text(rates['log_bytes_per_s'])}/s, snapshot {rates['snapshot_rows_per_s']:,} rows/s"
        )
        left = status["snapshot"].get("seconds_left")
        caption += f", {left} s left" if left is not None and not status["snapshot"]["done"] else ""
    if status["snapshot"]["throttled"]:
        caption += "\n" + printable(f"snapshot paused: {status['snapshot']['throttled']}")
    for retry in status["retrying"][:RETRIES_SHOWN_MAX]:
        caption += f"\n{printable(_retry(retry))}"
    if (more := len(status["retrying"]) - RETRIES_SHOWN_MAX) > 0:
        caption += f"\n… and {more} more"
    table = Table(
        title=cell(title),
        caption=Text(caption.strip()),
        title_justify="left",
        caption_justify="left",
    )
    for name, justify in (
        ("table", "left"),
        ("state", "left"),
        ("chunks", "right"),
        ("rows placed", "right"),
    ):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    table.add_column("remarks", overflow="fold")
    shown = shown_first(status["tables"])
    for item in shown:
        chunks = item["chunks"]
        state = item["status"] if item["status"] != "live" else _phase(item["snapshot"])
        state = "catching up" if item["catching_up"] else state
        state = "resnapshot pending" if item["resnapshot_pending"] else state
        remarks = f"{item['parked']['reason']} {item['parked']['hint']}".strip() if item["parked"] else ""
        remarks = printable(remarks)
        if not remarks and item["last_change"]:
            remarks = printable(_last_change(item["last_change"]))
        if item["verified"]:
            remarks = "\n".join(filter(None, (remarks, printable(_last_verified(item["verified"])))))
        placed = f"{chunks['placed']}/{chunks['total']}" if chunks["total"] else ""
        rows = f"{item['rows_placed']:,}"
        if state in ("planning chunks", "snapshot + stream"):
            rows += f" of ~{item['rows_estimate']:,}"
        table.add_row(cell(item["table"]), state, placed, rows, Text(remarks))
    if more := len(status["tables"]) - len(shown):
        table.add_row(f"… and {more:,} more", "", "", "", "`penstock status FILE --json` lists all tables.")
    return table


def _retry(retry: dict[str, Any]) -> str:
    """What is failing and being retried, since when, and why."""
    what = retry["what"] + (f" of {retry['table']}" if retry["table"] else "")
    since = retry["since"][:19].replace("T", " ")
    return f"retrying {what} since {since} UTC ({retry['attempts']} attempts): {retry['reason']}"


def shown_first(tables: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most `TABLES_SHOWN_MAX` tables, in their order. Parked tables come first, then those being read."""
    if len(tables) <= TABLES_SHOWN_MAX:
        return tables

    def rank(item: dict[str, Any]) -> int:
        if item["status"] == "parked":
            return 0
        busy = (
            item["resnapshot_pending"] or item["catching_up"] or item["snapshot"] in ("splitting", "reading")
        )
        return 1 if busy else 2

    chosen = {item["table"] for item in sorted(tables, key=rank)[:TABLES_SHOWN_MAX]}
    return [item for item in tables if item["table"] in chosen]


def _last_change(change: dict[str, Any]) -> str:
    at = (change["committed"] or change["recorded"])[:19].replace("T", " ")
    return f"version {change['version']} ({at} UTC): {change['what']}, {change['decision']}"


def _last_verified(verified: dict[str, Any]) -> str:
    different = f", {verified['keys_different']:,} keys differ" if verified["keys_different"] else ""
    offset = f", at offset {verified['offset']}" if verified["offset"] is not None else ""
    return f"verified {verified['at'][:19].replace('T', ' ')} UTC: {verified['verdict']}{different}{offset}"


def _phase(snapshot: str) -> str:
    return {"splitting": "planning chunks", "reading": "snapshot + stream"}.get(snapshot, "stream")


def _seconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:.1f} s"


def size_text(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
