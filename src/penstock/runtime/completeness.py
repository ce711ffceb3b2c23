"""Waits until a target has everything that was committed at the source up to a time.

The argument: the source is asked for its time T, and after that for the end P of its log. A transaction gets
its commit time while it is written to the log, before the log's end moves past it. So whatever has a commit
time up to T is before P. Once the pipeline has applied the log up to P, the target has it. An idle source
needs no transaction for that, because its time moves by itself.

Commit times are those of the source's own clock. Transactions that it has got from another server keep that
server's times, and may come later than T by as much as it is behind.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from penstock import config as configuration
from penstock.config import PipelineConfig
from penstock.errors import ConfigError, TableError, TransientError
from penstock.model.offset import Offset
from penstock.model.schema import TableId
from penstock.model.table import TableState
from penstock.printable import argument
from penstock.relaylog.files import LogPlace
from penstock.relaylog.reader import RelayLog
from penstock.sources import open_source
from penstock.sources.base import Source
from penstock.state import StateStore

LOOK_SECONDS = 0.1
"""Pause between two looks at the state, which cost a read of SQLite."""


@dataclass(frozen=True)
class Complete:
    """The target of `table` has everything that was committed up to `until`, and the log up to `offset`."""

    table: TableId
    until: datetime
    offset: Offset
    epoch: int

    def to_json(self) -> dict[str, Any]:
        until = self.until.isoformat()
        return {
            "table": str(self.table),
            "complete_until": until,
            "offset": int(self.offset),
            "epoch": self.epoch,
        }


def wait_until(
    file: str | Path, table: str, until: datetime | str = "now", *, timeout: float | None = None
) -> Complete:
    """Returns when the target of `table` (`database.table`) has everything that was committed at the source
    up to `until`: a time (without a zone: UTC), or `now`, the source's time at the call. The pipeline must
    run in some process. `timeout`: seconds; None: waits for ever.

    Raises `TableError` if the table is parked, `ConfigError` if it is not captured, and `TransientError` when
    the time is up.
    """
    config = configuration.load(file)
    name = TableId.parse(table)
    deadline = None if timeout is None else time.monotonic() + timeout
    with closing(open_source(config)) as source, closing(StateStore(config.state, read_only=True)) as state:
        wanted = source.clock_us() if until == "now" else _microseconds(until)
        _wait(lambda: source.clock_us() >= wanted, deadline, name, seconds=0.5)
        at = source.clock_us()
        goal = _goal(config, source, deadline, name)

        def applied() -> bool:
            reached = state.applied_offset()
            return reached is not None and reached >= goal and _is_whole(state, name)

        _wait(applied, deadline, name)
        known = state.table(name)
        assert known is not None, "it was found"
        done = datetime.fromtimestamp(at / 1_000_000, timezone.utc)
        return Complete(name, done, Offset(state.applied_offset() or goal), known.last_epoch)


def _goal(config: PipelineConfig, source: Source, deadline: float | None, table: TableId) -> Offset:
    """The offset of the end that the source's log has now."""
    log = RelayLog.open(LogPlace.of(config))
    position, found = source.end_position(), list[Offset]()

    def reached() -> bool:
        log.refresh()
        offset = log.offset_reaching(position)
        found.extend([] if offset is None else [offset])
        return bool(found)

    _wait(reached, deadline, table)
    return found[0]


def _is_whole(state: StateStore, name: TableId) -> bool:
    table = state.table(name)
    if table is None or table.gone:
        raise ConfigError(
            f"The pipeline does not capture {name}.", hint="`penstock status FILE` lists its tables."
        )
    if (parked := table.parked) is not None:
        raise TableError(
            f"{name} is parked: {parked.reason}", hint=parked.hint, table=str(name), offset=int(parked.at)
        )
    return _streams(table)


def _streams(table: TableState) -> bool:
    return table.streaming and table.complete


def _microseconds(until: datetime | str) -> int:
    try:
        moment = datetime.fromisoformat(until) if isinstance(until, str) else until
    except ValueError:
        raise ConfigError(
            f"{until!r} is not a time.", hint="Write it as 2026-11-25T18:00:00+00:00, or `now`."
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
    return int(moment.timestamp() * 1_000_000)


def _wait(condition: Any, deadline: float | None, table: TableId, *, seconds: float = LOOK_SECONDS) -> None:
    while not condition():
        if deadline is not None and time.monotonic() > deadline:
            raise TransientError(
                f"The target of {table} is not complete up to this time yet, and the time-out has passed.",
                hint=f"`penstock status FILE` shows whether the pipeline runs, and its lag. Wait longer with "
                f"`--timeout`, for example: penstock wait-until FILE {argument(table)} now --timeout 600",
                table=str(table),
            )
        time.sleep(seconds)  # polls, with a limit if the caller gives one
