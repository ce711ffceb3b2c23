"""Columns and transforms of them, by which tables are partitioned and sorted, in the words of Iceberg's SQL.
Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from penstock.sinks.names import OWN_COLUMNS

Transform = Literal["identity", "year", "month", "day", "hour", "bucket", "truncate"]

_NAME = r"(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<plain>[^\s`(),]+))"
_COLUMN = re.compile(_NAME)
_TIME = re.compile(rf"(?P<unit>year|month|day|hour)s?\(\s*{_NAME}\s*\)", re.IGNORECASE)
_WIDE = re.compile(rf"(?P<how>bucket|truncate)\(\s*(?P<width>[0-9]+)\s*,\s*{_NAME}\s*\)", re.IGNORECASE)
_ORDER = re.compile(
    r"(?P<term>.*?)(?:\s+(?P<direction>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?",
    re.IGNORECASE | re.DOTALL,
)
_WIDTH_MAX = 2**31 - 1
"""Iceberg keeps the number of a transform in 32 bits."""


@dataclass(frozen=True)
class Term:
    """A column, or a transform of one. `width`: buckets, or the length that is kept."""

    transform: Transform
    column: str
    width: int | None = None

    @classmethod
    def parse(cls, text: str) -> Term:
        """Raises `ValueError` for a text that is not a term."""
        text = text.strip()
        if match := _COLUMN.fullmatch(text):
            return cls("identity", _name(match))
        if match := _TIME.fullmatch(text):
            unit: Any = match["unit"].lower()
            return cls(unit, _name(match))
        if match := _WIDE.fullmatch(text):
            width, how = int(match["width"]), match["how"].lower()
            if not 0 < width <= _WIDTH_MAX:
                raise ValueError(f"`{text}`: the number must be between 1 and {_WIDTH_MAX}")
            return cls("bucket" if how == "bucket" else "truncate", _name(match), width)
        raise ValueError(
            f"`{text}` is not understood; write a column, `years(column)`, `months(column)`, `days(column)`, "
            "`hours(column)`, `bucket(16, column)` or `truncate(4, column)`, with the column in backticks if "
            "it is no plain name"
        )

    def __str__(self) -> str:
        plain = re.fullmatch(r"\w+", self.column)
        name = self.column if plain else "`" + self.column.replace("`", "``") + "`"
        if self.transform == "identity":
            return name
        if self.width is not None:
            return f"{self.transform}({self.width}, {name})"
        return f"{self.transform}s({name})"


@dataclass(frozen=True)
class Order:
    """A part of a sort order."""

    term: Term
    descending: bool
    nulls_first: bool

    @classmethod
    def parse(cls, text: str) -> Order:
        """The order that a text describes. Raises `ValueError`. NULL is placed where Iceberg's SQL puts it:
        first in ascending order."""
        match = _ORDER.fullmatch(text.strip())
        assert match is not None, "it matches any text"
        descending = (match["direction"] or "asc").lower() == "desc"
        nulls = (match["nulls"] or ("last" if descending else "first")).lower()
        return cls(Term.parse(match["term"]), descending, nulls == "first")


def _name(match: re.Match[str]) -> str:
    name = match["plain"] if match["quoted"] is None else match["quoted"].replace("``", "`")
    if name.lower() in OWN_COLUMNS:
        raise ValueError(f"`{name}` is a column that Penstock itself writes; choose one of the source's")
    return name
