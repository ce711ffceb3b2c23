"""`penstock encode PATH… --format FORMAT`: prints the changes in files of a log and in relay logs as messages
of a format, one a line, offline.

Messages are printed transaction by transaction, in bounded memory. Messages of binary formats are printed in
Base64. A schema is printed as a JSON object before the first message that uses it. A damaged file, or a table
that cannot be decoded, ends the command with exit code 1. All messages before it are printed.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock._core import DecodeError, LogEncoder, SchemaMismatch
from penstock.commands.inspect import log_files, relay_log_of
from penstock.commands.log_definitions import LogDefinitions
from penstock.commands.table_arguments import table_named
from penstock.commands.terminal import say, say_json
from penstock.encode.options import BINARY_FORMATS, check_format, options_json
from penstock.encode.statements import missing_rows, statement_messages
from penstock.errors import ConfigError
from penstock.model.offset import LogRange
from penstock.model.schema import TableId
from penstock.printable import printable, printable_json
from penstock.relaylog.log_parts import parts_of

if TYPE_CHECKING:
    from penstock._core import LogPart
    from penstock.commands.encode_definitions import Definitions

_BYTES_PER_STEP = 1 << 20
"""Bytes of messages that the encoder returns at once: few calls, and little memory."""


def encode(
    paths: Sequence[str], *, format: str, options: Sequence[str], ddl: Sequence[Path], ddl_version: str,
    server: str | None, tables: Sequence[str], keys: bool, as_json: bool,
) -> int:  # fmt: skip
    """Prints the messages. Returns the exit code."""
    if ddl and server:
        raise ConfigError("`--ddl` and `--server` both say how tables are defined.", hint="Give one of them.")
    text = options_json(options)
    check_format(format, text)
    parts = [part for path in paths for part in log_parts(path)]

    def of_sql() -> Definitions:
        from penstock.commands import encode_definitions as sql

        if ddl:
            return sql.OfSqlFiles(ddl, ddl_version)
        return sql.OfServer(server, parts) if server else sql.OfTheLog(parts)

    definitions = LogDefinitions(of_sql, given=bool(ddl or server))
    chosen = [table_named(name) for name in tables]
    encoder = LogEncoder(
        parts, format, options=text, schemas=definitions.schemas(),
        tables=[(table.database, table.table) for table in chosen],
    )  # fmt: skip
    try:
        _print(encoder, format, text, definitions, keys=keys)
    except DecodeError as error:
        sys.stdout.flush()
        reason = error.reason
        if isinstance(error, SchemaMismatch) and error.lacks == "names":
            reason += f". {definitions.cure(error.table)}"
        _complain(error, reason, as_json=as_json)
        return 1
    except BrokenPipeError:
        # The reader of our output has closed it. Nothing more may be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def log_parts(name: str) -> list[LogPart]:
    """The parts of a path: a file of a log, a folder of them, a relay log, or the URL of its archive."""
    if (log := relay_log_of(name)) is not None:
        return parts_of(log, LogRange(log.start, log.end))
    return [(file.bytes(), file.base, 0, file.end, []) for file in log_files(name)]


def _print(
    encoder: LogEncoder, format: str, options: str, definitions: LogDefinitions, *, keys: bool
) -> None:
    binary, schemas = format in BINARY_FORMATS, 0
    while (step := encoder.read(_BYTES_PER_STEP)) is not None:
        if isinstance(step, list):
            for statement in step:
                _note(statement)
                changes = definitions.follow(encoder, statement)
                for message in statement_messages(format, options, statement, changes):
                    _write_message(*message, keys=keys, binary=binary)
        else:
            if binary:
                schemas = _print_schemas(encoder, schemas)
            _write(step.lines(keys, base64=binary))
    sys.stdout.flush()


def _print_schemas(encoder: LogEncoder, known: int) -> int:
    """Prints the schemas behind the first `known` ones. Returns how many there are."""
    schemas = encoder.message_schemas
    for schema in schemas[known:]:
        table = None if schema["table"] is None else str(TableId(*schema["table"]))
        line = json.dumps({"id": schema["id"], **schema, "table": table}, ensure_ascii=False)
        _write(f"{line}\n".encode())
    return len(schemas)


def _write_message(key: bytes, value: bytes, *, keys: bool, binary: bool) -> None:
    if binary:
        key, value = base64.b64encode(key), base64.b64encode(value)
    _write(key + b"\t" + value + b"\n" if keys else value + b"\n")


def _write(lines: bytes) -> None:
    if sys.stdout.isatty():
        # Texts of the source must not act on the terminal.
        sys.stdout.writelines(f"{printable_json(line)}\n" for line in lines.decode().split("\n")[:-1])
    else:
        sys.stdout.buffer.write(lines)


def _note(statement: Mapping[str, Any]) -> None:
    """Says which rows have no messages."""
    if missing := missing_rows(statement):
        say(printable(f"Note: {statement['position']}: {missing}"), file=sys.stderr)


def _complain(error: DecodeError, reason: str, *, as_json: bool) -> None:
    file = Path(error.path or "").name
    if as_json:
        say_json({"error": {"message": reason, "file": file, "position": error.offset}}, file=sys.stderr)
    else:
        say(f"penstock: {file} at position {error.offset}: {printable(reason)}.", file=sys.stderr)
