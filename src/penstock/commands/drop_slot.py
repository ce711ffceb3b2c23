"""`penstock drop-slot FILE`: ends what the source's server keeps for a pipeline that is given up."""

from __future__ import annotations

from pathlib import Path

from penstock import config as configuration
from penstock.commands.begin_again import ensure_agreed
from penstock.commands.terminal import say, say_json
from penstock.errors import ConfigError
from penstock.sources import registry


def drop_slot(file: Path, *, yes: bool, as_json: bool) -> None:
    """With `as_json` it never asks, and needs `yes`."""
    config = configuration.load(file)
    drop = registry.kind(config.source.type).drop_slot
    if drop is None:
        raise ConfigError(f"The source `{config.source.type}` has no replication slots.")
    ensure_agreed(
        "The pipeline cannot go on afterwards: a new run reads all tables again.", "Remove its slot?",
        yes=yes, as_json=as_json,
    )  # fmt: skip
    name = drop(config)
    if as_json:
        say_json({"slot": name})
    else:
        say("There is no slot." if name is None else f"The slot {name} is removed.")
