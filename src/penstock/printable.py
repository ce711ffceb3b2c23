"""Makes text from outside safe to print: names, comments, statements and values of a source, ids and reasons
of signals, messages of servers.

Such text may contain escape sequences that a terminal obeys, line breaks that forge a line of a log, and
invisible characters that make one text look like another (text direction, zero width). Everything that is
shown to people goes through `printable`. Output for programs keeps every name unchanged: `printable_json`
only writes these characters as JSON escapes.
"""

from __future__ import annotations

import logging
import re
import shlex
import time
from typing import Any

_UNSAFE = (
    "\x00-\x1f\x7f-\x9f"  # controls: C0, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # text direction
    "\u2028\u2029"  # line separators
    "\u00ad\u180e\u200b-\u200d\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"  # no width
    "\ud800-\udfff"  # lone surrogates, which cannot be encoded
)
_CHARACTERS = re.compile(f"[{_UNSAFE}]")
_IN_JSON = re.compile(f"[{_UNSAFE.removeprefix(chr(0) + '-' + chr(0x1F))}]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: Any, *, lines: bool = False) -> str:
    """Returns `text` as one line, with invisible characters escaped as `\\n`, `\\x1b` or `\\u202e`. With
    `lines`, line breaks are kept and all lines but the first are indented, so that no line looks like another
    message."""
    if lines:
        return "\n  ".join(printable(line) for line in str(text).split("\n"))
    return _CHARACTERS.sub(_escaped, str(text))


def printable_json(text: str) -> str:
    """Returns the same JSON with unsafe characters escaped. A JSON parser reads the same values from it."""
    if text.isascii():
        return text.replace("\x7f", "\\u007f")
    return _IN_JSON.sub(_escaped_in_json, text)


def argument(name: Any) -> str:
    """Quotes a name for a shell command that people copy."""
    return shlex.quote(str(name))


class LogFormatter(logging.Formatter):
    """Formats each record as one line, whatever its arguments contain. Lines of a stack trace are
    indented. Times are in UTC, as in ISO 8601."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return "  " + printable(super().formatException(ei), lines=True)

    def formatStack(self, stack_info: str) -> str:
        return "  " + printable(super().formatStack(stack_info), lines=True)


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escaped_in_json(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2))


def size_text(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
