"""Reads complete statements from their events. The index has only the beginning of a long statement, and not
all fields of its event."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from penstock._core import DecodeError, whole_statement
from penstock.relaylog.reader import RelayLog, Statement

STATEMENT_BYTES_MAX = 16 * 1024**2
"""A longer statement is not read, so its effect is unknown. The longest realistic definitions have some MiB.
The SQL of a DML statement may be longer, but names its tables at the beginning."""


def in_full(log: RelayLog, statement: Statement) -> Statement | None:
    """The complete statement. None: it is too long, or its event is no longer in the relay log."""
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
