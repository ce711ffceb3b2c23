"""What a subscription server knows of MySQL, since Canal is about MySQL: entries of statements, and where a
subscription begins in the log."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

from pydantic import ValidationError

from penstock._core import GtidSet, transactions_of
from penstock.encode.statements import parsed, session_of
from penstock.errors import ConfigError
from penstock.model.offset import LogRange, Offset
from penstock.model.schema import TableId
from penstock.relaylog import segment_format
from penstock.relaylog.log_parts import parts_of
from penstock.relaylog.reader import RelayLog, Statement
from penstock.sources.mysql.ddl import statement as syntax
from penstock.sources.mysql.ddl.server import Server
from penstock.sources.mysql.event_types import event_warns, has_sql
from penstock.sources.mysql.messages.canal import canal_entry, canal_type, renamed
from penstock.sources.mysql.options import StartAt

__all__ = [
    "UNREADABLE_HINT",
    "StartAt",
    "check_start",
    "event_warns",
    "has_sql",
    "offset_of",
    "start_of",
    "statement_entries",
    "unreadable",
]

UNREADABLE_HINT = (
    "Leave the table out with the destination's `exclude`, or begin behind it (`start`). With "
    "binlog_row_metadata=FULL, the log has the names of columns itself, also of the past."
)
"""For rows that do not fit what is known of their table."""

_SERVER = Server.parse("8.0")
_ANY_TABLE = TableId("", "")
_LATER = "Use a later `start`."
_EARLIER = "Use an earlier `start`, or wait until the receiver has got there."
_STEP_BYTES = 64 * 1024**2
"""Bytes of log that are searched at once for the first transaction: a search ends soon after the place that
the index of the log gives."""


def statement_entries(
    statement: Mapping[str, Any],
    wanted: Callable[[TableId], bool],
    *,
    ddl: bool,
    row_statements: bool,
    format: str,
) -> list[bytes]:
    """The entries of a statement in the log (`LogEncoder.read`), one for each table that is wanted. `ddl`:
    those of statements that define tables. `row_statements`: those of statements that change rows and have no
    row events. `format`: `canal-entry`, or `json`. What is no statement, but may have changed rows, is told
    like one without a table, with a comment as its SQL."""
    if not has_sql(statement["event"]):
        statement = {**statement, "sql": f"-- {event_warns(statement['event'])}"}
    kind, defines, tables = _about(statement, wanted)
    if not (ddl if defines else row_statements):
        return []
    if format == "json":
        return [_json(statement, kind, table) for table in tables]
    return [canal_entry(statement, kind, table.database, table.table, defines=defines) for table in tables]


def statement_of(statement: Statement, wanted: Callable[[TableId], bool]) -> dict[str, Any] | None:
    """What clients get for a statement about one of the wanted tables. None: it is about none of them."""
    kind, _, tables = _about(vars(statement), wanted)
    if not tables:
        return None
    sql = statement.sql if has_sql(statement.event) else f"-- {event_warns(statement.event)}"
    return {"kind": kind, "database": tables[0].database, "table": tables[0].table, "sql": sql}


def _about(
    statement: Mapping[str, Any], wanted: Callable[[TableId], bool]
) -> tuple[str, bool, list[TableId]]:
    """Canal's type of a statement, whether it is DDL, and the wanted tables that it is about."""
    if not has_sql(statement["event"]):
        return "QUERY", False, [_ANY_TABLE]
    read = parsed(statement, session_of(_SERVER, statement))
    if isinstance(read, syntax.RowStatement):
        return "QUERY", False, [table for table in read.tables if wanted(table)]
    kind, names = canal_type(read, statement["sql"])
    tables = [TableId(*name) for name in names]
    before = renamed(read)
    return kind, True, [one for one in tables if wanted(one) or (one in before and wanted(before[one]))]


def _json(statement: Mapping[str, Any], kind: str, table: TableId) -> bytes:
    document = {
        "database": table.database, "table": table.table, "op": "statement", "kind": kind,
        "sql": statement["sql"], "ts_us": statement["commit_us"], "id": statement["id"],
        "sequence": statement["end"],
    }  # fmt: skip
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def unreadable(reason: str) -> str:
    """Why rows cannot be decoded, without what only helps users of `penstock encode`."""
    return reason.partition("; give its definition by")[0]


def start_of(asked: Any) -> StartAt:
    """The `start` that a client asks for. Raises `ConfigError`."""
    try:
        return StartAt.model_validate(asked)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ConfigError(f"`start` cannot be {str(asked)[:100]!r}: {reason}.") from None


