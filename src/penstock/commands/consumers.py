"""`penstock consumers FILE|RELAY_LOG`: who keeps how much of a relay log, and who shall not any more."""

from __future__ import annotations

import time
from pathlib import Path

from rich.table import Table

from penstock import config as configuration
from penstock.commands.run import size_text
from penstock.commands.terminal import cell, console, say, say_json
from penstock.errors import ConfigError, PenstockError
from penstock.relaylog import consumers as registry
from penstock.relaylog.holders import Holder, Holders
from penstock.relaylog.reader import RelayLog


def consumers(file: Path, *, remove: str | None, as_json: bool) -> None:
    folder = file if file.is_dir() else configuration.load(file).relay_log_path
    if not folder.is_dir():
        raise ConfigError(f"There is no relay log {folder} yet.", hint="Start the pipeline, or the receiver.")
    if remove is not None:
        gone = registry.remove(folder, remove)
        told = f"{gone.name} ({gone.id}) is forgotten: no log is kept for it any more."
        say_json({"removed": gone.id, "name": gone.name}) if as_json else say(told)
        return
    holders = Holders(folder, _log(folder)).find()
    if as_json:
        say_json([holder.to_json() for holder in holders])
        return
    table = Table()
    for name in ("name", "kind", "running", "offset", "holds", "oldest", "last seen", "id"):
        table.add_column(name, overflow="fold")
    for holder in holders:
        table.add_row(*map(cell, cells(holder)))
    console().print(table if holders else "Nobody has read this relay log yet; all of it is kept.")


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
    """None: it cannot be read, but consumers can be listed and removed all the same."""
    try:
        return RelayLog.open(folder)
    except (PenstockError, OSError):
        return None
