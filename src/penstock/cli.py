"""The command line. Each command is one function in `commands/`; here are only names, options and errors.

Exit codes: 0 done, 1 an error (one paragraph on stderr, or one JSON object with `--json`), 2 wrong usage, 3
somebody else holds what is needed (a relay log's lease), 4 tables are parked (`run --once`, `verify`,
`repair`), 5 a run that was told to stop did not end in time and was ended by force, 6 tables could not be
compared yet (`verify`, `repair`).
"""

from __future__ import annotations

import io
import json
import logging
import os
import socketserver
import sys
import threading
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock import __version__
from penstock import config as configuration
from penstock.errors import LeaseHeld, PenstockError, TablesParked
from penstock.failures.log_format import FORMAT, OneLine
from penstock.failures.messages import as_penstock_error
from penstock.printable import LogFormatter, printable, printable_json

log = logging.getLogger(__name__)

app = typer.Typer(
    help="Change data capture for Spark: MySQL into lake tables, exactly once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_pipeline_file: list[Path] = []
"""The pipeline file of this command, as soon as it is known."""


def _remember(file: Path) -> Path:
    _pipeline_file[:] = [file]
    return file


File = Annotated[
    Path, typer.Argument(help="The pipeline file (YAML).", show_default=False, callback=_remember)
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


@app.callback()
def _before_any_command(
    debug: Annotated[
        bool, typer.Option("--debug", help="Print stack traces, too (also: PENSTOCK_DEBUG=1).")
    ] = False,
) -> None:
    if debug:
        os.environ["PENSTOCK_DEBUG"] = "1"  # for the receiver's process, too
        _quiet()


@app.command()
def init(
    file: Annotated[Path, typer.Argument(help="The pipeline file to write.")] = Path("pipeline.yaml"),
    host: Annotated[str | None, typer.Option(help="Host of the MySQL or MariaDB server.")] = None,
    port: Annotated[int | None, typer.Option(help="Its port.", min=1, max=65535)] = None,
    user: Annotated[str | None, typer.Option(help="Account that reads its log and tables.")] = None,
    password_env: Annotated[
        str | None, typer.Option(help="Environment variable with the account's password.")
    ] = None,
    tables: Annotated[
        list[str] | None, typer.Option(help="Tables as database.table, with * and ?; may be repeated.")
    ] = None,
    sink: Annotated[str | None, typer.Option(help="iceberg, delta, parquet or console.")] = None,
    path: Annotated[str | None, typer.Option(help="Directory of the tables.")] = None,
    as_json: Json = False,
) -> None:
    """Write a first pipeline file for a server, with comments. At a terminal it asks for what is not given as
    an option. It looks at the server as `doctor` does, and never overwrites a file."""
    from penstock.commands.init import InitOptions
    from penstock.commands.init import init as command

    given = InitOptions(
        host=host, port=port, user=user, password_env=password_env, tables=tuple(tables or ()), sink=sink,
        path=path,
    )  # fmt: skip
    command(file, given, as_json=as_json)


@app.command()
def run(
    file: File,
    once: Annotated[bool, typer.Option(help="End when all that is committed now has arrived.")] = False,
    as_json: Json = False,
) -> None:
    """Run a pipeline: snapshot and stream, until SIGTERM or Ctrl-C."""
    from penstock.commands.run import run as command

    command(file, once=once, as_json=as_json)


@app.command()
def receive(
    file: File,
    child: Annotated[bool, typer.Option("--child", hidden=True)] = False,
    as_json: Json = False,
) -> None:
    """Run only the receiver: the source's log into the relay log, until SIGTERM or Ctrl-C."""
    from penstock.commands.receive import receive as command

    command(file, child=child)


@app.command()
def status(
    file: File,
    history: Annotated[
        bool, typer.Option("--history", help="Every change of a definition, and what was made of it.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Offset, lag, snapshot progress, and the state of each table."""
    from penstock.commands.status import status as command

    command(file, history=history, as_json=as_json)


@app.command()
def resnapshot(
    file: File,
    tables: Annotated[list[str], typer.Argument(help="Tables as database.table.", show_default=False)],
    recreate: Annotated[
        bool, typer.Option("--recreate", help="Drop and recreate the target first (default: merge into it).")
    ] = False,
    as_json: Json = False,
) -> None:
    """Read tables again from their beginning, for example after one was parked. A pipeline that does not run
    does it at its next start."""
    from penstock.commands.resnapshot import resnapshot as command

    command(file, tables, recreate=recreate, as_json=as_json)


@app.command()
def unpark(
    file: File,
    tables: Annotated[list[str], typer.Argument(help="Tables as database.table.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Bring parked tables back: from where they stopped if nothing is lost to them, else read from their
    beginning. A pipeline that does not run does it at its next start."""
    from penstock.commands.resnapshot import unpark as command

    command(file, tables, as_json=as_json)


@app.command()
def signal(
    file: File,
    kind: Annotated[
        str,
        typer.Argument(metavar="TYPE", help="execute-snapshot, park, … (`penstock signals FILE --types`)"),
    ],
    tables: Annotated[
        list[str] | None, typer.Argument(help="Tables as database.table; patterns too.", show_default=False)
    ] = None,
    where: Annotated[
        str | None, typer.Option(help="execute-snapshot: SQL, only rows for which it is true.")
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(help='execute-snapshot: only this key (JSON: 5, "x", [5, "x"]); may be repeated.'),
    ] = None,
    data: Annotated[str | None, typer.Option(help="The signal's data as JSON, instead of all these.")] = None,
    signal_id: Annotated[
        str | None, typer.Option("--id", help="An id that was sent before is not done again.")
    ] = None,
    wait: Annotated[bool, typer.Option(help="Wait until it is done (default: until it is begun).")] = False,
    as_json: Json = False,
) -> None:
    """Tell a pipeline to do something: read tables again, add one, pause, park … A pipeline that does not run
    does it when it runs."""
    from penstock.commands.signal import signal as command

    code = command(
        file,
        kind,
        tables or [],
        where=where,
        keys=key or [],
        data=data,
        signal_id=signal_id,
        wait=wait,
        as_json=as_json,
    )
    raise typer.Exit(code)


@app.command()
def signals(
    file: File,
    signal_id: Annotated[str | None, typer.Argument(metavar="ID", help="Only this one.")] = None,
    types: Annotated[bool, typer.Option("--types", help="The types there are, with their data.")] = False,
    as_json: Json = False,
) -> None:
    """Signals, and what became of them."""
    from penstock.commands.signal import signals as command

    command(file, signal_id, types=types, as_json=as_json)


@app.command()
def doctor(file: File, as_json: Json = False) -> None:
    """Check the source's settings, grants and tables, and print the SQL that mends them."""
    from penstock.commands.doctor import doctor as command

    raise typer.Exit(command(file, as_json=as_json))


@app.command()
def options(
    section: Annotated[
        str | None,
        typer.Argument(help="Only this section or option: snapshot, sink.path … (default: all)."),
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of pipeline files, for editors.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the options of a pipeline file: type, default, and what each is for."""
    from penstock.commands.options import options as command

    command(section, schema=schema, as_json=as_json)


@app.command()
def query(
    file: File,
    sql: Annotated[str, typer.Argument(help="A SELECT over the targets.", show_default=False)],
    limit: Annotated[int, typer.Option(help="Rows shown at most.")] = 100,
    as_json: Json = False,
) -> None:
    """Run SQL over the target tables."""
    from penstock.commands.query import query as command

    command(file, sql, limit=limit, as_json=as_json)


@app.command()
def inspect(
    paths: Annotated[list[Path], typer.Argument(help="Binlog files or relay logs.", show_default=False)],
    summary: Annotated[bool, typer.Option("--summary", help="Counts instead of changes.")] = False,
    table: Annotated[
        list[str] | None, typer.Option(help="Only this database.table; may be repeated.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Changes shown at most.", min=0)] = None,
    as_json: Json = False,
) -> None:
    """Show the changes in binlog files and relay logs, offline."""
    from penstock.commands.inspect import inspect as command

    code = command(paths, summary=summary, tables=table or [], limit=limit, as_json=as_json)
    raise typer.Exit(code)


@app.command()
def schema(
    files: Annotated[list[Path], typer.Argument(help="SQL files.", show_default=False)],
    server_version: Annotated[str, typer.Option(help="Such as 5.7.22, 8.0, 9.7, mariadb-10.11.")] = "8.0",
    database: Annotated[str, typer.Option(help="The database before any USE.")] = "test",
    as_json: Json = False,
) -> None:
    """Show the tables that SQL files make, without a server."""
    from penstock.commands.schema import schema as command

    raise typer.Exit(command(files, version=server_version, database=database, as_json=as_json))


@app.command()
def verify(
    file: File,
    tables: Annotated[list[str] | None, typer.Argument(help="Only these, as database.table.")] = None,
    as_json: Json = False,
) -> None:
    """Prove the targets equal to the source, or name the keys that differ."""
    from penstock.commands.verify import verify as command

    raise typer.Exit(command(file, tables or [], as_json=as_json))


@app.command()
def repair(
    file: File,
    tables: Annotated[list[str] | None, typer.Argument(help="Only these, as database.table.")] = None,
    as_json: Json = False,
) -> None:
    """Verify, then read again only the keys that differ. Run `verify` again to see that they are equal."""
    from penstock.commands.repair import repair as command

    raise typer.Exit(command(file, tables or [], as_json=as_json))


@app.command()
def compact(
    file: File,
    tables: Annotated[list[str] | None, typer.Argument(help="Only these, as database.table.")] = None,
    as_json: Json = False,
) -> None:
    """Write the targets' files again so that they are cheaper to read. The pipeline may run meanwhile."""
    from penstock.commands.compact import compact as command

    command(file, tables or [], as_json=as_json)


@app.command()
def consumers(
    file: Annotated[
        Path, typer.Argument(help="The pipeline file, or the directory of a relay log.", show_default=False)
    ],
    remove: Annotated[
        str | None,
        typer.Option(metavar="NAME_OR_ID", help="Forget this one, which does not run: keep no log for it."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Who reads a relay log, and how much of it is kept for each."""
    from penstock.commands.consumers import consumers as command

    command(file, remove=remove, as_json=as_json)


@app.command()
def prepare(
    sink: Annotated[list[str] | None, typer.Argument(help="iceberg, delta, parquet, console.")] = None,
    as_json: Json = False,
) -> None:
    """Fetch what Spark needs for these sinks (default: iceberg) and make it start faster. Optional."""
    from penstock.commands.prepare import prepare as command
    from penstock.sinks.registry import DEFAULT

    command(sink or [DEFAULT.name], as_json=as_json)


@app.command()
def demo(
    rows: Annotated[int, typer.Option(help="Rows of the shop before the pipeline starts.")] = 1_000_000,
    seconds: Annotated[float, typer.Option(help="How long the writer works at least.")] = 45,
    sink: Annotated[str, typer.Option(help="iceberg or delta.")] = "iceberg",
    keep: Annotated[bool, typer.Option("--keep", help="Keep state and warehouse, to look at.")] = False,
    as_json: Json = False,
) -> None:
    """See it work: a private MySQL under load into a lake table, killed twice, proven equal."""
    from penstock.commands.demo import demo as command
    from penstock.testing.demo import DemoOptions

    if sink not in ("iceberg", "delta"):
        raise typer.BadParameter(f"{sink!r} is not one of: iceberg, delta", param_hint="--sink")
    options = DemoOptions(rows=rows, seconds=seconds, sink=sink, keep=keep)  # type: ignore[arg-type]
    raise typer.Exit(command(options, as_json=as_json))


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


def main() -> None:
    """Entry point. Every error becomes one paragraph, or one JSON object. Stack traces go to a file, and to
    the terminal only if they are asked for (`--debug`, PENSTOCK_DEBUG)."""
    _quiet()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that lacks a character is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the core is no Exception
        if _debug():
            traceback.print_exception(error)
        sys.exit(fail(as_penstock_error(error, _state()), as_json="--json" in sys.argv))


def _state() -> Path | None:
    """Where the pipeline of this command keeps its logs."""
    try:
        return configuration.load(_pipeline_file[-1]).state if _pipeline_file else None
    except Exception:  # whatever is wrong with the file has been said, or is not what is to be said now
        return None


def _debug() -> bool:
    return os.environ.get("PENSTOCK_DEBUG", "") not in ("", "0")


def _quiet() -> None:
    """Log lines and errors of threads without stack traces."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter(FORMAT) if _debug() else OneLine(_state))
    logging.basicConfig(
        level=os.environ.get("PENSTOCK_LOG", "WARNING").upper(), handlers=[handler], force=True
    )
    # They print a stack trace of what we tell in one paragraph.
    for name in ("py4j.clientserver", "DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)

    def in_thread(arguments: threading.ExceptHookArgs) -> None:
        if arguments.exc_value is not None and arguments.exc_type is not SystemExit:
            log.error("a thread ended: %s", as_penstock_error(arguments.exc_value, _state()))

    def in_request(server: socketserver.BaseServer, request: object, address: object) -> None:
        """PySpark's server of accumulators ends so when its JVM is killed; that is told elsewhere."""
        if (error := sys.exc_info()[1]) is not None:
            log.info("a request of %s ended: %s", type(server).__name__, as_penstock_error(error, _state()))

    threading.excepthook = in_thread
    socketserver.BaseServer.handle_error = in_request  # type: ignore[method-assign, assignment]
    sys.unraisablehook = lambda found: log.debug("ignored: %s", type(found.exc_value).__name__)


def fail(error: PenstockError, *, as_json: bool) -> int:
    """Prints the error; the exit code."""
    if as_json:
        document: dict[str, Any] = error.to_json()
        print(printable_json(json.dumps(document, default=str)), file=sys.stderr)
    else:
        hint = f"\n{printable(error.hint, lines=True)}" if error.hint else ""
        print(f"penstock: {printable(error.message, lines=True)}{hint}", file=sys.stderr)
    if isinstance(error, TablesParked):
        return 4
    return 3 if isinstance(error, LeaseHeld) else 1
