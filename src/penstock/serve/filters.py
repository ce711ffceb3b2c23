"""Which tables a subscription has, in Canal's words: a list of regular expressions for `database.table`,
divided by commas. One of them must match the whole name; letter case does not count. An empty list matches
all tables.

An expression may come from a client. Python's `re` can take forever for some of them, so it gets only simple
ones. Others are for RE2, which needs linear time and has no look-around and no back references.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.model.schema import TableId

FILTER_CHARACTERS_MAX = 16_384
"""A list of a thousand tables is shorter."""
_REPEATS_MAX = 3
"""Repetitions in one expression for `re`. A name has at most 129 characters, so that no match takes more than
some milliseconds."""

Matches = Callable[[str], bool]


class BadFilter(ValueError):
    """A filter that cannot be used, and why."""


def expressions(text: str) -> list[str]:
    """Splits a list into its expressions. A comma in braces (`[0-9]{1,3}`) does not separate expressions."""
    return [part for part in (one.strip() for one in re.split(r",(?![^{}]*\})", text)) if part]


def compiled(text: str) -> list[Matches]:
    """Raises `BadFilter`."""
    if len(text) > FILTER_CHARACTERS_MAX:
        raise BadFilter(f"A filter has at most {FILTER_CHARACTERS_MAX} characters.")
    return [_compiled(one) for one in expressions(text)]


def _compiled(expression: str) -> Matches:
    simple = "(" not in expression and sum(map(expression.count, "*+?{")) <= _REPEATS_MAX
    try:
        found = re.compile(expression, re.IGNORECASE | re.DOTALL)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadFilter(f"`{expression[:200]}` is not a regular expression: {error}.") from None
    if simple:
        return lambda name: found.fullmatch(name) is not None
    return _linear(expression)


def _linear(expression: str) -> Matches:
    import pyarrow as pa  # large, and few filters need it
    from pyarrow import compute

    whole = f"(?is)^(?:{expression})$"

    def matches(name: str) -> bool:
        return bool(compute.match_substring_regex(pa.scalar(name), whole).as_py())

    try:
        matches("")
    except pa.ArrowInvalid as error:
        raise BadFilter(f"`{expression[:200]}` cannot be used: {error}") from None
    return matches


@dataclass(unsafe_hash=True)
class Filter:
    """Tables that an expression of each list in `include` matches, and none in `exclude`."""

    include: tuple[str, ...] = ()
    exclude: str = ""
    _include: list[list[Matches]] = field(init=False, repr=False, compare=False)
    _exclude: list[Matches] = field(init=False, repr=False, compare=False)
    _known: dict[TableId, bool] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Raises `BadFilter`."""
        lists = [compiled(one) for one in self.include]
        self._include = [one for one in lists if one]
        self._exclude = compiled(self.exclude)

    def narrowed(self, text: str) -> Filter:
        """The tables of this filter that a client has asked for, too. Raises `BadFilter`."""
        if not text or text in self.include:
            return self
        return Filter((*self.include, text), self.exclude)

    def __contains__(self, table: TableId) -> bool:
        found = self._known.get(table)
        if found is None:
            found = self._known[table] = self._decide(table)
        return found

    def _decide(self, table: TableId) -> bool:
        name = f"{table.database}.{table.table}"
        if any(matches(name) for matches in self._exclude):
            return False
        return all(any(matches(name) for matches in one) for one in self._include)
