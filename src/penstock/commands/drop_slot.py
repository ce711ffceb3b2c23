"""`penstock drop-slot FILE`: ends what the source's server keeps for a pipeline that is given up."""

from __future__ import annotations

from pathlib import Path

from penstock import config as configuration
from penstock.commands.begin_again import ask
from penstock.commands.terminal import say, say_json
from penstock.errors import ConfigError
from penstock.sources import registry


def drop_slot(file: Path, *, yes: bool, as_json: bool) -> None:
    """With `as_json` it never asks, and needs `yes`."""
    config = configuration.load(file)
    drop = registry.kind(config.source.type).drop_slot
    if drop is None:
        raise ConfigError(f"The source `{config.source.type}` has no replication slots.")
    if as_json and not yes:
        raise ConfigError("Nothing was removed.", hint="With `--json`, say `--yes`, too.")
    if not yes:
        say("The pipeline cannot go on afterwards: a new run reads all tables again.")
        ask("Remove its slot?")
    name = drop(config)
    if as_json:
        say_json({"slot": name})
    else:
        say("There is no slot." if name is None else f"The slot {name} is removed.")
