"""The beginning of a statement for messages, history and logs: keywords and names, never a value.

No value can pass. It consists of words that begin with a letter, names in back quotes, and signs. A value is
written as a quoted string, which becomes `'…'` with the character set in front of it, or begins with a digit,
which becomes `…`. Where a quote ends can depend on the session's sql_mode, which is not asked for here:
behind a string with a backslash, and behind a quote or comment that does not end, everything is left out. So
are strings in dollars (`$$…$$`). A name in double quotes (ANSI_QUOTES) is taken for a string.
"""

from __future__ import annotations

import re

CHARACTERS_MAX = 160
"""Characters of a head, so that a reason or a log line stays one line or two."""
_LOOKED_AT_MAX = 2000
"""Characters of a statement that are looked at. With long comments left out, they still hold a head."""

_PART = re.compile(
    r"""
    (?P<space> \s+ | [\x00-\x1f\x7f-\x9f]+ | \#[^\n]* | --(?=[\s\x00-\x1f]|\Z)[^\n]* | \*/ )
  | (?P<code> /\*M?!\d* )
  | (?P<comment> /\*(?:[^*]|\*(?!/))*\*/ )
  | (?P<name> `[^`]*(?:``[^`]*)*` )
  | (?P<string> (?: _\w+\s* | [nNxXbB] )? (?: '[^'\\]*(?:''[^'\\]*)*' | "[^"\\]*(?:""[^"\\]*)*" ) )
  | (?P<number> \.?\d [\w$.\u0080-\U0010ffff]* (?:(?<=[eE])[+-]\d+)? )
  | (?P<word> [^\W\d][\w\u0080-\U0010ffff]*(?:\$[\w\u0080-\U0010ffff]+)* )
  | (?P<unsure> ['"`$] | /\* )
  | (?P<sign> . )
    """,
    re.VERBOSE | re.DOTALL,
)
"""A part is the first alternative that fits, so the order counts."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")


def statement_head(sql: str) -> str:
    """The beginning of a statement in one line, with at most `CHARACTERS_MAX` characters."""
    parts: list[str] = []
    cut = len(sql) > _LOOKED_AT_MAX
    for match in _PART.finditer(sql[:_LOOKED_AT_MAX]):
        kind = match.lastgroup
        if kind in ("space", "code", "comment"):
            parts.append(" ")
        elif kind == "string":
            if match.end() == _LOOKED_AT_MAX and cut:
                break
            parts.append("'…'")
        elif kind == "number":
            parts.append("…")
        elif kind == "unsure":
            parts.append("…")
            break
        else:
            parts.append(_CONTROL.sub(" ", match[0]))
    return " ".join("".join(parts).split())[:CHARACTERS_MAX]
