"""The status of a pipeline: one document for the terminal, for `--json`, for `penstock status` and for tests.

`collect` needs only the state directory and the relay log, so another process can call it while the pipeline
runs. Values that only the running pipeline knows (rates) are in `status.json`, which it writes once a second
and after epochs.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from typing_extensions import assert_never

from penstock.cascades.waiting import Nobody, Operator, Parents, WaitsFor, waits_for
from penstock.config import PipelineConfig
from penstock.errors import LogPurged
from penstock.model.offset import LogRange, Offset
from penstock.model.plan import EpochPlan
from penstock.model.shards import Shards
from penstock.model.table import Change, TableState, is_resnapshot_pending, is_splitting
from penstock.model.views import VIEW_ERROR, view_table
from penstock.relaylog import lease
from penstock.relaylog.holders import Holders
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.status import age_seconds, stamp
from penstock.relaylog.status import read_status as read_receiver_status
from penstock.signals.settings import is_paused, paused
from penstock.snapshot.progress import SnapshotProgress, TableProgress
from penstock.state import StateStore
from penstock.state.chunks import Totals
from penstock.state.report import REPORT_FILE, forget_status, iso, read_end, read_status, replace

log = logging.getLogger(__name__)

LOG_RATE_SECONDS = 10.0
"""The period over which the rate of the log is measured: long enough to include several epochs."""
SNAPSHOT_RATE_SECONDS = 60.0
"""The period over which the rate of snapshots is measured. It is longer, because chunks are placed in
bursts."""
VERIFIED = "verified "
"""Key of the state store, before a table's name: the result of its last verification."""
NOT_THROTTLED: dict[str, Any] = {"throttled": None, "paused_by": None}
PAUSED_SHOWN_MAX = 3
"""Tables that are named if a signal has paused their snapshots."""
SILENT_INTERVALS = 3
"""Report intervals without a report after which the pipeline's loop counts as waiting for the source."""
STALE_INTERVALS = 10
"""Age of the last report, in report intervals, from which on the process counts as suspended, or its machine
as overloaded."""
RECEIVER_SECONDS_MAX = 10.0
"""Age in seconds from which on the same is true of the receiver. It reports every second."""
REPORT_SHARE = 0.02
"""Largest share of the time that reports directly after epochs may take: nothing is planned meanwhile."""


@dataclass
class _Applied:
    """An epoch that was applied at a time of the monotonic clock. `rows`: of chunks. `changes`: rows of the
    log."""

    at: float
    range: LogRange
    rows: int
    changes: int
    transactions: int | None = None
    """Counted when somebody asks."""


