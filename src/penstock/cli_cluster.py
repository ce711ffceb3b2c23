"""Commands about subscription servers that share destinations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli_offline import Json

cluster = typer.Typer(help="Subscription servers that share destinations.", no_args_is_help=True)


@cluster.callback()
def _cluster() -> None: ...


@cluster.command()
def status(
    file: Annotated[Path, typer.Argument(help="The file of a server (YAML).", show_default=False)],
    as_json: Json = False,
) -> None:
    """Show which server serves which destination, and how far behind clients are."""
    from penstock.commands.cluster import status as command

    command(file, as_json=as_json)
