"""Conditions of partial snapshots: SQL from anybody who may send signals, which becomes part of a WHERE
clause."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.errors import ConfigError

SHOWN_MAX = 200
"""Number of characters of a refused condition that an error repeats, so that errors stay readable."""

_READS_TABLES = re.compile(r"\b(select|table|values|with|into)\b", re.IGNORECASE)
"""Words that begin a query inside an expression, or end one (MySQL 8.0.19: `EXISTS (TABLE t)`)."""
_CALL = re.compile(r'([\w."]+)\s*\(')
"""A word before a parenthesis, or the end of a quoted name."""


@dataclass(frozen=True)
class Lexis:
    """How the source reads a condition. `quotes`: the characters that begin and end texts and names.
    `escaping`: those of them between which a backslash escapes. `ends`: characters that end a statement or
    begin what no condition needs. `calls`: the words that may be before a parenthesis, in lower case; None:
    all."""

    quotes: str
    escaping: str
    ends: str
    calls: frozenset[str] | None = None

    def check_plain(self, condition: str) -> None:
        """Raises `ConfigError` unless the text is safe between parentheses, as one expression over one row.
        Does not connect: whether the server understands it is another question."""
        if not self.is_plain(condition):
            raise ConfigError(
                f"{condition[:SHOWN_MAX]!r} is not a plain SQL condition.",
                hint="Write an expression as it would follow WHERE, without comments and subqueries.",
            )

    def is_plain(self, text: str) -> bool:
        """Whether the text, outside of quotes, closes no parenthesis that it did not open, does not end the
        statement, begins no comment and reads no other table."""
        depth, quote = 0, ""
        place, bare = 0, ""
        while place < len(text):
            char = text[place]
            if quote:
                if char == "\\" and quote in self.escaping:
                    place += 1
                elif char == quote:
                    quote = ""
            elif char in self.quotes:
                quote = char
            elif char in "()":
                depth += 1 if char == "(" else -1
                if depth < 0:
                    return False
            elif char in self.ends or text.startswith(("--", "/*"), place):
                return False
            bare += " " if quote else char
            place += 1
        calls = {name.lower() for name in _CALL.findall(bare)}
        return (
            depth == 0
            and not quote
            and not _READS_TABLES.search(bare)
            and (self.calls is None or calls <= self.calls)
        )