def check_start(start: StartAt) -> None:
    """Raises `ConfigError` for a start that cannot be a place in any log."""
    if start.gtid is not None:
        _transactions(start.gtid)
    if start.timestamp is not None:
        _microseconds(start.timestamp)


def offset_of(log: RelayLog, start: StartAt) -> Offset:
    """Where a new subscription begins. Raises `ConfigError` for a place that the log does not have."""
    if start.at is not None:
        return log.end if start.at == "latest" else log.start
    if start.file is not None and start.position is not None:
        return _at_position(log, start.file, start.position)
    if start.gtid is not None:
        return _behind_transactions(log, start.gtid)
    assert start.timestamp is not None
    at_us = _microseconds(start.timestamp)
    return _first(log, _before(log, at_us), lambda *fields: fields[3] >= at_us)


def _at_position(log: RelayLog, file: str, position: int) -> Offset:
    wanted = segment_format.position(file, position)
    if log.position_at(log.start).order > wanted.order and not _in_head(log, file):
        raise ConfigError(f"The relay log begins behind {wanted}.", hint=_LATER)
    if not log.reached(wanted):
        end = log.position_at(log.end)
        raise ConfigError(f"The relay log ends at {end}, before {wanted}.", hint=_EARLIER)
    before: list[int] = []

    def finds(_: str | None, found: str, place: int, __: int) -> bool:
        if _order(found, place) >= wanted.order:
            return True
        before[:] = [place] if found == file else []
        return False

    offset = _first(log, log.offset_within(wanted) or log.start, finds)
    if before and log.position_at(offset).order > wanted.order:
        begins, ends = segment_format.position(file, before[0]), log.position_at(offset)
        raise ConfigError(
            f"{wanted} is inside of a transaction.", hint=f"It begins at {begins} and ends at {ends}."
        )
    return offset


def _in_head(log: RelayLog, file: str) -> bool:
    """Whether the log has this file of the source from its beginning. The first events of a file describe it,
    and the log starts behind them: so 4, where all files begin, is before the log's start."""
    _, base = log.segment_of(log.start)
    return str(log.position_at(log.start)) == f"{file}:{log.start - base}"


def _behind_transactions(log: RelayLog, text: str) -> Offset:
    executed = _transactions(text)
    if not log.executed_at(log.start).issubset(executed):
        raise ConfigError(f"The relay log begins behind `start.gtid` {text}.", hint=_LATER)
    if not executed.issubset(log.executed_at(log.end)):
        raise ConfigError(
            f"`start.gtid` names transactions that the relay log does not have: {text}.", hint=_EARLIER
        )
    near = log.window_start(executed, not_after=log.end)
    return _first(log, near, lambda gtid, *_: gtid is not None and not GtidSet(gtid).issubset(executed))


def _transactions(text: str) -> GtidSet:
    try:
        return GtidSet(text)
    except ValueError as error:
        raise ConfigError(f"`start.gtid`: {error}.") from None


Finds = Callable[[str | None, str, int, int], bool]
"""Whether a transaction is the first one: its id, file, position, and commit time in microseconds."""


def _first(log: RelayLog, near: Offset, finds: Finds) -> Offset:
    """Where the first such transaction begins, from `near` on; the log's end if there is none."""
    start = near
    while start < log.end:
        end = log.cut(start, _STEP_BYTES)
        columns = transactions_of(parts_of(log, LogRange(start, end)), [], statements=True)
        for begin, gtid, file, position, commit_us in zip(*columns, strict=True):
            if finds(gtid, file, position, commit_us):
                return Offset(max(near, begin))
        start = end
    return log.end


def _order(file: str, position: int) -> tuple[int, ...]:
    return segment_format.position(file, position).order


def _before(log: RelayLog, at_us: int) -> Offset:
    """A committed offset behind which all transactions are that were committed at `at_us` or later, as far as
    commit times increase."""
    found = log.start
    for name in log.segments():
        for entry in log.entries_of(name):
            if entry.last_commit_us is not None and entry.last_commit_us >= at_us:
                return found
            found = Offset(max(found, entry.committed))
    return found


def _microseconds(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise ConfigError(
            f"`{text}` is no time.", hint="Write it as 2026-11-25T10:00:00Z, without a zone it is UTC."
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
    return int(moment.timestamp() * 1_000_000)
