"""How a pipeline is doing: one value for the terminal, for `--json`, for `penstock status` and for tests.

`collect` needs nothing but the state directory and the relay log, so another process may ask while the
pipeline runs. What only the running pipeline knows (rates) it writes to `status.json` about once a second.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from pathlib import Path
from typing import Any

from penstock.config import PipelineConfig
from penstock.model.offset import LogRange, Offset
from penstock.model.plan import EpochPlan
from penstock.relaylog.reader import RelayLog
from penstock.state import StateStore, TableState

RATE_WINDOW_SECONDS = 10.0


class Progress:
    """Counts what a running pipeline has done since it started. Fed by Spark's thread, read by the loop."""

    def __init__(self, config: PipelineConfig, state: StateStore, relay_log: RelayLog, receiver: Any) -> None:
        self._config = config
        self._state = state
        self._log = relay_log
        self._receiver = receiver
        self.started = time.time()
        self.epochs = 0
        self.events = 0
        self.rows = 0
        self.chunks = 0
        self._recent: deque[tuple[float, int, int]] = deque()

    def applied(self, plan: EpochPlan, outcomes: list[Any]) -> None:
        events = sum(plan_events(plan).values())
        rows = sum(outcome.rows for outcome in outcomes)
        self.epochs += 1
        self.events += events
        self.rows += rows
        self.chunks += sum(outcome.chunks for outcome in outcomes)
        self._recent.append((time.monotonic(), plan.range.bytes, rows))

    def rates(self) -> dict[str, float]:
        """Per second, over the last ten: bytes of log applied and snapshot rows placed."""
        now = time.monotonic()
        while self._recent and now - self._recent[0][0] > RATE_WINDOW_SECONDS:
            self._recent.popleft()
        span = max(1.0, min(RATE_WINDOW_SECONDS, time.time() - self.started))
        items = list(self._recent)
        return {
            "log_bytes_per_s": round(sum(item[1] for item in items) / span),
            "snapshot_rows_per_s": round(sum(item[2] for item in items) / span),
        }

    def to_json(self) -> dict[str, Any]:
        document = collect(self._config, self._state, self._log)
        rates = self.rates()
        document |= {
            "running": True,
            "pid": os.getpid(),
            "receiver": self._receiver.describe(),
            "since_start": {"epochs": self.epochs, "chunks": self.chunks, "rows": self.rows},
            "rates": rates,
            "updated": time.time(),
        }
        left = document["snapshot"]["rows_left"]
        document["snapshot"]["seconds_left"] = (
            None
            if not left or not rates["snapshot_rows_per_s"]
            else round(left / rates["snapshot_rows_per_s"])
        )
        return document

    def remove(self) -> None:
        """The pipeline does not run any more."""
        (self._config.state / "status.json").unlink(missing_ok=True)

    def write(self) -> None:
        path = self._config.state / "status.json"
        draft = path.with_suffix(".tmp")
        draft.write_text(json.dumps(self.to_json()), "utf-8")
        draft.replace(path)


def plan_events(plan: EpochPlan) -> dict[str, int]:
    return {str(table.table): sum(getattr(step, "bytes", 0) for step in table.steps) for table in plan.tables}


def collect(config: PipelineConfig, state: StateStore, relay_log: RelayLog) -> dict[str, Any]:
    """The pipeline as its state and its relay log show it."""
    end = relay_log.refresh()
    applied = state.applied_offset() or relay_log.start
    behind = LogRange(Offset(min(applied, end)), end)
    tables = [_table(state, table) for table in state.tables().values()]
    snapshot = {
        "chunks": sum(t["chunks"]["total"] for t in tables),
        "chunks_read": sum(t["chunks"]["read"] for t in tables),
        "chunks_placed": sum(t["chunks"]["placed"] for t in tables),
        "rows_placed": sum(t["rows_placed"] for t in tables),
        "rows_left": sum(
            max(0, t["rows_estimate"] - t["rows_placed"]) for t in tables if t["chunks"]["total"]
        ),
        "done": all(t["snapshot"] in ("none", "done") or t["status"] == "parked" for t in tables),
    }
    return {
        "pipeline": config.name,
        "uuid": state.uuid,
        "running": False,
        "offset": applied,
        "log_start": relay_log.start,
        "log_end": end,
        "source_position": str(relay_log.position_at(end) or ""),
        "lag": _lag(relay_log, behind),
        "epoch": state.last_epoch(),
        "snapshot": snapshot,
        "tables": tables,
    }


def _lag(relay_log: RelayLog, behind: LogRange) -> dict[str, float | int]:
    if not behind:
        return {"bytes": 0, "transactions": 0, "seconds": 0.0}
    since = relay_log.commit_time_us_at(behind.start)
    return {
        "bytes": behind.bytes,
        "transactions": relay_log.transactions_between(behind),
        "seconds": max(0.0, round(time.time() - since / 1e6, 3)) if since else 0.0,
    }


def _table(state: StateStore, table: TableState) -> dict[str, Any]:
    counts = state.chunk_counts(table.table)
    placed, staged = state.rows_placed(table.table)
    total = sum(counts.values())
    read = counts.get("staged", 0) + counts.get("placed", 0)
    return {
        "table": str(table.table),
        "status": table.status,
        "snapshot": table.snapshot,
        "schema_version": table.schema.version,
        "start": table.start,
        "chunks": {"total": total, "read": read, "placed": counts.get("placed", 0)},
        "rows_placed": placed,
        # Chunks hold about the same number of rows each, so what was read says what is to come.
        "rows_estimate": round(staged / read * total) if read else table.rows_estimate,
        "parked": {"offset": table.parked_at, "reason": table.reason, "hint": table.hint}
        if table.status == "parked"
        else None,
    }


def read_status(directory: Path) -> dict[str, Any] | None:
    """What the running pipeline wrote last; None when it is not running or has never run."""
    try:
        document = json.loads((directory / "status.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) and time.time() - document.get("updated", 0) < 10 else None
