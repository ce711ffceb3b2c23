"""Commands for a pipeline's state as a whole: when it is lost, unwanted, or to be elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli_file import File
from penstock.cli_offline import Json

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def adopt(
    file: File,
    pipeline: Annotated[
        str | None, typer.Option(help="UUID of the owner, if the targets have several.", show_default=False)
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Take over the targets of a pipeline whose state is lost. The next run reads all tables again, and the
    targets keep their rows meanwhile. Shows the targets and asks first."""
    from penstock.commands.begin_again import adopt as command

    command(file, pipeline=pipeline, yes=yes, as_json=as_json)


def reset(file: File, yes: Yes = False, as_json: Json = False) -> None:
    """Forget the state and the relay log of a stopped pipeline, and keep its targets. The next run reads all
    tables again. Shows what it deletes and asks first."""
    from penstock.commands.begin_again import reset as command

    command(file, yes=yes, as_json=as_json)


def move(
    file: File,
    to: Annotated[Path, typer.Option(help="A new directory for state and relay log.", show_default=False)],
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Copy the state and the relay log of a stopped pipeline to another place, for this or another machine.
    The pipeline cannot be started at the old place any more."""
    from penstock.commands.move import move as command

    command(file, to, yes=yes, as_json=as_json)


def drop_slot(file: File, yes: Yes = False, as_json: Json = False) -> None:
    """Remove the replication slot of a pipeline that is given up: the server keeps its log for it. Asks
    first."""
    from penstock.commands.drop_slot import drop_slot as command

    command(file, yes=yes, as_json=as_json)


def adopt_server(file: File, yes: Yes = False, as_json: Json = False) -> None:
    """Go on at the server that `pg_upgrade` has made of the one that a stopped pipeline follows, without
    reading tables again. Checks what can be checked, and asks first."""
    from penstock.commands.adopt_server import adopt_server as command

    command(file, yes=yes, as_json=as_json)


COMMANDS = (adopt, reset, move, drop_slot, adopt_server)
