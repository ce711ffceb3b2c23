"""`penstock adopt-server FILE`: the source's server has become another one, which has all of its rows."""

from __future__ import annotations

from pathlib import Path

from penstock import config as configuration
from penstock.commands.begin_again import ensure_agreed
from penstock.commands.terminal import say, say_json
from penstock.errors import ConfigError
from penstock.sources import registry


def adopt_server(file: Path, *, yes: bool, as_json: bool) -> None:
    """With `as_json` it never asks, and needs `yes`."""
    config = configuration.load(file)
    adopt = registry.kind(config.source.type).adopt_server
    if adopt is None:
        raise ConfigError(f"A pipeline with the source `{config.source.type}` needs no such command.")
    ensure_agreed(
        "If somebody has made another slot of its name since, what was written before that is lost.",
        "Is the slot the one that `pg_upgrade` has copied?", yes=yes, as_json=as_json,
    )  # fmt: skip
    found = adopt(config)
    if as_json:
        say_json(found)
        return
    same, changed = found["same"], found["changed"]
    say(f"The pipeline goes on at the server {found['server']}, from {found['position']}.")
    say(f"{same} tables are the same, {changed} differ. `penstock verify` compares the targets.")
