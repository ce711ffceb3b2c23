"""`penstock wait-until FILE TABLE TIME`: ends when the target has everything up to a time, for jobs that read
it."""

from __future__ import annotations

from pathlib import Path

from penstock import config as configuration
from penstock.commands.table_arguments import table_named
from penstock.commands.terminal import say, say_json
from penstock.runtime.completeness import wait_until as wait
from penstock.runtime.describe import ensure_run


def wait_until(file: Path, table: str, until: str, *, timeout: float | None, as_json: bool) -> None:
    """Waits, and prints up to when the target is complete."""
    table_named(table)
    ensure_run(configuration.load(file))
    found = wait(file, table, until, timeout=timeout)
    if as_json:
        say_json(found.to_json())
    else:
        say(f"{found.table} is complete until {found.until.isoformat(timespec='milliseconds')}.")
