"""The properties of a server and a session that decide what a statement means."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from penstock.sources.mysql.ddl import charsets

SQL_MODE_BITS = {
    "REAL_AS_FLOAT": 1 << 0,
    "PIPES_AS_CONCAT": 1 << 1,
    "ANSI_QUOTES": 1 << 2,
    "ORACLE": 1 << 9,
    "MAXDB": 1 << 12,
    "ANSI": 1 << 18,
    "NO_BACKSLASH_ESCAPES": 1 << 20,
    "STRICT_TRANS_TABLES": 1 << 21,
    "STRICT_ALL_TABLES": 1 << 22,
    "TRADITIONAL": 1 << 27,
    "PAD_CHAR_TO_FULL_LENGTH": 1 << 31,
}
"""The bits of sql_mode in a QUERY event. MySQL and MariaDB agree on these. MySQL 8.0 has no ORACLE
and MAXDB."""

_IMPLIED = {
    "ANSI": ("REAL_AS_FLOAT", "PIPES_AS_CONCAT", "ANSI_QUOTES"),
    "TRADITIONAL": ("STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"),
    "ORACLE": ("PIPES_AS_CONCAT", "ANSI_QUOTES"),
    "MAXDB": ("PIPES_AS_CONCAT", "ANSI_QUOTES"),
}

STRICT = frozenset({"STRICT_TRANS_TABLES"})


def sql_mode(text: str | int) -> frozenset[str]:
    """Returns the modes that matter for statements, from a list of names or from the bits of a QUERY
    event."""
    if isinstance(text, int):
        return frozenset(name for name, bit in SQL_MODE_BITS.items() if text & bit)
    names = {name.strip().upper() for name in text.split(",")}
    for name in tuple(names):
        names.update(_IMPLIED.get(name, ()))
    return frozenset(names & SQL_MODE_BITS.keys())


@dataclass(frozen=True)
class Server:
    """A server and a session. `sql_mode` None: it is not known, so nothing is concluded from it."""

    version: tuple[int, int, int] = (8, 0, 36)
    mariadb: bool = False
    lower_case: bool = False
    """Whether names are stored in lower case (lower_case_table_names = 1)."""
    sql_mode: frozenset[str] | None = STRICT
    explicit_timestamps: bool | None = None
    """explicit_defaults_for_timestamp; None: the version's default."""
    charset: str | None = None
    """character_set_server; None: the version's default."""
    collation: str | None = None

    @classmethod
    def parse(cls, text: str) -> Server:
        """Parses `8.0`, `5.7.22`, `mariadb-10.11` and the like. A version without its last number means the
        newest release of its series.

        Raises `ValueError` for anything else.
        """
        match = re.fullmatch(
            r"(?:(mysql|mariadb)[- ]?)?(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:-.*)?", text.strip().lower()
        )
        if match is None:
            raise ValueError(f"{text!r} is not a server version; write it like 8.0, 5.7.22 or mariadb-10.11")
        name, major, minor, patch = match.groups()
        mariadb = name == "mariadb" or "mariadb" in text.lower() or (name is None and 10 <= int(major) < 20)
        version = (int(major), int(minor or 99), int(patch or 99))
        return cls(version=version, mariadb=mariadb)

    def at_least(self, mysql: tuple[int, int, int] | None, mariadb: tuple[int, int, int] | None) -> bool:
        """Whether the version is this one or a later one. None: no version of that product has the
        property."""
        wanted = mariadb if self.mariadb else mysql
        return wanted is not None and self.version >= wanted

    def in_session(self, mode: int | None, charset: str | None) -> Server:
        """The server as a session in its log has it. `mode`: the session's sql_mode. `charset`: the character
        set of databases that it creates without naming one. None: the log does not say."""
        server = replace(self, sql_mode=None if mode is None else sql_mode(mode))
        if charset is None or charsets.canonical(self, charset) == self.default_charset[0]:
            return server
        return replace(server, charset=charset, collation=None)

    @property
    def strict(self) -> bool:
        """Whether values that do not fit are refused. Then a successful statement has not changed such
        values."""
        return self.sql_mode is not None and bool(
            self.sql_mode & {"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES", "TRADITIONAL"}
        )

    def mode(self, name: str) -> bool:
        return self.sql_mode is not None and name in self.sql_mode

    @property
    def explicit_defaults(self) -> bool:
        if self.explicit_timestamps is not None:
            return self.explicit_timestamps
        return self.at_least((8, 0, 2), (10, 10, 1))

    @property
    def default_charset(self) -> tuple[str, str]:
        """The character set and collation of a database that names none."""
        if self.charset is None and self.collation is None:
            name = "utf8mb4" if self.at_least((8, 0, 1), (11, 6, 1)) else "latin1"
            return name, charsets.default_collation(self, name)
        return charsets.settle(self, self.charset, self.collation)

    @property
    def has_display_widths(self) -> bool:
        """Whether COLUMN_TYPE shows `int(11)` and `year(4)`."""
        return self.mariadb or self.version < (8, 0, 19)
