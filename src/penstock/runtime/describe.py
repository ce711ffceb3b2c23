"""The status of a pipeline, whoever asks for it and whether it runs or not."""

from __future__ import annotations

import math
from contextlib import closing
from pathlib import Path
from typing import Any

from penstock.config import PipelineConfig
from penstock.disk.directory import is_held
from penstock.errors import ConfigError
from penstock.printable import size_text
from penstock.relaylog import lease
from penstock.relaylog.files import LogPlace
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.status import read_status as read_receiver
from penstock.relaylog.status import silence
from penstock.runtime.progress import STALE_INTERVALS, collect
from penstock.state import StateStore
from penstock.state.moved import refuse_moved
from penstock.state.report import end_text, read_end, read_status, report_age_seconds


def ensure_run(config: PipelineConfig) -> None:
    """Raises `ConfigError` if the pipeline has never run: other commands need its state. Also if it was
    moved."""
    refuse_moved(config.state)
    if not StateStore.exists(config.state):
        raise ConfigError(
            f"Pipeline {config.name} has not been run yet: there is no state in {config.state}.",
            hint=_last_try(config),
        )


def _last_try(config: PipelineConfig) -> str:
    """A hint for a pipeline that does not run: why its last run ended, or how it is started."""
    ended = read_end(config.state)
    return end_text(ended) if ended else "Start it with `penstock run FILE`, which says what is wrong."


def describe(config: PipelineConfig) -> dict[str, Any]:
    """Returns the running pipeline's last report. If there is no recent report, reads the pipeline's files
    instead. `running`: whether a process holds the lock on the state. `silent_seconds`: age of that process's
    last report in seconds, or None if the report is recent. `ended`: when and why the last run was ended by
    an error or by force; None while a process runs."""
    ensure_run(config)
    lives = is_held(config.state)
    report = read_status(config.state) if lives else None
    silent = report_age_seconds(report) if report is not None else None
    silent_max = STALE_INTERVALS * config.report_interval / 1000
    if report is not None and silent is not None and silent < silent_max:
        return report | {"silent_seconds": None}
    with closing(StateStore(config.state, read_only=True)) as state:
        if state.applied_offset() is None and not RelayLog.exists(LogPlace.of(config)):
            raise ConfigError(
                f"Pipeline {config.name} has received nothing from its source yet.",
                hint="It is starting." if lives else _last_try(config),
            )
        document = collect(config, state, RelayLog.open(LogPlace.of(config)))
    return document | {
        "running": lives,
        "silent_seconds": round(silent) if silent is not None and math.isfinite(silent) else None,
        "receiver": describe_receiver(config.relay_log_path),
        "ended": None if lives else read_end(config.state),
    }


def describe_member(config: PipelineConfig) -> dict[str, Any]:
    """The status of one of several sinks, which may not have run yet."""
    if StateStore.exists(config.state) and RelayLog.exists(LogPlace.of(config)):
        return describe(config)
    running = is_held(config.state)
    return {
        "pipeline": config.name,
        "running": running,
        "ended": None if running else read_end(config.state),
    }


def describe_receiver(folder: Path) -> str:
    """Returns what the receiver of a relay log is doing, or how it ended. Empty if it never ran."""
    report = read_receiver(folder)
    if not report:
        return ""
    message = f": {report['message']}" if report.get("message") else ""
    if report.get("state") in ("stopped", "failed"):
        return f"{report['state']}{message}"
    if not lease.is_held(folder):
        return "killed"
    kept = f"{_slot(report)}{_streamed(report)}{_archive(report)}"
    return f"{report.get('state')} (process {report.get('pid')}){silence(report)}{message}{kept}"


def _slot(report: dict[str, Any]) -> str:
    """How much of its log the source keeps for the receiver, and how long it may go on until that is lost."""
    slot = report.get("slot")
    if not isinstance(slot, dict) or slot.get("kept_bytes") is None:
        return ""
    left = slot.get("source_log_seconds_left")
    until = "" if left is None else f", lost in {left / 3600:.1f} h if the receiver stops"
    return f"; slot {slot.get('wal_status')}, keeps {size_text(int(slot['kept_bytes']))}{until}"


def _streamed(report: dict[str, Any]) -> str:
    """How much has come of transactions that run."""
    streamed = report.get("streamed")
    if not isinstance(streamed, dict) or not streamed.get("transactions"):
        return ""
    return f"; {streamed['transactions']} open transactions, {size_text(int(streamed['bytes']))} so far"


def _archive(report: dict[str, Any]) -> str:
    """How much of the log is not in the archive yet, and the error that stops it."""
    archive = report.get("archive")
    if not isinstance(archive, dict):
        return ""
    behind = size_text(max(0, int(report.get("offset") or 0) - int(archive.get("end") or 0)))
    trouble = f": {archive['error']}" if archive.get("error") else ""
    return f"; {behind} not in the archive yet{trouble}"
