"""`penstock move FILE --to DIR`: copies state and relay log to another place, and closes the old one."""

from __future__ import annotations

from pathlib import Path

from penstock import config as configuration
from penstock.commands.begin_again import ask
from penstock.commands.terminal import say, say_json
from penstock.commands.working import Working
from penstock.errors import ConfigError
from penstock.printable import size_text
from penstock.runtime.fresh_state import stopped
from penstock.runtime.move import move as run
from penstock.state import StateStore


def move(file: Path, to: Path, *, yes: bool, as_json: bool) -> None:
    """Moves the pipeline of a file, with all its sinks if there are several. `yes`: does not ask."""
    config, several = configuration.load_several(file)
    members = list(several.values())
    if "#" in file.name and not file.exists():
        raise ConfigError(
            "One of several sinks cannot be moved alone, because they share the relay log.",
            hint="Name the file without `#…`: all of them move together.",
        )
    if not any(StateStore.exists(one.state) for one in members or [config]):
        raise ConfigError(f"There is no state in {config.state}, so there is nothing to move.")
    to = to.absolute()
    with stopped([config, *members]):
        if not as_json:
            say(
                f"The pipeline {config.name} moves from {config.state} to {to}. It will not start here again."
            )
        if not yes:
            ask("Go on?")
        with Working("copying"):
            moved = run(config, members, to)
    relay = None if moved.relay_log is None else str(moved.relay_log)
    if as_json:
        say_json(
            {"state": str(moved.state), "relay_log": relay, "files": moved.files, "bytes": moved.bytes,
             "stays": list(moved.stays)}
        )  # fmt: skip
        return
    say(f"Copied and compared {moved.files:,} files, {size_text(moved.bytes)}. In the pipeline file:")
    say(f"  state: {moved.state}")
    if relay is not None:
        say(f"  relay_log: {{path: {relay}}}")
    for one in moved.stays:
        say(f"It also needs {one}. That was not copied.")
