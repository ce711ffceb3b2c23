"""The command line: names, options and errors. Each command is one function in `commands/`.

Exit codes: 0 success; 1 an error (one paragraph on stderr, or one JSON object with `--json`); 2 wrong usage;
3 another process holds the relay log's lease; 4 tables are parked (`run --once`, `verify`, `repair`); 5 a run
was told to stop, did not end in time, and was ended by force; 6 `verify` or `repair` did not compare all.
"""

from __future__ import annotations

import io
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock import config as configuration
from penstock.cli_cluster import cluster
from penstock.cli_file import File, pipeline_file
from penstock.cli_logging import is_debug, prints_json, quiet
from penstock.cli_offline import Json, Version, encode, inspect, schema, version
from penstock.cli_state import COMMANDS as OF_STATES
from penstock.disk import open_files
from penstock.errors import LeaseHeld, PenstockError, TablesParked
from penstock.failures.messages import as_penstock_error
from penstock.printable import printable, printable_json

# Groups of commands in `penstock --help`.
START, RUN, WATCH = "Start", "Run", "Watch, query and verify"
ACT, OFFLINE = "Tell a pipeline what to do", "Read files, without a server"

app = typer.Typer(
    help="Copy every change of MySQL or MariaDB into lake tables, Kafka, SQL databases and more, with Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


@app.callback()
def _before_any_command(
    debug: Annotated[bool, typer.Option("--debug", help="Print stack traces (PENSTOCK_DEBUG=1).")] = False,
    version: Version = False,
) -> None:
    if debug:
        os.environ["PENSTOCK_DEBUG"] = "1"  # the receiver's process inherits it
        quiet(_state)


@app.command(rich_help_panel=START)
def init(
    file: Annotated[Path, typer.Argument(help="The pipeline file to write.")] = Path("pipeline.yaml"),
    source: Annotated[str | None, typer.Option(help="mysql (MariaDB, too) or postgresql.")] = None,
    host: Annotated[str | None, typer.Option(help="Host of the database server.")] = None,
    port: Annotated[int | None, typer.Option(help="Port of the server.", min=1, max=65535)] = None,
    user: Annotated[str | None, typer.Option(help="Account that reads the log and the tables.")] = None,
    password_env: Annotated[
        str | None, typer.Option(help="Environment variable that holds the account's password.")
    ] = None,
    database: Annotated[str | None, typer.Option(help="PostgreSQL's database.")] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(help="Tables as database.table or schema.table, with * and ?. May be repeated."),
    ] = None,
    sink: Annotated[str | None, typer.Option(help="iceberg, delta, parquet or console.")] = None,
    path: Annotated[str | None, typer.Option(help="Directory of the tables.")] = None,
    as_json: Json = False,
) -> None:
    """Write a commented pipeline file for a server. At a terminal, asks for values that are not given as
    options. Checks the server as `penstock doctor` does. Never overwrites a file."""
    from penstock.commands.init import InitOptions
    from penstock.commands.init import init as command

    given = InitOptions(
        source=source, host=host, port=port, user=user, password_env=password_env, database=database,
        tables=tuple(tables or ()), sink=sink, path=path,
    )  # fmt: skip
    command(file, given, as_json=as_json)


@app.command(rich_help_panel=RUN)
def run(
    file: File,
    once: Annotated[
        bool, typer.Option(help="End once everything committed so far is at the targets.")
    ] = False,
    child: Annotated[bool, typer.Option("--child", hidden=True)] = False,
    as_json: Json = False,
) -> None:
    """Run a pipeline: snapshot and stream, until SIGTERM or Ctrl-C."""
    from penstock.commands.run import run as command

    command(file, once=once, as_json=as_json, child=child)


@app.command(rich_help_panel=RUN)
def receive(
    file: File,
    child: Annotated[bool, typer.Option("--child", hidden=True)] = False,
    start_place: Annotated[str | None, typer.Option("--start-place", hidden=True)] = None,
    source: Annotated[str, typer.Option(help="With a server's file: one of its `sources`.")] = "",
    as_json: Json = False,
) -> None:
    """Run only the receiver, which copies the source's log into the relay log, until SIGTERM or Ctrl-C."""
    from penstock.commands.receive import receive as command

    command(file, child=child, start_place=start_place, source=source)


