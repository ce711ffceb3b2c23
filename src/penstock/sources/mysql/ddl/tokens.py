"""Cuts SQL text of MySQL and MariaDB into tokens, with a cursor over them.

The lexical rules are those of the server (sql_lex.cc's documentation, "Language Structure" in the manual):

- `/*!50100 … */` is code for servers from 5.1.0 on, `/*M!100100 … */` only for MariaDB.
- `--` begins a comment only before white space.
- A quote inside quotes is doubled. In strings it may also be escaped by a backslash, unless the sql_mode has
  NO_BACKSLASH_ESCAPES.
- Double quotes are a string or, with ANSI_QUOTES, a name. Without it, the cursor takes them for what its
  caller expects.

Tokens are made on demand, because statements may be very long and often only their head matters. The time is
linear in the text that is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from penstock.model.schema import TableId
from penstock.sources.mysql.ddl.server import Server

_ESCAPES = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "b": "\b"}

TOKENS_MAX = 500_000
"""A statement with more tokens counts as not understood. So many tokens are some tens of MB of text, and take
about a second. Even an ENUM of 65,535 labels or a table of 8,192 partitions has far fewer."""

Kind = Literal["word", "name", "string", "double", "sign", "end"]


def unescape(text: str, quote: str = "'") -> str:
    """Returns what is inside a quoted SQL literal, as plain text."""

    def plain(match: re.Match[str]) -> str:
        if match[1] in ("%", "_"):
            return match[0]  # patterns of LIKE: the backslash stays
        return quote if match[1] is None else _ESCAPES.get(match[1], match[1])

    return re.sub(quote * 2 + r"|\\(.)", plain, text, flags=re.DOTALL)


def keywords(text: str) -> frozenset[str]:
    """Returns a set of keywords, which are given in one string."""
    return frozenset(text.split())


class NotUnderstood(Exception):
    """The statement does not fit the known grammar."""


class Token(NamedTuple):
    """A word, name, string or sign of the SQL. `text`: its characters, without quotes. `start` and
    `end`: its place in the SQL.

    Escapes in a string are resolved by `value` only.
    """

    kind: Kind
    text: str
    start: int
    end: int
    backslashes: bool = True

    @property
    def keyword(self) -> str:
        return self.text.upper() if self.kind == "word" else ""

    @property
    def value(self) -> str:
        """The contents of a string."""
        if not self.backslashes:
            quote = '"' if self.kind == "double" else "'"
            return self.text.replace(quote * 2, quote)
        return unescape(self.text, '"' if self.kind == "double" else "'")


# Each alternative can match a text in one way only, so a failing match takes linear time.
_TOKEN_PATTERN = r"""
    (?P<space>[\t-\r\ ]+ | \#[^\n]* | --(?=[\x00-\x20]|\Z)[^\n]*)
  | (?P<code>/\*(?P<maria>M?)!(?P<version>[0-9]{5,6})?)
  | (?P<comment>/\*)
  | (?P<close>\*/)
  | (?P<name>`[^`]*(?:``[^`]*)*`)
  | (?P<string>'[^'\\]*(?:(?:''|\\.)[^'\\]*)*')
  | (?P<double>"[^"\\]*(?:(?:""|\\.)[^"\\]*)*")
  | (?P<word>[\w$\u0080-\U0010ffff]+)
  | (?P<sign>.)
    """
_TOKEN = re.compile(_TOKEN_PATTERN, re.VERBOSE | re.DOTALL)
_PLAIN = {"string": r"(?P<string>'[^']*(?:''[^']*)*')", "double": r'(?P<double>"[^"]*(?:""[^"]*)*")'}


def _plain(*kinds: str) -> re.Pattern[str]:
    """A pattern for these quotes where a backslash is a character like any other."""
    pattern = re.sub(
        r"\(\?P<(string|double)>.*",
        lambda match: _PLAIN[match[1]] if match[1] in kinds else match[0],
        _TOKEN_PATTERN,
    )
    return re.compile(pattern, re.VERBOSE | re.DOTALL)


_PLAIN_QUOTES = _plain("string", "double")
"""Kinds of quotes under NO_BACKSLASH_ESCAPES."""
_PLAIN_NAMES = _plain("double")
"""Kinds of quotes under ANSI_QUOTES, where double quotes hold names."""


def tokenize(
    sql: str,
    *,
    version: tuple[int, int, int] | None = None,
    mariadb: bool = False,
    backslashes: bool = True,
    ansi_quotes: bool = False,
    start: int = 0,
) -> Iterator[Token]:
    """Yields the tokens. `version` decides which version comments are code (None: all). `backslashes`:
    whether they escape. `ansi_quotes`: whether double quotes are names."""
    position = start
    inside_code = 0
    pattern = _PLAIN_QUOTES if not backslashes else _PLAIN_NAMES if ansi_quotes else _TOKEN
    while position < len(sql):
        match = pattern.match(sql, position)
        assert match is not None  # `.` matches anything
        kind, start, position = str(match.lastgroup), match.start(), match.end()
        if match["code"] is not None:
            kind = "code"
        if kind == "space":
            continue
        if kind == "code":
            if _is_code(match, version, mariadb):
                inside_code += 1
            else:
                # To MySQL `/*M!` begins an ordinary comment, and those do not nest.
                nested = mariadb or not match["maria"]
                position = _comment_end(sql, position, nested=nested)
        elif kind == "comment":
            position = _comment_end(sql, position, nested=False)
        elif kind == "close" and inside_code:
            inside_code -= 1
        elif kind == "close":
            yield Token("sign", "*", start, start + 1)
            yield Token("sign", "/", start + 1, position)
        elif kind == "name":
            yield Token("name", sql[start + 1 : position - 1].replace("``", "`"), start, position)
        elif kind == "string":
            yield Token("string", sql[start + 1 : position - 1], start, position, backslashes)
        elif kind == "double" and ansi_quotes:
            yield Token("name", sql[start + 1 : position - 1].replace('""', '"'), start, position)
        elif kind == "double":
            yield Token("double", sql[start + 1 : position - 1], start, position, backslashes)
        elif kind == "word":
            yield Token("word", match[0], start, position)
        elif match[0] in "'\"`":
            raise NotUnderstood("a quote that is not closed")
        else:
            yield Token("sign", match[0], start, position)


def _is_code(match: re.Match[str], version: tuple[int, int, int] | None, mariadb: bool) -> bool:
    if match["maria"] and not mariadb and version is not None:
        return False
    if match["version"] is None or version is None:
        return True
    wanted = int(match["version"])
    if mariadb and not match["maria"] and 50700 <= wanted <= 99999:
        return False  # for MySQL versions whose features MariaDB does not have
    major, minor, patch = version
    return wanted <= major * 10_000 + minor * 100 + patch


_COMMENT_MARK = re.compile(r"/\*|\*/")


def _comment_end(sql: str, position: int, *, nested: bool) -> int:
    if not nested:
        close = sql.find("*/", position)
        return len(sql) if close < 0 else close + 2
    depth = 1
    for mark in _COMMENT_MARK.finditer(sql, position):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(sql)


_QUOTED = ("string", "double")


class Cursor:
    """A place in the tokens, with the small steps of which parsers are made."""

    def __init__(self, sql: str, tokens: Iterator[Token], *, database: str, lower_case: bool = False) -> None:
        self.sql = sql
        self.database = database
        self.home = database
        """The database in which a REFERENCES without a database finds its table."""
        self.lower_case = lower_case
        self.last_end = 0
        """The end of the last token that was taken."""
        self._tokens = tokens
        self._ahead: list[Token] = []
        self._count = 0

    def peek(self, distance: int = 0) -> Token:
        while len(self._ahead) <= distance:
            self._count += 1
            if self._count > TOKENS_MAX:
                raise NotUnderstood("a statement that is too long")
            self._ahead.append(next(self._tokens, Token("end", "", len(self.sql), len(self.sql))))
        return self._ahead[distance]

    def next(self) -> Token:
        token = self.peek()
        del self._ahead[0]
        self.last_end = token.end
        return token

    @property
    def at_end(self) -> bool:
        token = self.peek()
        return token.kind == "end" or (
            token.text == ";" and token.kind == "sign" and self.peek(1).kind == "end"
        )

    def at(self, *keywords: str) -> bool:
        """Whether these keywords come next, in this order."""
        return all(self.peek(index).keyword == word for index, word in enumerate(keywords))

    def at_any(self, *keywords: str) -> bool:
        return self.peek().keyword in keywords

    def at_sign(self, sign: str) -> bool:
        token = self.peek()
        return token.kind == "sign" and token.text == sign

    def take(self, *keywords: str) -> bool:
        """Skips these keywords if they come next. Returns whether they did."""
        if not self.at(*keywords):
            return False
        for _ in keywords:
            self.next()
        return True

    def take_sign(self, sign: str) -> bool:
        if not self.at_sign(sign):
            return False
        self.next()
        return True

    def take_any(self, *keywords: str) -> None:
        """Skips any number of these keywords, in any order."""
        while self.at_any(*keywords):
            self.next()

    def take_any_of(self, *keywords: str) -> str | None:
        """Skips one of these keywords, and returns it."""
        if not self.at_any(*keywords):
            return None
        return self.next().keyword

    def expect(self, *keywords: str) -> None:
        if not self.take(*keywords):
            raise NotUnderstood(" ".join(keywords))

    def identifier(self) -> str:
        token = self.next()
        if token.kind in ("word", "name"):
            return token.text
        if token.kind == "double":
            return token.text.replace('""', '"')
        raise NotUnderstood("a name")

    def column_name(self) -> str:
        """`[[database.]table.] column`"""
        self.take_sign(".")
        name = self.identifier()
        while self.take_sign("."):
            name = self.identifier()
        return name

    def number(self) -> int:
        token = self.next()
        digits = token.text.lstrip("0") or token.text[:1]
        if token.kind == "word" and token.text.isascii() and token.text.isdecimal() and len(digits) <= 20:
            return int(digits)
        raise NotUnderstood("a number")

    def string(self) -> str:
        """Reads one string, or several that follow each other. A character set before it is ignored."""
        if self.peek().kind == "word" and self.peek().text[0] in "_nN" and self.peek(1).kind in _QUOTED:
            self.next()
        if self.peek().kind not in _QUOTED:
            raise NotUnderstood("a string")
        text = ""
        while self.peek().kind in _QUOTED:
            text += self.next().value
        return text

    def parenthesised(self) -> str:
        """Skips `( … )` and returns the SQL inside."""
        opening = self.next()
        if opening.kind != "sign" or opening.text != "(":
            raise NotUnderstood("(")
        depth = 1
        while True:
            token = self.next()
            if token.kind == "end":
                raise NotUnderstood("a parenthesis that is not closed")
            if token.kind == "sign":
                depth += (token.text == "(") - (token.text == ")")
            if depth == 0:
                return self.sql[opening.end : token.start].strip()

    def names(self) -> tuple[str, ...]:
        """`(name, …)`"""
        if not self.take_sign("("):
            raise NotUnderstood("(")
        found = [self.identifier()]
        while self.take_sign(","):
            found.append(self.identifier())
        if not self.take_sign(")"):
            raise NotUnderstood(")")
        return tuple(found)

    def rest(self) -> list[Token]:
        tokens = []
        while not self.at_end:
            tokens.append(self.next())
        return tokens

    def within(self, tokens: list[Token]) -> Cursor:
        """Returns a cursor over some of the tokens."""
        inner = Cursor(self.sql, iter(tokens), database=self.database, lower_case=self.lower_case)
        inner.home = self.home
        return inner

    def table(self, database: str | None = None) -> TableId:
        """Reads `[database.]table`. Without a database it is the session's, or the given one."""
        database = self.database if database is None else database
        if self.take_sign("."):
            name = self.identifier()
        else:
            name = self.identifier()
            if self.take_sign("."):
                database, name = name, self.identifier()
        if not database:
            raise NotUnderstood("a table without a database")
        if self.lower_case:
            database, name = database.lower(), name.lower()
        return TableId(database, name)

    def tables(self) -> list[TableId]:
        """`table [, table] …`"""
        names = [self.table()]
        while self.take_sign(","):
            names.append(self.table())
        return names

    def item(self) -> list[Token]:
        """Takes the tokens up to the next comma outside of parentheses, to the parenthesis that closes the
        list, or to the end."""
        tokens: list[Token] = []
        depth = 0
        while not self.at_end:
            token = self.peek()
            if token.kind == "sign":
                if depth == 0 and token.text in ",)":
                    break
                depth += (token.text == "(") - (token.text == ")")
            tokens.append(self.next())
        if depth:
            raise NotUnderstood("a parenthesis that is not closed")
        return tokens


def cursor_over(sql: str, database: str, server: Server) -> Cursor:
    tokens = tokenize(
        sql,
        version=server.version,
        mariadb=server.mariadb,
        backslashes=not server.mode("NO_BACKSLASH_ESCAPES"),
        ansi_quotes=server.mode("ANSI_QUOTES"),
    )
    return Cursor(sql, tokens, database=database, lower_case=server.lower_case)


def names_in(tokens: Iterable[Token], cursor: Cursor) -> tuple[TableId, ...]:
    """Returns all that may be a table: each name, with the database before it or else the session's."""
    found: list[list[str]] = []
    dot = False
    for token in tokens:
        name = token.kind in ("word", "name", "double")
        if name and dot and found:
            found[-1].append(token.text)
        elif name:
            found.append([token.text])
        dot = token.kind == "sign" and token.text == "."
    tables = (parts[:2] if len(parts) > 1 else [cursor.database, *parts] for parts in found)
    return tuple(
        dict.fromkeys(
            TableId(database.lower(), name.lower()) if cursor.lower_case else TableId(database, name)
            for database, name in tables
        )
    )


def top_level(tokens: list[Token]) -> list[Token]:
    """Returns the tokens outside of parentheses, and the parentheses."""
    kept: list[Token] = []
    depth = 0
    for token in tokens:
        if token.kind == "sign" and token.text == ")":
            depth -= 1
        if depth == 0:
            kept.append(token)
        if token.kind == "sign" and token.text == "(":
            depth += 1
    return kept
