"""Reads complete statements from their events. The index has only the beginning of a long statement, and not
all fields of its event."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from penstock._core import DecodeError, whole_statement
from penstock.errors import LogPurged
from penstock.relaylog.reader import RelayLog, Statement
from penstock.store.errors import ObjectMissing

STATEMENT_BYTES_MAX = 16 * 1024**2
"""A longer statement is not read, so its effect is unknown. The longest realistic definitions have some MiB.
The SQL of a DML statement may be longer, but names its tables at the beginning."""


def in_full(log: RelayLog, statement: Statement) -> Statement | None:
    """The complete statement. None: it is too long, or its event is no longer in the relay log."""
    try:
        file, base = log.segment_of(statement.end, start=statement.offset)
        text = whole_statement(file, base, statement.offset, STATEMENT_BYTES_MAX)
    except (LogPurged, ObjectMissing, FileNotFoundError):
        return None
    except DecodeError as error:
        if error.path is None or not error.reason.startswith("cannot be opened") or Path(error.path).exists():
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
        server_charset=found.get("server_charset"),
        updates=found.get("updates"),
        unsaid="updates" not in found,
    )