class Progress:
    """Counts the work of a running pipeline since its start. Updated by Spark's thread, read by the loop."""

    def __init__(
        self,
        config: PipelineConfig,
        state: StateStore,
        relay_log: RelayLog,
        receiver: Any,
        *,
        gate: Callable[[], dict[str, Any]] = dict,
        http: str | None = None,
        retrying: Callable[[], list[dict[str, Any]]] = list,
    ) -> None:
        """`gate` returns its part of the status (`snapshot/gate.py`). `http`: the address at which the
        pipeline answers HTTP. `retrying` returns what is being retried, and why (`snapshot/retries.py`)."""
        self._retrying = retrying
        self._gate = gate
        self._config = config
        self._interval = config.report_interval / 1000
        self._state = state
        self._log = relay_log
        self._receiver = receiver
        self._http = http
        self.started = time.time()
        self.epochs = 0
        self.changes = 0
        self.rows = 0
        self.chunks = 0
        self._documents = TableDocuments(config, state)
        self._holders = Holders(relay_log.path, relay_log)
        self._recent: deque[_Applied] = deque()
        self._last: dict[str, Any] | None = None
        self._has_news = True
        self._reported = 0.0
        self._pause = 0.0

    def applied(self, plan: EpochPlan, outcomes: list[Any]) -> None:
        changes = sum(outcome.changes for outcome in outcomes)
        rows = sum(outcome.rows for outcome in outcomes)
        self.epochs += 1
        self.changes += changes
        self.rows += rows
        self.chunks += sum(outcome.chunks for outcome in outcomes)
        self._recent.append(_Applied(time.monotonic(), plan.range, rows, changes))
        self._has_news = True

    def should_report(self) -> bool:
        """Whether to write a report: once per interval and after each epoch, with longer pauses if reports
        are expensive."""
        pause = self._pause if self._has_news else self._interval
        return time.monotonic() >= self._reported + min(self._interval, pause)

    def rates(self) -> dict[str, int]:
        """Rates per second: bytes and transactions of the log that were applied during the last ten seconds,
        the rows of them that were written to targets, and snapshot rows placed during the last sixty. Where
        rows are merged, one that changed several times in an epoch is written once. A message counts as one
        row."""
        now, runs = time.monotonic(), time.time() - self.started
        while self._recent and now - self._recent[0].at > SNAPSHOT_RATE_SECONDS:
            self._recent.popleft()
        items = list(self._recent)
        newest = [one for one in items if now - one.at <= LOG_RATE_SECONDS]
        for one in newest:
            if one.transactions is None:  # counted here, because the relay log is read by this thread only
                with contextlib.suppress(LogPurged):  # the epoch's log is deleted already
                    one.transactions = self._log.transactions_between(one.range)
        log_seconds = max(1.0, min(LOG_RATE_SECONDS, runs))
        rows = sum(one.rows for one in items)
        return {
            "log_bytes_per_s": round(sum(one.range.bytes for one in newest) / log_seconds),
            "transactions_per_s": round(sum(one.transactions or 0 for one in newest) / log_seconds),
            "changes_per_s": round(sum(one.changes for one in newest) / log_seconds),
            "snapshot_rows_per_s": round(rows / max(1.0, min(SNAPSHOT_RATE_SECONDS, runs))),
        }

    def to_json(self) -> dict[str, Any]:
        """The current status; after `end`, the last one."""
        if self._last is not None:
            return self._last
        at, rates = stamp(), self.rates()
        document = collect(
            self._config, self._state, self._log, rates["snapshot_rows_per_s"], self._documents, self._holders
        )
        gate = self._gate()
        if document["snapshot"]["done"]:
            gate |= NOT_THROTTLED
        if gate["paused_by"] is None:  # no limit holds it up, but a signal may
            gate |= {name: document["snapshot"][name] for name in NOT_THROTTLED}
        return document | {
            "snapshot": document["snapshot"] | gate,
            "running": True,
            "pid": os.getpid(),
            "receiver": self._receiver.describe(),
            "http": self._http,
            "retrying": self._retrying(),
            "since_start": {
                "epochs": self.epochs,
                "chunks": self.chunks,
                "rows": self.rows,
                "changes": self.changes,
            },
            "rates": rates,
            **at,  # everything in the document is true at this moment or a later one
        }

    def text(self) -> str:
        """The status as JSON. The tables' part is formatted only when it has changed."""
        document = self.to_json()
        if document["tables"] is not self._documents.tables:
            return json.dumps(document)
        rest = json.dumps({name: value for name, value in document.items() if name != "tables"})
        return f'{rest[:-1]}, "tables": {self._documents.text}}}'

    def end(self) -> None:
        """Marks the end of the run."""
        self._last = self.to_json() | {"running": False}
        forget_status(self._config.state)

    def ending(self, running: list[str]) -> None:
        """Reports, while the run ends, what it still waits for."""
        document = self._last or read_status(self._config.state)
        if document is not None:
            self._add(document | {"running": True, "stopping": running})

    def beat(self) -> None:
        """Reports that the loop is waiting for the source and cannot write a report of its own."""
        has_reported = self._reported > 0  # a document before that is of an earlier run
        if not has_reported or self._last is not None or self._is_recent():
            return
        document = read_status(self._config.state)
        if document is not None:
            since = iso(int(document["updated"] * 1e6))
            waits = {"what": "planning", "table": None, "since": since, "attempts": 1,
                     "reason": "Waiting for an answer from the source."}  # fmt: skip
            self._add(document | {"retrying": [*self._retrying(), waits]})

    def _is_recent(self) -> bool:
        return time.monotonic() < self._reported + SILENT_INTERVALS * self._interval

    def _add(self, document: dict[str, Any]) -> None:
        """Writes an old status with a new `alive` time. `updated` stays, because the rest is as old as it
        was."""
        path = self._config.state / REPORT_FILE
        replace(path, json.dumps(document | {"alive": stamp()}), path.with_suffix(".alive"))

    def write(self) -> None:
        started, self._has_news = time.monotonic(), False
        path = self._config.state / REPORT_FILE
        replace(path, self.text(), path.with_suffix(".tmp"))
        self._reported = time.monotonic()
        self._pause = (self._reported - started) / REPORT_SHARE


