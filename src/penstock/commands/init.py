"""`penstock init [FILE]`: checks a server and writes a commented pipeline file for it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
import yaml

from penstock import config as configuration
from penstock.commands.doctor import findings_of, show
from penstock.commands.terminal import say, say_json
from penstock.config.schema import SCHEMA_FILE
from penstock.errors import ConfigError, LoginRefused
from penstock.model.name import join_name, quote_part
from penstock.model.schema import TableId
from penstock.printable import argument, printable
from penstock.sinks import registry
from penstock.sources import registry as sources
from penstock.sources.first_file import FirstFile
from penstock.sources.kind import SourceKind
from penstock.sources.preflight import Finding

DATABASES_SHOWN_MAX = 20
"""Databases that the question for tables names. More do not fit a few lines of a terminal."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class InitOptions:
    """The options of the command. None means: ask at a terminal, otherwise use the default."""

    source: str | None = None
    host: str | None = None
    port: int | None = None
    user: str | None = None
    password_env: str | None = None
    database: str | None = None
    tables: tuple[str, ...] = ()
    sink: str | None = None
    path: str | None = None


@dataclass(frozen=True)
class Answers:
    """The values from which the file is written."""

    source: dict[str, Any]
    """The section of this name, without the password."""
    of_source: FirstFile
    variable: str
    """Name of the environment variable that holds the password."""
    tables: list[str]
    sink: str
    path: str | None


Ask = Callable[[str, str | None], str]
"""Takes a question and a default answer (None: an answer is required). Returns the answer."""


