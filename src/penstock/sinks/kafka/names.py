"""Names of topics, and the number of the partition that a name belongs to. Pure."""

from __future__ import annotations

import hashlib
import re
import string
from dataclasses import dataclass
from functools import cache

from penstock.model.schema import TableId

TEMPLATE_NAMES = {"source", "database", "table"}
NAME_BYTES_MAX = 249
"""Kafka's limit for the name of a topic."""
_GROUP = re.compile(r"\$(?:\{(\w+)\}|(\d))")
_OTHER = re.compile(r"[^A-Za-z0-9._-]")


def template_names(template: str) -> set[str]:
    """The names in braces. Raises `ValueError` if the braces do not fit."""
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}


def topic_name(template: str, source: str, table: TableId | None) -> str:
    """The name of the topic. Kafka's names have only letters, digits, `.`, `_` and `-`. A name with other
    characters, or a longer one, ends in a digest, so that no two tables get one topic by this."""
    database, name = ("", "") if table is None else (table.database, table.table)
    return safe_name(template.format(source=source, database=database, table=name))


def safe_name(text: str) -> str:
    """A name that Kafka allows. See `topic_name`."""
    safe = _OTHER.sub("_", text)
    if safe == text and len(text) <= NAME_BYTES_MAX and text not in (".", ".."):
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{safe[: NAME_BYTES_MAX - 9]}-{digest}"


@dataclass(frozen=True)
class Renaming:
    """A rule with an expression and a replacement as Java writes them."""

    pattern: re.Pattern[str]
    replacement: str

    @classmethod
    @cache
    def of(cls, regex: str, replacement: str) -> Renaming:
        """Reads an expression and a replacement. Raises `ValueError` if they cannot be understood."""
        named = regex.replace("(?<", "(?P<").replace("(?P<=", "(?<=").replace("(?P<!", "(?<!")
        try:
            pattern = re.compile(named)
        except re.error as error:
            raise ValueError(f"`{regex}` is no regular expression: {error}") from None
        for name, number in _GROUP.findall(replacement):
            if int(number or 0) > pattern.groups or (name and name not in pattern.groupindex):
                raise ValueError(f"`{replacement}` names a group that `{regex}` does not have")
        text = _GROUP.sub(r"\\g<\1\2>", replacement.replace("\\", "\\\\"))
        return cls(pattern, text)

    def of_topic(self, name: str) -> str | None:
        """The new name. None: the expression does not fit the whole name."""
        found = self.pattern.fullmatch(name)
        return None if found is None else found.expand(self.replacement)


def murmur2(data: bytes) -> int:
    """The hash of Kafka's own partitioners, as a number from 0."""
    mask, factor = 0xFFFFFFFF, 0x5BD1E995
    length = len(data)
    value = 0x9747B28C ^ length
    for at in range(0, length - 3, 4):
        part = int.from_bytes(data[at : at + 4], "little") * factor & mask
        part = (part ^ part >> 24) * factor & mask
        value = (value * factor & mask) ^ part
    rest = data[length - length % 4 :]
    if rest:
        value = ((value ^ int.from_bytes(rest, "little")) * factor) & mask
    value = ((value ^ value >> 13) * factor) & mask
    return (value ^ value >> 15) & 0x7FFFFFFF