class TableDocuments:
    """The tables' part of the status. It is rebuilt only when the state has changed: for a thousand idle
    tables, rebuilding would be most of what an idle pipeline does."""

    def __init__(self, config: PipelineConfig, state: StateStore) -> None:
        self._state = state
        self._shards = Shards(config.merge_shards)
        self._at: tuple[int, ...] | None = None
        self._text: str | None = None
        self.tables: list[dict[str, Any]] = []
        self.progress = SnapshotProgress([])
        self.snapshot: dict[str, int | bool] = {}
        self.behind = 0

    def refresh(self) -> None:
        at = self._state.revision()
        if at != self._at:
            self._make()
            self._at, self._text = at, None

    @property
    def text(self) -> str:
        """The tables as JSON."""
        if self._text is None:
            self._text = json.dumps(self.tables)
        return self._text

    def _make(self) -> None:
        totals = self._state.totals()
        changes = {change.table: change for change in self._state.history(last_only=True)}
        verified = self._state.metas(VERIFIED)
        brief = self._state.brief_tables()
        # Foreign keys say what tables wait for. Parsing all definitions takes long, and few tables wait.
        waiting = waits_for(self._state.tables()) if any(map(is_resnapshot_pending, brief)) else {}
        tables = [
            (table, _snapshot_of(table, totals.get(table.table, Totals()), waiting.get(table.table)))
            for table in brief
        ]
        self.progress = SnapshotProgress([progress for _, progress in tables])
        self.snapshot = self.progress.to_json()
        self.behind = sum(not (table.gone or (table.complete and table.streaming)) for table in brief)
        self.tables = [
            _table(table, progress, changes.get(table.table))
            | {
                "waits_for": _waits_for(waiting.get(table.table)),
                "verified": _verified(verified.get(str(table.table))),
                "into": self._shards.into(table.table),
            }
            for table, progress in tables
        ]


def collect(
    config: PipelineConfig,
    state: StateStore,
    relay_log: RelayLog,
    snapshot_rows_per_s: float = 0.0,
    documents: TableDocuments | None = None,
    holders: Holders | None = None,
) -> dict[str, Any]:
    """The status of a pipeline from its state and its relay log."""
    end = relay_log.refresh()
    applied = state.applied_offset() or relay_log.start
    behind = LogRange(Offset(min(applied, end)), end)
    documents = documents or TableDocuments(config, state)
    documents.refresh()
    holders = holders or Holders(relay_log.path, relay_log)
    return {
        "pipeline": config.name,
        "uuid": state.uuid,
        "running": False,
        "stopping": None,
        "ended": read_end(config.state),
        "retrying": [],
        "offset": applied,
        "log_start": relay_log.start,
        "log_end": end,
        "source_position": str(relay_log.position_at(end) or ""),
        "lag": _lag(relay_log, behind) | {"tables": documents.behind},
        "epoch": state.last_epoch(),
        "consumers": [holder.to_json() for holder in holders.find()],
        "snapshot": documents.snapshot
        | paused_by_signal(state)
        | {"seconds_left": documents.progress.seconds_left(snapshot_rows_per_s)},
        "tables": documents.tables,
    } | ({"views": views_of(config, state)} if config.views else {})


