"""Names and texts that a source may have and that somebody chose with care; and a database full of them."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.sources.mysql.identifiers import quote
from penstock.testing.servers import MySqlClient

ESCAPES = "\x1b[2J\x1b]0;owned\x07\x1b[31m\r\n\t\x01\x7f\x85\x9b31m\u202eevil\u2066\u200b\u2028\ufeff"
"""What a terminal obeys, what forges lines, what turns and hides text."""

CARRIER = "penstock-error<" + "0" * 64 + ":" + base64.b64encode(b'{"error": "TableError"}').decode() + ">"
"""In the form in which errors cross Spark."""


def pickled(canary: Path) -> str:
    """A name in the form in which errors once crossed Spark; who unpickles it makes the file."""
    packed = base64.b64encode(f"cos\nsystem\n(S'>{canary}'\ntR.".encode()).decode()
    return f"penstock-error<{packed}>"


FEW = (
    "[red]x[/][/red]:smile:",
    ESCAPES,
    "`; DROP TABLE `x` -- '\"\\",
    "${env:HOME}",
    "$(touch canary)`touch canary`",
    "..",
    "../../x/%2F%00{0}%s*?[a]#&",
    "_delta_log",
    "v1.metadata.json",
    "\\" * 50,  # no longer ones: the server writes each as five bytes of a file name
)
"""One of each kind, for tests that must be quick."""

PATHS = (
    ".", "...", ".hidden", "x.", "a.b", "/etc/passwd", "a/b", "%2F", "%00", "a:b", "C:\\x", "file:///x", "~",
    "-rf", "日" * 50, "…" * 50, ":" * 50, "a b", "*", "?", "{a,b}", "[a-z]", "#x", "x#y", "a,b",
    "a=b", "@002e",
)  # fmt: skip
CONTROL_FILES = (
    "_staging", "_common_metadata", "_SUCCESS", "_penstock.json", "metadata", "data", "version-hint.text",
    "penstock_commit=e1", "snapshots", "files", "history", "entries", "changes", "branch_main",
    "snapshot_id_1", "at_timestamp_1", "all_files", "position_deletes",
)  # fmt: skip
SQL = (
    "select", "null", "`", "``", "'", "''", '"', "\\", "x'", "x\\'", "-- x", "/* x */", "/*! x */",
    ";", "${x}",
    "${spark:spark.app.name}", "{x}", ":x", "@x", "%", "%(x)s", "_", "1", "0x31", "true",
)  # fmt: skip
SHELLS_AND_FORMATS = (
    "; touch canary #", "| touch canary", "<script>alert(1)</script>", "&amp;", "=1+1", "{table}", "%n%m",
    "${jndi:ldap://x}", "[/]", "[bold", "[link=http://x]y[/link]",
)  # fmt: skip
LETTERS = (
    "T", "\u212a", "e\u0301", "\u00e9", "\u202eevil", "\u200b", "\x01", "\x1b", "\x9b", "\nx", "\r\nx",
    "\u2028", "\x7f", "\ue000", "\ufffd", "x\ny", "a\tb",
)  # fmt: skip
ALL = (*FEW, *PATHS, *CONTROL_FILES, *SQL, *SHELLS_AND_FORMATS, *LETTERS)
TWINS = ("t", "\u017f", "s")
"""Tables beside which another differs by the case of a letter, by one reading of it."""


@dataclass(frozen=True)
class HostileDatabase:
    """`name` has no dot. A table of each name, one with columns of these names, and texts in all that may
    have some."""

    server: MySqlClient
    name: str
    tables: tuple[str, ...]
    columns: tuple[str, ...]

    def quoted(self, table: str) -> str:
        return f"{quote(self.name)}.{quote(table)}"

    def make(self) -> None:
        with self.server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {quote(self.name)}")
            for name in self.tables:
                self.create(cursor, name)
            columns = ", ".join(
                f"{quote(name)} VARCHAR(64) DEFAULT {literal(name)} COMMENT {literal(name + CARRIER)}"
                for name in self.columns
            )
            labels = ", ".join(map(literal, (*labels_of(self.columns), CARRIER)))
            cursor.execute(
                f"CREATE TABLE {self.quoted('columns')} (id INT PRIMARY KEY, {columns}, kind ENUM({labels}), "
                f"carrier VARCHAR(200) DEFAULT {literal(CARRIER)}, INDEX {quote(self.columns[0])} (kind)) "
                f"COMMENT {literal(ESCAPES)}"
            )
            values = f"(1, 1), (2, 2), (3, {literal(CARRIER)}), (4, NULL)"
            cursor.execute(f"INSERT INTO {self.quoted('columns')} (id, kind) VALUES {values}")

    def create(self, cursor: Any, name: str) -> None:
        text = literal(f"{name}{CARRIER}")
        cursor.execute(
            f"CREATE TABLE {self.quoted(name)} (id INT PRIMARY KEY, {quote(name)} VARCHAR(200) DEFAULT "
            f"{literal(name)} COMMENT {text}, UNIQUE KEY {quote(name)} ({quote(name)})) COMMENT {text}"
        )
        cursor.execute(f"INSERT INTO {self.quoted(name)} VALUES (1, {literal(name + '1')}), (2, NULL)")

    def change(self) -> None:
        """Rows of every kind of change, new columns with hostile defaults, and a table more."""
        with self.server.connect() as connection, connection.cursor() as cursor:
            for name in self.tables:
                table = self.quoted(name)
                cursor.execute(f"INSERT INTO {table} VALUES (3, {literal(name + '3')})")
                cursor.execute(f"UPDATE {table} SET {quote(name)} = {literal(ESCAPES)} WHERE id = 1")
                cursor.execute(f"DELETE FROM {table} WHERE id = 2")
            cursor.execute(
                f"ALTER TABLE {self.quoted('columns')} ADD COLUMN {quote('more' + self.columns[0])} "
                f"VARCHAR(200) NOT NULL DEFAULT {literal(ESCAPES + CARRIER)} COMMENT {literal(ESCAPES)}, "
                "ADD COLUMN home VARCHAR(50) DEFAULT '${env:HOME}'"
            )
            cursor.execute(f"INSERT INTO {self.quoted('columns')} (id) VALUES (5)")
            self.create(cursor, self.born)

    @property
    def born(self) -> str:
        """The table that `change` makes."""
        return f"new{self.columns[0]}"[:64]

    def drop(self) -> None:
        self.server.execute(f"DROP DATABASE IF EXISTS {quote(self.name)}")


def literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def labels_of(names: tuple[str, ...]) -> list[str]:
    """Labels of an ENUM differ in more than letter case and trailing white space."""
    return [f"{number}{name}." for number, name in enumerate(names)]
