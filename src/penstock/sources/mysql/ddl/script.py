"""Cuts SQL scripts into statements, as the mysql client does.

A delimiter outside of quotes and comments ends a statement. DELIMITER changes the delimiter. The body of a
procedure, trigger or event stays in one piece, even if the script forgot to change the delimiter, because
BEGIN … END, CASE, IF and loops are matched. Version comments stay in the text, and `tokens` decides about
them.

A file is read in blocks, and the time is linear in its size.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

BLOCK_CHARACTERS = 1 << 20
"""Characters of the script that are read at once, so that a dump of many GB does not fill the memory."""
STATEMENT_CHARACTERS_MAX = 1 << 30
"""Characters of one statement: `max_allowed_packet` can be no larger than 1 GiB. A longer one lacks its end,
so reading on is in vain."""
_HEAD_CHARACTERS = 4000
"""Characters that are enough to recognise a statement, with a long comment before it."""

_COMMAND = re.compile(
    r"""[ \t]*(?:
        (?:delimiter|\\d)[ \t]+(?P<delimiter>\S+)[^\n]*
      | (?:\\[.!a-zA-Z\#] | source[ \t]+\S*[/.]\S* | system[ \t] | (?:no)?(?:pager|tee|warning)\b | warnings\b
          | prompt\b | charset[ \t]\w+ | connect[ \t])[^\n]*
    )(?:\n|\Z)""",
    re.IGNORECASE | re.VERBOSE,
)
"""Lines for the client, at a place where a statement may begin."""
_COMMENTS = r"\#[^\n]* | --(?=[\s\x00-\x1f]|\Z)[^\n]* | /\*(?!M?!)(?:[^*]|\*(?!/))*\*/"
_SKIP = re.compile(rf"(?: \s+ | --[^\n]* | {_COMMENTS} )+", re.VERBOSE)
"""What may come before a statement. No statement begins with two minus signs."""
_QUOTED = r"""'[^'\\]*(?:(?:''|\\.)[^'\\]*)*' | "[^"\\]*(?:(?:""|\\.)[^"\\]*)*" | `[^`]*`"""
_CREATE = r"(?:/\*!\d*\s*)?create\b"
_ROUTINE = re.compile(
    _CREATE
    + r"""(?: [^;'"`] | `[^`]*` | '[^']*' | "[^"]*" ){0,400}?
    \b(?:procedure|function|trigger|event|package)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_NOT_ROUTINE = re.compile(
    _CREATE
    + r"""\s+(?:or\s+replace\s+)?(?:temporary\s+)?
    (?:table|database|schema|view|user|index|unique)\b""",
    re.IGNORECASE | re.VERBOSE,
)


@dataclass(frozen=True)
class ScriptStatement:
    """A statement without its delimiter, and the line on which it begins (from 1)."""

    sql: str
    line: int


class Script:
    """Reads statements from a text stream."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._text = ""
        self._at = 0
        self._line = 1
        self._ended = False
        self._delimiter = ";"

    def __iter__(self) -> Iterator[ScriptStatement]:
        while self._begin():
            line = self._line
            end, after = self._end_of_statement()
            sql = self._text[self._at : end].strip()
            self._move(after)
            if sql and sql != self._delimiter:
                yield ScriptStatement(sql, line)

    def _fill(self) -> bool:
        """Reads more text. False at the end of the file."""
        if self._ended:
            return False
        block = self._stream.read(max(BLOCK_CHARACTERS, len(self._text) - self._at))
        self._text = self._text[self._at :] + block
        self._at = 0
        self._ended = not block
        return bool(block)

    def _move(self, position: int) -> None:
        self._line += self._text.count("\n", self._at, position)
        self._at = position

    def _begin(self) -> bool:
        """Skips white space, comments and the client's own commands before the next statement."""
        while True:
            match = _SKIP.match(self._text, self._at)
            if match is not None and (match.end() < len(self._text) or self._ended):
                self._move(match.end())
            elif match is not None and self._fill():
                continue
            if len(self._text) - self._at < 200 and self._fill():
                continue
            command = _COMMAND.match(self._text, self._at)
            if command is not None:
                if command["delimiter"]:
                    self._delimiter = command["delimiter"]
                self._move(command.end())
                continue
            if self._text.startswith(self._delimiter, self._at):
                self._move(self._at + len(self._delimiter))
                continue
            if _SKIP.match(self._text, self._at) is None:
                return self._at < len(self._text)

    def _end_of_statement(self) -> tuple[int, int]:
        """Returns the end of the statement that begins at the present place, and the beginning of what
        follows."""
        if len(self._text) - self._at < _HEAD_CHARACTERS:
            self._fill()
        routine = self._delimiter == ";" and _is_routine(self._text, self._at)
        scanner = _Scanner(self._delimiter, blocks=routine)
        position = self._at
        while True:
            found = scanner.scan(self._text, position, final=self._ended)
            if found is not None:
                return found
            position = scanner.position - self._at  # the text before the statement is not needed any more
            if len(self._text) > STATEMENT_CHARACTERS_MAX or not self._fill():
                self._ended = True


def _is_routine(text: str, start: int) -> bool:
    return _NOT_ROUTINE.match(text, start) is None and _ROUTINE.match(text, start) is not None


class _Scanner:
    """Searches for the delimiter. It continues at the same place when more text arrives."""

    def __init__(self, delimiter: str, *, blocks: bool) -> None:
        mark = re.escape(delimiter).replace("#", r"\#")
        self._pattern = re.compile(
            rf"""(?P<string> {_QUOTED} )
              | (?P<comment> {_COMMENTS} )
              | (?P<delimiter> {mark} | \\[gG](?!\w) )
              | (?P<open> ['"`] | /\*(?!M?!) )
              | (?P<other> [;:(),] | /\*M?!\d* | \*/ | [^\W\d][\w$]* )""",
            re.DOTALL | re.VERBOSE,
        )
        # Skip everything up to the next special character at once. Most of a dump is skipped in this way.
        plain = rf"[^'\"`\#\-/;\\{re.escape(delimiter[0])}]+ | {_QUOTED}"
        plain += "" if delimiter[0] == "-" else " | -(?!-)"
        plain += "" if delimiter[0] == "/" else r" | /(?!\*)"
        self._plain = None if blocks else re.compile(f"(?: {plain} ){{1,10000}}", re.DOTALL | re.VERBOSE)
        self._blocks = _Blocks() if blocks else None
        self.position = 0

    def scan(self, text: str, position: int, *, final: bool) -> tuple[int, int] | None:
        size = len(text)
        while position < size and not (self._blocks is not None and self._blocks.ended):
            if self._plain is not None and (plain := self._plain.match(text, position)):
                if plain.end() == size and not final:
                    break  # a quote or comment may begin with the next character
                position = plain.end()
                continue
            match = self._pattern.match(text, position)
            if match is None:
                position += 1
                continue
            kind = match.lastgroup
            if match.end() == size and not final:
                break  # it may continue in the next block
            if kind == "open":
                if not final:
                    break
                return size, size  # never closed
            if kind == "delimiter" and (self._blocks is None or self._blocks.closed):
                return position, match.end()
            if self._blocks is not None and kind in ("other", "delimiter"):
                self._blocks.see(match[0].upper(), text, match.end())
            position = match.end()
            if self._blocks is not None and self._blocks.ended:
                break
        self.position = position
        if self._blocks is not None and self._blocks.ended:
            after = _after_body(text, position, final=final)
            return None if after is None else (position, after)
        return (size, size) if final else None


class _Blocks:
    """Counts nested BEGIN, CASE, IF and loops. Each is closed by an END."""

    _BEFORE_STATEMENT = frozenset(
        [
            ";",
            "THEN",
            "ELSE",
            "DO",
            "LOOP",
            "REPEAT",
            "BEGIN",
            ":",
            "ROW",
            ")",
            "DETERMINISTIC",
            "DATA",
            "SQL",
            "INVOKER",
            "DEFINER",
            "IS",
            "AS",
            "DISABLE",
            "ENABLE",
            "PRESERVE",
        ]
    )

    def __init__(self) -> None:
        self._depth = 0
        self._before = ""
        self._body = False
        self.ended = False
        """Whether the BEGIN … END that is the whole body has been closed."""

    @property
    def closed(self) -> bool:
        return self._depth <= 0

    def see(self, word: str, text: str, end: int) -> None:
        """Takes in the next word or sign, in upper case. `text` continues at `end`."""
        if word.startswith("/*") or word == "*/":
            return
        before, self._before = self._before, word
        if before == "END" and word in ("IF", "LOOP", "REPEAT", "WHILE", "CASE", "FOR"):
            self._before = "END " + word
        elif word in ("BEGIN", "CASE"):
            self._body = self._body or (word == "BEGIN" and self._depth == 0)
            self._depth += 1
        elif word == "END":
            self._depth -= 1
            self.ended = self._body and self._depth == 0
        elif before in self._BEFORE_STATEMENT and (
            word in ("LOOP", "WHILE")
            or (word == "IF" and not _is_call(text, end))
            or (word == "REPEAT" and not _CALL.match(text, end))
            or (word == "FOR" and before in (";", "THEN", "ELSE", "DO", "LOOP", "BEGIN", ":"))
        ):
            self._depth += 1


_AFTER_BODY = re.compile(
    r"\s*(?:\*/\s*)?(?:(?:`[^`]*`|(?!create\b|drop\b|alter\b)\w+)\s*)?;|\s*\*/", re.IGNORECASE
)
_LABEL_CHARACTERS_MAX = 400
"""Characters after a body that must have been read to decide: a label is a quoted name of at most 64
characters, with white space around it."""


def _after_body(text: str, end: int, *, final: bool) -> int | None:
    """Returns where the next statement may begin: after `END [label] ;`, or at the present place if the
    delimiter was forgotten. None: more text is needed to decide."""
    if not final and len(text) - end < _LABEL_CHARACTERS_MAX:
        return None
    match = _AFTER_BODY.match(text, end)
    return match.end() if match is not None else end


_CALL = re.compile(r"\s*\(")
_CALL_CHARACTERS_MAX = 4000
"""Characters after `IF` within which its closing parenthesis is looked for, so that a script of many IFs
takes linear time."""


def _is_call(text: str, position: int) -> bool:
    """Whether it is IF(a, b, c) and not IF (condition) THEN: there is a comma between its parentheses."""
    if _CALL.match(text, position) is None:
        return False
    depth = 0
    for sign in re.finditer(r"'(?:[^'\\]|\\.)*'|[(),]", text[position : position + _CALL_CHARACTERS_MAX]):
        depth += (sign[0] == "(") - (sign[0] == ")")
        if sign[0] == "," and depth == 1:
            return True
        if depth == 0:
            return False
    return False


def read_script(stream: IO[str]) -> Iterator[ScriptStatement]:
    return iter(Script(stream))
