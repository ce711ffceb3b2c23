"""Where a subscription begins in the log of a MySQL server."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from pydantic import ValidationError

from penstock._core import GtidSet, transactions_of
from penstock.errors import ConfigError
from penstock.model.offset import LogRange, Offset
from penstock.relaylog import segment_format
from penstock.relaylog.log_parts import parts_of
from penstock.relaylog.reader import RelayLog
from penstock.sources.mysql.options import StartAt

__all__ = ["StartAt", "check_start", "offset_of", "start_of"]

_LATER = "Use a later `start`."
_EARLIER = "Use an earlier `start`, or wait until the receiver has got there."
_STEP_BYTES = 64 * 1024**2
"""Bytes of log that are searched at once for the first transaction: a search ends soon after the place that
the index of the log gives."""


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
    return _first(log, _before(log, at_us), lambda *fields: fields[2] >= at_us)


def _at_position(log: RelayLog, file: str, position: int) -> Offset:
    wanted = segment_format.position(file, position)
    if log.position_at(log.start).order > wanted.order and not _in_head(log, file):
        raise ConfigError(f"The relay log begins behind {wanted}.", hint=_LATER)
    if not log.reached(wanted):
        end = log.position_at(log.end)
        raise ConfigError(f"The relay log ends at {end}, before {wanted}.", hint=_EARLIER)
    before: list[int] = []

    def finds(_: str | None, found: str, __: int) -> bool:
        name, _, place = found.rpartition(":")
        if segment_format.position(name, int(place or 0)).order >= wanted.order:
            return True
        before[:] = [int(place)] if name == file else []
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


Finds = Callable[[str | None, str, int], bool]
"""Whether a transaction is the first one: its id, its place, and its commit time in microseconds."""


def _first(log: RelayLog, near: Offset, finds: Finds) -> Offset:
    """Where the first such transaction begins, from `near` on; the log's end if there is none."""
    start = near
    while start < log.end:
        end = log.cut(start, _STEP_BYTES)
        columns = transactions_of(parts_of(log, LogRange(start, end)), [], statements=True)
        for begin, id, place, commit_us in zip(*columns, strict=True):
            if finds(id, place, commit_us):
                return Offset(max(near, begin))
        start = end
    return log.end


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
