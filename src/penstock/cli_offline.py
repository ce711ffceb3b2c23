"""Commands that need no pipeline: on binlog files, relay logs and SQL files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock import __version__


def _version_if(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
Version = Annotated[
    bool, typer.Option("--version", callback=_version_if, is_eager=True, help="Print the version and exit.")
]


def inspect(
    paths: Annotated[
        list[str],
        typer.Argument(
            help="Binlog files, relay logs, pipeline files, or URLs of archives.", show_default=False
        ),
    ],
    summary: Annotated[bool, typer.Option("--summary", help="Show counts instead of changes.")] = False,
    table: Annotated[
        list[str] | None, typer.Option(help="Show only this database.table. May be repeated.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Maximum number of changes shown.", min=0)] = None,
    as_json: Json = False,
) -> None:
    """Show the changes in binlog files and relay logs, offline."""
    from penstock.commands.inspect import inspect as command

    code = command(paths, summary=summary, tables=table or [], limit=limit, as_json=as_json)
    raise typer.Exit(code)


def encode(
    paths: Annotated[
        list[str],
        typer.Argument(
            help="Binlog files, relay logs, pipeline files, or URLs of archives.", show_default=False
        ),
    ],
    format: Annotated[
        str, typer.Option(help="json, maxwell, debezium, canal, cloudevents, avro or protobuf.")
    ] = "json",
    option: Annotated[
        list[str] | None, typer.Option(help="An option of the format, as name=value. May be repeated.")
    ] = None,
    ddl: Annotated[
        list[Path] | None, typer.Option(help="SQL file that defines the tables where the log begins.")
    ] = None,
    ddl_version: Annotated[
        str, typer.Option(help="Version for --ddl, such as 5.7.22, 8.0 or mariadb-10.11.")
    ] = "8.0",
    server: Annotated[
        str | None, typer.Option(help="mysql://user@host:port, whose catalog defines the tables.")
    ] = None,
    table: Annotated[
        list[str] | None, typer.Option(help="Only this database.table. May be repeated.")
    ] = None,
    keys: Annotated[
        bool, typer.Option("--keys", help="Print each message's key and a tab before it.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print the changes in binlog files and relay logs as messages of a format, one a line, offline."""
    from penstock.commands.encode import encode as command

    code = command(
        paths, format=format, options=option or [], ddl=ddl or [], ddl_version=ddl_version, server=server,
        tables=table or [], keys=keys, as_json=as_json,
    )  # fmt: skip
    raise typer.Exit(code)


def schema(
    files: Annotated[list[Path], typer.Argument(help="SQL files.", show_default=False)],
    server_version: Annotated[
        str, typer.Option(help="Version, such as 5.7.22, 8.0, 9.7 or mariadb-10.11.")
    ] = "8.0",
    database: Annotated[str, typer.Option(help="The current database at the start of each file.")] = "test",
    as_json: Json = False,
) -> None:
    """Show the tables that SQL files create, without a server."""
    from penstock.commands.schema import schema as command

    raise typer.Exit(command(files, version=server_version, database=database, as_json=as_json))


def version() -> None:
    """Print the version."""
    print(__version__)