def paused_by_signal(state: StateStore) -> dict[str, Any]:
    """Why snapshots wait, if the signal `pause-snapshot` holds them up."""
    if not paused(state):
        return NOT_THROTTLED
    due = {name for name, table in state.tables().items() if table.reading or table.resnapshot_pending}
    held = sorted(
        str(one) for one in due | {part.table for part in state.partials()} if is_paused(state, one)
    )
    if not held:
        return NOT_THROTTLED
    names = ", ".join(held[:PAUSED_SHOWN_MAX])
    more = len(held) - PAUSED_SHOWN_MAX
    which = names + (f" and {more:,} more" if more > 0 else "")
    text = f"the signal pause-snapshot holds up {which}; `penstock signal FILE resume-snapshot` resumes it"
    return {"throttled": text, "paused_by": "signal"}


def views_of(config: PipelineConfig, state: StateStore) -> list[dict[str, Any]]:
    """The views, and why one of them is not up to date."""
    return [
        {"view": str(view_table(name)), "error": state.meta(VIEW_ERROR.format(name=name)) or None}
        for name in config.views
    ]


def _verified(text: str | None) -> dict[str, Any] | None:
    """The result of the last `penstock verify`: time, verdict, number of differing keys, offset."""
    if text is None:
        return None
    found: dict[str, Any] = json.loads(text)
    return found | {"at": iso(int(found["at"] * 1e6))}


def _lag(relay_log: RelayLog, behind: LogRange) -> dict[str, float | int | None]:
    """The lag. `seconds`: the age of the oldest transaction that is not at the targets, by the source's
    commit time and this machine's clock. None if it is unknown: there is no commit time yet, or nothing is
    missing but the receiver does not follow the source."""
    since = relay_log.first_commit_us_after(behind.start) if behind else None
    seconds: float | None
    if since is not None:
        seconds = max(0.0, round(time.time() - since / 1e6, 3))
    else:
        seconds = 0.0 if not behind and _follows(relay_log) else None
    transactions = relay_log.transactions_between(behind) if behind else 0
    return {"bytes": behind.bytes, "transactions": transactions, "seconds": seconds}


def _follows(relay_log: RelayLog) -> bool:
    report = read_receiver_status(relay_log.path)
    recent = age_seconds(report) < RECEIVER_SECONDS_MAX
    return report.get("state") == "streaming" and recent and lease.is_held(relay_log.path)


def _waits_for(waits: WaitsFor | None) -> dict[str, Any] | None:
    match waits:
        case None | Nobody():
            return None
        case Parents(tables=tables):
            return {"who": "parents", "tables": list(map(str, tables))}
        case Operator(parent=parent):
            return {"who": "operator", "tables": [str(parent)]}
        case _:
            assert_never(waits)


def _snapshot_of(table: TableState, totals: Totals, waits: WaitsFor | None) -> TableProgress:
    return TableProgress(
        chunks=totals.chunks,
        chunks_read=totals.read,
        chunks_placed=totals.placed,
        rows_read=totals.rows_read,
        rows_placed=totals.rows_placed,
        rows_guess=table.rows_guess,
        active=table.reading or bool(table.resnapshot_pending and not isinstance(waits, Operator)),
        finding=is_splitting(table),
    )


def _table(table: TableState, progress: TableProgress, change: Change | None) -> dict[str, Any]:
    parked = table.parked
    return {
        "table": str(table.table),
        "status": table.status,
        "snapshot": table.snapshot,
        "schema_version": table.schema.version,
        "start": table.start,
        "chunks": {
            "total": progress.chunks,
            "read": progress.chunks_read,
            "placed": progress.chunks_placed,
        },
        "rows_placed": progress.rows_placed,
        "rows_estimate": progress.rows_estimate,
        "parked": {"offset": parked.at, "reason": parked.reason, "hint": parked.hint} if parked else None,
        "resnapshot_pending": table.resnapshot_pending or None,
        "catching_up": table.catches_up_from,
        "last_change": change_json(change) if change is not None else None,
    }


def change_json(change: Change) -> dict[str, Any]:
    return {
        "table": str(change.table),
        "version": change.version,
        "offset": change.offset,
        "what": change.what,
        "decision": change.decision,
        "statement": change.statement,
        "committed": iso(change.commit_us),
        "recorded": iso(change.noted_us),
    }
