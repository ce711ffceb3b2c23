"""`penstock schema FILE…`: prints the tables that SQL files create, without a server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.commands.terminal import say, say_json
from penstock.errors import ConfigError
from penstock.model.schema import TableId
from penstock.sources.mysql.ddl.catalog import Catalog
from penstock.sources.mysql.ddl.change import Created, Doubtful
from penstock.sources.mysql.ddl.definition import ColumnDefinition, Key, TableDefinition
from penstock.sources.mysql.ddl.parse import parse
from penstock.sources.mysql.ddl.script import ScriptStatement, read_script
from penstock.sources.mysql.ddl.server import Server
from penstock.sources.mysql.ddl.statement import AlterTable, Statement, Unknown
from penstock.sources.mysql.ddl.tokens import NotUnderstood, keywords, tokenize
from penstock.sources.mysql.ddl.types import text_bytes

_NOT_ABOUT_TABLES = keywords(
    """SELECT TABLE WITH CALL DO EXECUTE VALUES HANDLER DECLARE IF WHILE LOOP RETURN FETCH OPEN CLOSE END
    ANALYZE BEGIN BINLOG CHECK CHECKSUM CLONE DESC DESCRIBE EXPLAIN OPTIMIZE"""
)
_WORDS_MAX = 4
"""Leading words of a statement that a summary shows, as `CREATE OR REPLACE VIEW`. They tell its kind."""


@dataclass(frozen=True)
class Problem:
    """A statement that could not be applied. `understood`: it was parsed, but does not fit the tables.
    `touches_table`: it is about a table."""

    file: str
    line: int
    statement: str
    reason: str
    understood: bool
    touches_table: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "line": self.line,
            "statement": self.statement,
            "reason": self.reason,
            "understood": self.understood,
            "touches_table": self.touches_table,
        }


def schema(files: list[Path], *, version: str, database: str, as_json: bool) -> int:
    """Prints the tables. Returns exit code 1 if a statement about a table could not be parsed."""
    try:
        server = Server.parse(version)
    except ValueError as error:
        raise ConfigError(f"{error}.") from error
    catalog = Catalog(server)
    problems: list[Problem] = []
    count = 0
    for path in files:
        catalog.database = database
        catalog.reset_session()
        for statement in statements(path):
            count += 1
            problems += applied(catalog, statement, str(path))
    tables = [
        table_json(definition, server)
        for _, definition in sorted(catalog.tables.items())
        if not definition.sequence
    ]
    if as_json:
        document = {
            "server": ("mariadb-" if server.mariadb else "") + version.lower().removeprefix("mariadb-"),
            "statements": count,
            "tables": tables,
            "problems": [problem.to_json() for problem in problems],
        }
        say_json(document, plain=True)
    else:
        for table in tables:
            _show(table)
        for problem in problems:
            what = "does not apply" if problem.understood else "not understood"
            say(f"{problem.file}:{problem.line}: {what}: {problem.statement} … ({problem.reason})")
        say(f"{len(tables)} table(s) from {count} statement(s), {len(problems)} problem(s)")
    return int(any(problem.touches_table and not problem.understood for problem in problems))


def statements(path: Path) -> Iterator[ScriptStatement]:
    try:
        with open(path, encoding=_encoding(path), errors="replace", newline="") as stream:
            yield from read_script(stream)
    except OSError as error:
        raise ConfigError(f"{path} could not be read: {error.strerror}.") from error


def _encoding(path: Path) -> str:
    with open(path, "rb") as file:
        start = file.read(2)
    return "utf-16" if start in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"


def applied(catalog: Catalog, statement: ScriptStatement, file: str) -> list[Problem]:
    """Applies a statement to the catalog. Returns the problems."""
    parsed = parse(statement.sql, catalog.database, catalog.server)
    words = _leading_words(statement.sql, catalog.server)

    def problem(reason: str, *, understood: bool, touches_table: bool) -> Problem:
        return Problem(file, statement.line, " ".join(words), reason, understood, touches_table)

    if isinstance(parsed, Unknown):
        first = parsed.head.partition(" ")[0]
        if first in _NOT_ABOUT_TABLES or statement.sql.startswith("("):
            return []
        touches = first in ("CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE") and "TABLE" in words
        return [problem("unknown statement", understood=False, touches_table=touches)]
    found = []
    for change in catalog.apply(parsed):
        match change:
            case Created(definition=None, why=why) if not getattr(parsed, "sequence", False):
                missing = getattr(parsed, "like", None) is not None
                found.append(problem(why or "", understood=missing, touches_table=True))
            case Doubtful(table=TableId() as table) if _may_be_missing(parsed) and not catalog.has(table):
                pass  # the server does nothing either
            case Doubtful(table=table, why=why):
                fits = table is not None and not why.startswith("an ALTER TABLE")
                found.append(problem(why, understood=fits, touches_table=True))
    return found


def _may_be_missing(parsed: Statement) -> bool:
    return isinstance(parsed, AlterTable) and parsed.if_exists


def _leading_words(sql: str, server: Server) -> list[str]:
    """Returns the leading keywords of a statement, without values."""
    words: list[str] = []
    try:
        for token in tokenize(sql, version=server.version, mariadb=server.mariadb):
            if not token.keyword.isalpha() or len(words) == _WORDS_MAX:
                break
            words.append(token.keyword)
    except NotUnderstood:
        pass
    return words or ["(no keyword)"]


def table_json(definition: TableDefinition, server: Server) -> dict[str, Any]:
    """Returns the `--json` document of a table, as docs/schema.md describes it."""
    return {
        "database": definition.table.database,
        "table": definition.table.table,
        "charset": definition.charset,
        "collation": definition.collation,
        "columns": [_column_json(definition, column, server) for column in definition.columns],
        "primary_key": list(definition.primary.columns) if definition.primary else [],
        "key": list(definition.key),
        "unique_keys": [_key_json(key) for key in definition.keys if key.kind == "unique"],
        "indexes": [_key_json(key) for key in definition.keys if not key.unique],
        "foreign_keys": [
            {
                "name": key.name,
                "columns": list(key.columns),
                "references": {
                    "database": key.references.database,
                    "table": key.references.table,
                    "columns": list(key.referenced),
                },
                "on_delete": key.on_delete,
                "on_update": key.on_update,
            }
            for key in definition.foreign_keys
        ],
        "checks": list(definition.checks),
        "options": {name.lower(): value for name, value in definition.options},
        "partitioned": definition.partitioned,
        "system_versioned": definition.versioned,
    }


def _column_json(table: TableDefinition, definition: ColumnDefinition, server: Server) -> dict[str, Any]:
    column = definition.column
    return {
        "name": column.name,
        "type": definition.data_type,
        "column_type": column.column_type,
        "nullable": column.nullable,
        "default": column.default,
        "default_is_expression": column.default_is_expression,
        "length": column.length,
        "precision": column.precision,
        "scale": column.scale,
        "fractional_digits": column.fsp,
        "unsigned": column.unsigned,
        "charset": column.charset,
        "collation": column.collation,
        "labels": None if column.labels is None else list(column.labels),
        "generated": column.generated,
        "expression": definition.expression,
        "invisible": column.invisible,
        "auto_increment": definition.auto_increment,
        "on_update": definition.on_update,
        "key": _column_key(table, column.name, server),
        "comment": definition.comment,
    }


def _column_key(table: TableDefinition, name: str, server: Server) -> str:
    """Returns the column's COLUMN_KEY: PRI, UNI, MUL or empty. The first key that begins with the column
    decides."""
    if table.primary is not None and name in table.primary.columns:
        return "PRI"
    blobs = any(one.name in table.key and text_bytes(one.data_type) for one in table.columns)
    if table.primary is None and name in table.key and not blobs:
        return "PRI"
    kind, found = "", False
    for key in table.keys:
        if key.parts and key.parts[0].column == name:
            if key.kind == "unique" and len(key.parts) == 1 and not table.versioned:
                return kind or "UNI"
            kind = "MUL" if server.at_least((8, 0, 0), None) else kind
            found = True
    return "MUL" if found else ""


def _key_json(key: Key) -> dict[str, Any]:
    return {
        "name": key.name,
        "kind": key.kind,
        "parts": [{"column": part.column, "length": part.length} for part in key.parts],
    }


def _show(table: dict[str, Any]) -> None:
    say(f"{table['database']}.{table['table']}  ({table['collation']})")
    width = max((len(column["name"]) for column in table["columns"]), default=0)
    for column in table["columns"]:
        facts = [column["column_type"]]
        facts += [column["collation"]] if column["collation"] not in (None, table["collation"]) else []
        facts += [] if column["nullable"] else ["NOT NULL"]
        facts += [f"DEFAULT {column['default']}"] if column["default"] is not None else []
        facts += [f"{column['generated']} ({column['expression']})"] if column["generated"] else []
        facts += ["INVISIBLE"] if column["invisible"] else []
        facts += ["AUTO_INCREMENT"] if column["auto_increment"] else []
        say(f"  {column['name']:<{width}}  {' '.join(facts)}")
    if table["primary_key"]:
        say(f"  primary key ({', '.join(table['primary_key'])})")
    for key in table["unique_keys"]:
        say(f"  unique {key['name']} ({', '.join(part['column'] or 'expression' for part in key['parts'])})")
    for key in table["foreign_keys"]:
        to = key["references"]
        say(
            f"  foreign key {key['name']} ({', '.join(key['columns'])}) to {to['database']}.{to['table']} "
            f"({', '.join(to['columns'])})"
        )
    say("")
