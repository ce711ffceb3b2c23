"""`penstock verify FILE [TABLE…]`: is the target equal to the source? Writes may go on meanwhile."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from penstock import config as configuration
from penstock.commands.status import describe
from penstock.config import PipelineConfig
from penstock.errors import ConfigError
from penstock.model.schema import TableId
from penstock.model.table import TableState
from penstock.progress import VERIFIED
from penstock.relaylog.reader import RelayLog
from penstock.sources.mysql import hosts
from penstock.sources.mysql.connection import connect
from penstock.state import StateStore
from penstock.verify.check import Verification
from penstock.verify.report import KEYS_LISTED, TableReport
from penstock.verify.source import ReadView, read_view
from penstock.verify.window import RelayLogWindow
from penstock.versions import PipelineVersions


def verify(file: Path, tables: Sequence[str], *, as_json: bool) -> int:
    """The exit code: 0 if every table is proven equal, else 1."""
    config = configuration.load(file)
    describe(config)  # refuses a pipeline that was never run
    state = StateStore(config.state)
    console = Console()
    reports = []
    try:
        for report in verified(config, state, choose(state, tables)):
            reports.append(report)
            remember(state, report)
            if not as_json:
                console.print("\n".join(report.lines()), markup=False, highlight=False)
    finally:
        state.close()
    equal = all(report.equal for report in reports)
    if as_json:
        print(json.dumps({"equal": equal, "tables": [report.to_json() for report in reports]}))
    return 0 if equal else 1


def remember(state: StateStore, report: TableReport) -> None:
    """For `penstock status`: what came of it, when, and at which place of the log."""
    state.set_meta(VERIFIED + str(report.table), json.dumps(report.summary() | {"at": time.time()}))


def choose(state: StateStore, names: Sequence[str]) -> list[TableState]:
    known = state.tables()
    if not names:
        return [known[table] for table in sorted(known)]
    chosen = [TableId.parse(name) for name in names]
    for table in chosen:
        if table not in known:
            raise ConfigError(
                f"The pipeline does not capture {table}.", hint="`penstock status FILE` lists its tables."
            )
    return [known[table] for table in chosen]


def verified(
    config: PipelineConfig,
    state: StateStore,
    tables: Sequence[TableState],
    *,
    keys_listed: int = KEYS_LISTED,
) -> Iterator[TableReport]:
    from penstock.sinks import build_sink
    from penstock.spark.session import build_session
    from penstock.spark.verify import SparkTarget

    @contextmanager
    def views() -> Iterator[ReadView]:
        connection = connect(hosts.followed(config.source, config.relay_log_path))
        try:
            with read_view(connection, config.snapshot.watermark_table) as view:
                yield view
        finally:
            connection.close()

    spark = build_session(config.spark, config.sink, config.state / "verify")
    try:
        sink = build_sink(config.sink, spark, state.uuid, config.merge_shards)
        if sink.append_only:
            raise ConfigError(
                f"The sink {config.sink.type} keeps every change, so there is no table to compare with.",
                hint="verify works with the sinks iceberg and delta.",
            )
        log = RelayLog.open(config.relay_log_path)
        verification = Verification(
            views,
            SparkTarget(sink.read),
            PipelineVersions(config, state, log),
            RelayLogWindow(log),
            types=config.types,
            keys_listed=keys_listed,
        )
        for table in tables:
            obstacle = _obstacle(table)
            if obstacle is None:
                yield verification.verify(table.schema)
            else:
                yield TableReport(table.table, 0, 0, None, error=obstacle)
    finally:
        spark.stop()


def _obstacle(table: TableState) -> str | None:
    """Why this table cannot be compared now."""
    if table.status == "dropped":
        return "It was dropped at the source."
    if table.status == "removed":
        return "It was removed from this pipeline."
    if table.due:
        return f"It is to be read again: {table.due}."
    if table.catching_up:
        return f"It catches up since it was unparked, and stands at offset {table.resumes}."
    if table.kept is not None:
        return "Its target keeps other columns than the source has (`schema.changes: ignore`)."
    if table.status == "parked":
        return f"The table is parked: {table.reason} {table.hint}".strip()
    if table.snapshot in ("splitting", "reading"):
        return "Its snapshot is not complete yet. Wait for it: `penstock status FILE` shows how far it is."
    if table.last_epoch <= 0:
        return "The pipeline has not written it yet."
    return None