def init(file: Path, given: InitOptions, *, as_json: bool) -> None:
    """Checks the server, writes `file` and prints the next commands. Raises `ConfigError` if the file exists,
    or if a value is missing and nobody can be asked. Raises the errors of `connect` if the server cannot be
    reached. After an error, nothing is written."""
    refuse_existing(file)
    at_terminal = sys.stdin.isatty() and sys.stdout.isatty() and not as_json
    answers, password, found = gather(given, _ask if at_terminal else _take_default, hidden=at_terminal)
    text = pipeline_text(file, answers, found)
    config = configuration.parse(_document(text, password), where=str(file), base=file.resolve().parent)
    findings = findings_of(config)
    try:
        with open(file, "x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        refuse_existing(file)
    commands = next_commands(file, findings)
    missing = answers.variable not in os.environ
    if as_json:
        ok = not any(finding.level == "error" for finding in findings)
        report = [finding.to_json() for finding in findings]
        say_json({"file": str(file), "ok": ok, "findings": report, "next": commands})
        return
    show(findings)
    say(f"\nWritten: {file}. Next:\n", lines=True)
    for command in [*([f"export {answers.variable}=…"] if missing else []), *commands]:
        say(f"  {command}")


def refuse_existing(file: Path) -> None:
    if file.exists() or file.is_symlink():
        raise ConfigError(
            f"{file} exists already and was not changed.",
            hint="Give another name: penstock init OTHER.yaml",
        )


def gather(given: InitOptions, ask: Ask, *, hidden: bool) -> tuple[Answers, str, list[TableId]]:
    """Returns the answers, the account's password, and the tables that it sees at the server. `hidden`: it
    may ask for a password that is not in the environment, which is used only to check the server."""
    kind = _kind(given.source or ask(f"Source ({', '.join(_kinds())})", sources.DEFAULT))
    assert kind.first_file is not None
    of_source: FirstFile = kind.first_file()
    source = dict[str, Any](type=kind.name)
    source["host"] = given.host or ask(f"Host of the {of_source.server}", "127.0.0.1")
    source["port"] = given.port or _port(ask("Port", str(of_source.port)), of_source)
    if of_source.one_database:
        source["database"] = given.database or ask("Database (--database)", None)
    elif given.database:
        raise ConfigError(
            f"--database is not an option for {kind.name}.", hint=f"--tables '{given.database}.*' names them."
        )
    source["user"] = given.user or ask("Account that reads the log and the tables (--user)", None)
    variable = given.password_env or ask("Environment variable that holds its password", "PENSTOCK_PASSWORD")
    password = _password(variable, hidden=hidden)
    options = kind.options.model_validate({**source, "password": password})
    try:
        found = of_source.tables(options)
    except LoginRefused as error:
        raise LoginRefused(error.message, hint=" ".join((error.hint, *of_source.account))) from error
    tables = list(given.tables) or _tables(found, of_source, ask)
    sink = given.sink or ask(f"Sink ({', '.join(registry.names())})", registry.DEFAULT.name)
    has_path = "path" in registry.kind(sink).options.model_fields
    path = given.path or (ask("Directory of the tables", "lake") if has_path else None)
    return Answers(source, of_source, variable, tables, sink, path), password, found


def _kinds() -> list[str]:
    return [name for name in sources.names() if sources.kind(name).first_file is not None]


def _kind(name: str) -> SourceKind:
    kind = sources.kind(name)
    if kind.first_file is None:
        raise ConfigError(
            f"`penstock init` writes no file for the source {name}.",
            hint=f"The documentation has one to begin with. It can write for {' and '.join(_kinds())}.",
        )
    return kind


def _password(variable: str, *, hidden: bool) -> str:
    if _VARIABLE.fullmatch(variable) is None:
        raise ConfigError(
            f"{variable!r} is not a name for an environment variable.", hint="For example SHOP_PASSWORD."
        )
    password = os.environ.get(variable)
    if password is None and hidden:
        password = typer.prompt(f"{variable} is not set. Password, only to check the server", hide_input=True)
    if password is None:
        raise ConfigError(f"The environment variable {variable} is not set.", hint=f"export {variable}=…")
    return password


def _tables(found: list[TableId], of_source: FirstFile, ask: Ask) -> list[str]:
    patterns = {_all_of(table.database): None for table in found}
    if not patterns:
        raise ConfigError(
            "The account cannot see any table at this server.",
            hint=f"Grant it SELECT on each {of_source.schemas} that the pipeline reads.",
        )
    shown = ", ".join(map(printable, list(patterns)[:DATABASES_SHOWN_MAX]))
    default = next(iter(patterns)) if len(patterns) == 1 else None
    question = f"Tables, with * and ? (--tables); there are {shown}"
    return [name.strip() for name in ask(question, default).split(",") if name.strip()]


def _all_of(database: str) -> str:
    if any(character in database for character in ".*?`"):
        return f"{quote_part(database)}.*"
    return join_name(database, "*")


def _port(text: str, of_source: FirstFile) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 65535:
        raise ConfigError(
            f"{text!r} is not a port.",
            hint=f"A port is a number from 1 to 65535. A {of_source.server} has {of_source.port}.",
        )
    return int(text)


def _ask(question: str, default: str | None) -> str:
    return str(typer.prompt(question, default=default))


def _take_default(question: str, default: str | None) -> str:
    if default is None:
        raise ConfigError(
            f"`penstock init` needs an answer: {question}.",
            hint="Give it as an option, or run the command at a terminal, where it asks.",
        )
    return default


# the file ---------------------------------------------------------------------------------------------------


def pipeline_text(file: Path, answers: Answers, found: list[TableId]) -> str:
    """Returns the text of the pipeline file. Every value from outside is written as a YAML scalar on one
    line."""
    of_source, name = answers.of_source, pipeline_name(file)
    path = "" if answers.path is None else f"\n  path: {_scalar(answers.path)}{_PATH_COMMENT}"
    tables = "\n".join(f"  - {_scalar(pattern)}" for pattern in answers.tables)
    section = {one: value for one, value in answers.source.items() if (one, value) != _DEFAULT}
    return _FILE.format(
        schema=SCHEMA_FILE.as_uri(), command=printable(argument(file)), name=name, tables=tables,
        source="\n".join(f"  {one}: {_scalar(value)}" for one, value in section.items()),
        account="\n".join(f"#   {line}" for line in of_source.account), schemas=of_source.schemas,
        hints="\n".join(f"  # {line}" for line in of_source.hints), replicas=of_source.replicas,
        variable=answers.variable, seen=len(found), sink=_scalar(answers.sink), path=path,
    )  # fmt: skip


def pipeline_name(file: Path) -> str:
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", file.name.removesuffix(".yaml").removesuffix(".yml"))[:63]
    return name if re.match(r"[A-Za-z]", name) else "pipeline"


def next_commands(file: Path, findings: list[Finding]) -> list[str]:
    name = argument(file)
    if any(finding.level == "error" for finding in findings):  # after the SQL that was printed has been run
        return [f"penstock doctor {name}", f"penstock run {name}"]
    return [f"penstock run {name}", f"penstock status {name}"]


def _document(text: str, password: str) -> Any:
    document = yaml.safe_load(text)
    document["source"]["password"] = password
    return document


def _scalar(value: str | int) -> str:
    written = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=False)
    return written.removesuffix("...\n").strip()


_DEFAULT = ("type", sources.DEFAULT)
_PATH_COMMENT = "                  # relative paths count from this file's folder"

_FILE = """\
# yaml-language-server: $schema={schema}
#
# A Penstock pipeline. `penstock options` explains every option; this file has those that most pipelines need.
#   penstock doctor {command}    checks the server, and prints the SQL that fixes what is wrong
#   penstock run {command}       runs the pipeline until Ctrl-C; start it again at any time
#   penstock status {command}    shows its progress, from another terminal

name: {name}

# The server to copy from. The account needs
{account}
source:
{source}
  password: ${{{variable}}}       # taken from the environment at each start; do not write it here
{hints}

# Tables as {schemas}.table, with * and ?. New tables that match are captured, too. Number of tables that the
# account saw at the server when this file was written: {seen}
tables:
{tables}

# Where the tables are written, with the source's columns and `_sequence`.
sink:
  type: {sink}{path}

# The pipeline's state, and its copy of the source's log. Keep it on local disk. A pipeline that loses it
# reads its tables again.
state: state/{name}

# How much load the snapshot may put on the server. These are the defaults.
# snapshot:
#   parallel: 2                  # chunks read at once, each over a connection of its own
#   rows_per_second: 0           # 0: no limit
#   hosts: []                    # {replicas} host:port to read the tables from instead
"""
