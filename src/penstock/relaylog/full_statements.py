"""Statements in full, from their events: the index holds the beginning of a long one, and not all that its
event says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from penstock._core import DecodeError, whole_statement
from penstock.relaylog.reader import RelayLog, Statement

STATEMENT_BYTES_MAX = 16 * 1024**2
"""A longer statement is not read: what it did is not known then. The longest sensible definitions have some
MiB; the SQL of a DML statement may have more, but its tables stand at its beginning."""


def in_full(log: RelayLog, statement: Statement) -> Statement | None:
    """The statement as its event holds it; None: it is too long, or its event is not in the relay log now."""
    path, base = log.segment_of(statement.end)
    try:
        text = whole_statement(path, base, statement.offset, STATEMENT_BYTES_MAX)
    except DecodeError:
        if Path(path).exists():
            raise
        return None
    if text is None:
        return None
    found = json.loads(text)
    return replace(
        statement,
        database=found["database"],
        sql=found["sql"],
        truncated=False,
        sql_mode=found.get("sql_mode"),
        updates=found.get("updates"),
        unsaid="updates" not in found,
    )
