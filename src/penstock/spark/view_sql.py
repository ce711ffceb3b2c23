"""Finds the tables that a view's query reads."""

from __future__ import annotations

import re
from collections.abc import Iterable

from penstock.model.schema import TableId
from penstock.sinks.spark_sql import quoted

_WORD = r"`(?:[^`]|``)+`|\w+"
_NAME = re.compile(
    r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|--[^\n]*|/\*.*?\*/"  # in which nothing is a name
    rf"|(?P<database>{_WORD})\s*\.\s*(?P<table>{_WORD})",
    re.DOTALL,
)


def tables_in(sql: str, known: Iterable[TableId]) -> tuple[str, list[TableId]]:
    """The query with the bare names of the known tables that it reads, and these tables in order. Names are
    compared as Spark compares them, without letter case."""
    by_name = {(one.database.lower(), one.table.lower()): one for one in known}
    found: dict[TableId, None] = {}

    def bare(match: re.Match[str]) -> str:
        if match["table"] is None:
            return match[0]
        table = by_name.get((_plain(match["database"]), _plain(match["table"])))
        if table is None:
            return match[0]
        found[table] = None
        return quoted(table.table)

    return _NAME.sub(bare, sql), list(found)


def _plain(word: str) -> str:
    return (word[1:-1].replace("``", "`") if word.startswith("`") else word).lower()
