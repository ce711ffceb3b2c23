"""`penstock consumers FILE|RELAY_LOG`: lists the consumers of a relay log and how much log is kept for each;
`--remove` unregisters one."""

from __future__ import annotations

import time
from pathlib import Path

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
    out = console()
    if not holders:
        out.print("No consumer is registered, so the whole relay log is kept.")
    for holder in holders:
        out.print(cell(f"{holder.consumer.name}  {holder.consumer.id}", "bold"), soft_wrap=True)
        out.print(cell(f"  {described(holder)}"), soft_wrap=True)


def described(holder: Holder) -> str:
    """What is known of a consumer beside its name and id, as one line."""
    one = holder.consumer
    parts = [
        one.kind if not one.damaged else f"damaged file: {one.damaged}",
        "running" if one.alive else "not running",
        f"offset {one.offset}",
        f"{size_text(holder.bytes)} of log kept",
    ]
    if holder.seconds is not None:
        parts.append(f"oldest change {age_text(holder.seconds)} old")
    if one.updated is not None:
        parts.append(f"last seen {age_text(time.time() - one.updated)} ago")
    return ", ".join(parts)


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