@app.command(rich_help_panel=RUN)
def serve(
    file: Annotated[Path, typer.Argument(help="The server's file (YAML).", show_default=False)],
    check: Annotated[bool, typer.Option("--check", help="Only check the file and the addresses.")] = False,
    as_json: Json = False,
) -> None:
    """Serve a relay log to clients of Canal, until SIGTERM or Ctrl-C."""
    from penstock.commands.serve import serve as command

    command(file, check=check, as_json=as_json)


@app.command(rich_help_panel=WATCH)
def status(
    file: File,
    history: Annotated[
        bool, typer.Option("--history", help="List every schema change and what the pipeline did about it.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show offset, lag, snapshot progress and the state of each table."""
    from penstock.commands.status import status as command

    command(file, history=history, as_json=as_json)


@app.command(rich_help_panel=ACT)
def resnapshot(
    file: File,
    tables: Annotated[list[str], typer.Argument(help="Tables as database.table.", show_default=False)],
    recreate: Annotated[
        bool, typer.Option("--recreate", help="Drop and recreate the target first (default: merge into it).")
    ] = False,
    as_json: Json = False,
) -> None:
    """Take a new snapshot of tables, for example after one was parked. If the pipeline is not running, it
    does so at its next start."""
    from penstock.commands.resnapshot import resnapshot as command

    command(file, tables, recreate=recreate, as_json=as_json)


@app.command(rich_help_panel=ACT)
def unpark(
    file: File,
    tables: Annotated[list[str], typer.Argument(help="Tables as database.table.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Bring parked tables back. A table continues where it stopped if none of its changes are lost; otherwise
    it gets a new snapshot. If the pipeline is not running, it does so at its next start."""
    from penstock.commands.resnapshot import unpark as command

    command(file, tables, as_json=as_json)


@app.command(rich_help_panel=ACT)
def signal(
    file: File,
    kind: Annotated[
        str,
        typer.Argument(metavar="TYPE", help="execute-snapshot, park, … (`penstock signals FILE --types`)"),
    ],
    tables: Annotated[
        list[str] | None, typer.Argument(help="Tables as database.table, with * and ?.", show_default=False)
    ] = None,
    where: Annotated[
        str | None, typer.Option(help="execute-snapshot: read only rows that meet this SQL condition.")
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(help='execute-snapshot: read only this key (JSON: 5, "x", [5, "x"]). May be repeated.'),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="The signal's data as JSON, instead of tables and options.")
    ] = None,
    signal_id: Annotated[
        str | None, typer.Option("--id", help="The signal's id. A signal whose id is known is ignored.")
    ] = None,
    wait: Annotated[
        bool, typer.Option(help="Wait until the signal has ended (default: until it has started).")
    ] = False,
    as_json: Json = False,
) -> None:
    """Send a signal to a pipeline: read tables again, add one, pause, park … If the pipeline is not running,
    it acts at its next start."""
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


@app.command(rich_help_panel=ACT)
def signals(
    file: File,
    signal_id: Annotated[str | None, typer.Argument(metavar="ID", help="Show only this signal.")] = None,
    types: Annotated[bool, typer.Option("--types", help="List the types of signals and their data.")] = False,
    as_json: Json = False,
) -> None:
    """List signals and their results."""
    from penstock.commands.signal import signals as command

    command(file, signal_id, types=types, as_json=as_json)


@app.command(rich_help_panel=START)
def doctor(file: File, as_json: Json = False) -> None:
    """Check the source's settings, grants and tables, and print the SQL that fixes what is wrong. Try the
    sink's catalog and store."""
    from penstock.commands.doctor import doctor as command

    raise typer.Exit(command(file, as_json=as_json))


@app.command(rich_help_panel=START)
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
    """Show the options of a pipeline file with their types, defaults and descriptions."""
    from penstock.commands.options import options as command

    command(section, schema=schema, as_json=as_json)


@app.command(rich_help_panel=START)
def docs(
    page: Annotated[str | None, typer.Argument(help="The page; without one, lists the pages.")] = None,
    as_json: Json = False,
) -> None:
    """Show a page of the documentation."""
    from penstock.commands.docs import docs as command

    command(page, as_json=as_json)


@app.command(rich_help_panel=WATCH)
def query(
    file: File,
    sql: Annotated[str, typer.Argument(help="A SELECT over the targets.", show_default=False)],
    limit: Annotated[int, typer.Option(help="Maximum number of rows shown.")] = 100,
    as_json: Json = False,
) -> None:
    """Run SQL over the target tables."""
    from penstock.commands.query import query as command

    command(file, sql, limit=limit, as_json=as_json)


@app.command(name="snapshot-at", rich_help_panel=WATCH)
def snapshot_at(
    file: File,
    offset: Annotated[
        int | None, typer.Argument(help="An offset of the relay log; its end, if there is none.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print versions of all targets that show one place of the source's log."""
    from penstock.commands.snapshot_at import snapshot_at as command

    command(file, offset, as_json=as_json)


@app.command(name="wait-until", rich_help_panel=WATCH)
def wait_until(
    file: File,
    table: Annotated[str, typer.Argument(help="database.table", show_default=False)],
    until: Annotated[
        str, typer.Argument(help="A time such as 2026-11-25T18:00:00+00:00, or now: the source's time.")
    ] = "now",
    timeout: Annotated[float | None, typer.Option(help="Seconds to wait at most.")] = None,
    as_json: Json = False,
) -> None:
    """Wait until a target has everything that was committed at the source up to a time."""
    from penstock.commands.wait_until import wait_until as command

    command(file, table, until, timeout=timeout, as_json=as_json)


for offline in (inspect, encode, schema):
    app.command(rich_help_panel=OFFLINE)(offline)
for of_state in OF_STATES:
    app.command(rich_help_panel=ACT)(of_state)
app.add_typer(cluster, name="cluster", rich_help_panel=RUN)


@app.command(rich_help_panel=WATCH)
def verify(
    file: File,
    tables: Annotated[list[str] | None, typer.Argument(help="Only these, as database.table.")] = None,
    as_json: Json = False,
) -> None:
    """Prove that the targets equal the source, or list the keys that differ."""
    from penstock.commands.verify import verify as command

    raise typer.Exit(command(file, tables or [], as_json=as_json))


@app.command(rich_help_panel=ACT)
def repair(
    file: File,
    tables: Annotated[list[str] | None, typer.Argument(help="Only these, as database.table.")] = None,
    as_json: Json = False,
) -> None:
    """Verify, then read the keys that differ again. Run `verify` afterwards to confirm that they are
    equal."""
    from penstock.commands.repair import repair as command

    raise typer.Exit(command(file, tables or [], as_json=as_json))


@app.command(rich_help_panel=ACT)
def compact(
    file: File,
    tables: Annotated[list[str] | None, typer.Argument(help="Only these, as database.table.")] = None,
    as_json: Json = False,
) -> None:
    """Rewrite the targets' files so that reads get cheaper. The pipeline may keep running."""
    from penstock.commands.compact import compact as command

    command(file, tables or [], as_json=as_json)


@app.command(rich_help_panel=WATCH)
def consumers(
    file: Annotated[
        Path, typer.Argument(help="The pipeline file, or the directory of a relay log.", show_default=False)
    ],
    remove: Annotated[
        str | None,
        typer.Option(
            metavar="NAME_OR_ID",
            help="Unregister this consumer, which must not be running. No log is kept for it any more.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the consumers of a relay log and how much log is kept for each."""
    from penstock.commands.consumers import consumers as command

    command(file, remove=remove, as_json=as_json)


@app.command(rich_help_panel=START)
def prepare(
    targets: Annotated[
        list[str] | None, typer.Argument(help="Pipeline files, or iceberg, delta, parquet, console.")
    ] = None,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Also pack the Python packages that a cluster's workers get.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Download what Spark needs for pipeline files, or for sinks (default: iceberg), and make Spark start
    faster. Optional."""
    from penstock.commands.prepare import prepare as command
    from penstock.sinks.registry import DEFAULT

    command(targets or [DEFAULT.name], cluster=cluster, as_json=as_json)


@app.command(rich_help_panel=START)
def demo(
    rows: Annotated[
        int | None, typer.Option(help="Number of rows loaded at first: 1,000,000, with --canal 20,000.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Minimum number of seconds that the writer runs.")] = 45,
    canal: Annotated[
        bool,
        typer.Option("--canal", help="Let Canal's Java client rebuild the tables from `penstock serve`."),
    ] = False,
    source: Annotated[str, typer.Option(help="mysql or postgresql.")] = "mysql",
    sink: Annotated[str, typer.Option(help="iceberg, delta or kafka.")] = "iceberg",
    lake: Annotated[
        str, typer.Option(help="local, or s3: a private S3 server with a REST catalog, for Iceberg.")
    ] = "local",
    cluster: Annotated[
        bool,
        typer.Option("--cluster", help="Run tasks on a private Spark cluster, which implies --lake s3."),
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the pipeline's state and the warehouse afterwards.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Copy a private server under load into lake tables, kill parts of the pipeline, and verify the
    result."""
    from penstock.commands.demo import demo as command
    from penstock.testing.demo import DemoOptions

    if canal:
        from penstock.commands.demo import canal_demo

        raise typer.Exit(canal_demo(rows, seconds, as_json=as_json))
    if source not in ("mysql", "postgresql"):
        raise typer.BadParameter(f"{source!r} is not one of: mysql, postgresql", param_hint="--source")
    if sink not in ("iceberg", "delta", "kafka"):
        raise typer.BadParameter(f"{sink!r} is not one of: iceberg, delta, kafka", param_hint="--sink")
    if sink == "kafka" and (cluster or keep or lake != "local"):
        raise typer.BadParameter("kafka goes without --lake, --cluster and --keep", param_hint="--sink")
    if sink == "kafka" and source != "mysql":
        raise typer.BadParameter("kafka goes only with --source mysql", param_hint="--sink")
    if lake not in ("local", "s3"):
        raise typer.BadParameter(f"{lake!r} is not one of: local, s3", param_hint="--lake")
    lake = "s3" if cluster else lake
    if lake == "s3" and keep:
        raise typer.BadParameter("s3 goes without --keep", param_hint="--lake")
    options = DemoOptions(
        rows=1_000_000 if rows is None else rows,
        seconds=seconds,
        source=source,  # type: ignore[arg-type]
        sink=sink,  # type: ignore[arg-type]
        lake=lake,  # type: ignore[arg-type]
        cluster=cluster,
        keep=keep,
    )
    raise typer.Exit(command(options, as_json=as_json))


app.command(rich_help_panel=START)(version)


def main() -> None:
    """Runs the command line. Prints every error as one paragraph, or as one JSON object with `--json`. Stack
    traces go to a file, and to the terminal only with `--debug` or PENSTOCK_DEBUG."""
    quiet(_state)
    open_files.allow_more()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a character that the terminal cannot show is not an error
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the core is not an Exception
        if is_debug():
            traceback.print_exception(error)
        sys.exit(fail(as_penstock_error(error, _state()), as_json=prints_json()))


def _state() -> Path | None:
    """Returns the state directory of this command's pipeline, or None if it is not known."""
    try:
        return configuration.load(pipeline_file[-1]).state if pipeline_file else None
    except Exception:  # an error in the file must not hide the error that is being reported
        return None


def fail(error: PenstockError, *, as_json: bool) -> int:
    """Prints the error to stderr. Returns the exit code."""
    if as_json:
        document: dict[str, Any] = error.to_json()
        print(printable_json(json.dumps(document, default=str)), file=sys.stderr)
    else:
        hint = f"\n{printable(error.hint, lines=True)}" if error.hint else ""
        print(f"penstock: {printable(error.message, lines=True)}{hint}", file=sys.stderr)
    if isinstance(error, TablesParked):
        return 4
    return 3 if isinstance(error, LeaseHeld) else 1
