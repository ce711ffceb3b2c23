"""`penstock consumers FILE|RELAY_LOG`: lists the consumers of a relay log and how much log is kept for each;
`--remove` unregisters one."""

from __future__ import annotations

import time
from pathlib import Path

from rich.table import Table

from penstock import config as configuration
from penstock.commands.terminal import cell, console, say, say_json
from penstock.errors import ConfigError, PenstockError
from penstock.printable import size_text
from penstock.relaylog import consumers as registry
from penstock.relaylog.holders import Holder, Holders
from penstock.relaylog.reader import RelayLog


def consumers(file: Path, *, remove: str | None, as_json: bool) -> None:
    folder = file if file.is_dir() else configuration.load(file).relay_log_path
    if not folder.is_dir():
        raise ConfigError(
            f"There is no relay log {folder} yet.", hint="Start the pipeline, or `penstock receive FILE`."
        )
    if remove is not None:
        gone = registry.remove(folder, remove)
        message = f"Removed {gone.name} ({gone.id}). No log is kept for it any more."
        say_json({"removed": gone.id, "name": gone.name}) if as_json else say(message)
        return
    holders = Holders(folder, _log(folder)).find()
    if as_json:
        say_json([holder.to_json() for holder in holders])
        return
    table = Table()
    for name in ("name", "kind", "running", "offset", "log kept", "oldest", "last seen", "id"):
        table.add_column(name, overflow="fold")
    for holder in holders:
        table.add_row(*map(cell, cells(holder)))
    console().print(table if holders else "No consumer is registered, so the whole relay log is kept.")


def cells(holder: Holder) -> tuple[str, ...]:
    one = holder.consumer
    seen = "" if one.updated is None else f"{age_text(time.time() - one.updated)} ago"
    return (
        one.name,
        one.kind if not one.damaged else f"damaged file: {one.damaged}",
        "yes" if one.alive else "no",
        str(one.offset),
        size_text(holder.bytes),
        "" if holder.seconds is None else age_text(holder.seconds),
        seen,
        one.id,
    )


def age_text(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _log(folder: Path) -> RelayLog | None:
    """Returns the relay log, or None if it cannot be read. Its consumers can still be listed and removed."""
    try:
        return RelayLog.open(folder)
    except (PenstockError, OSError):
        return None
