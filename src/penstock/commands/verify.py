"""`penstock verify FILE [TABLE…]`: compares targets with the source, while writes continue."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import config as configuration
from penstock.commands.table_arguments import table_named
from penstock.commands.terminal import say, say_json
from penstock.commands.working import Working
from penstock.config import PipelineConfig
from penstock.errors import ConfigError
from penstock.failures.messages import explained
from penstock.model.table import TableState
from penstock.relaylog.files import LogPlace
from penstock.relaylog.reader import RelayLog
from penstock.runtime.describe import ensure_run
from penstock.runtime.progress import VERIFIED
from penstock.sources import open_source
from penstock.state import StateStore
from penstock.verify.check import Verification
from penstock.verify.report import ALL_EQUAL, KEYS_LISTED, TableReport, exit_code
from penstock.verify.target_versions import PipelineVersions
from penstock.verify.window import RelayLogWindow

if TYPE_CHECKING:
    from penstock.sinks.base import Sink


def verify(file: Path, tables: Sequence[str], *, as_json: bool) -> int:
    """Compares the tables of each sink of the file, prints a report for each, and returns the exit code of
    `verify.report.exit_code`: of several sinks, that of the worst result, which is the lowest but 0."""
    config, members = configuration.load_several(file)
    if not members:
        found, code = _verify(config, tables, as_json=as_json)
        if as_json:
            say_json(found)
        return code
    able = {name: member for name, member in members.items() if member.sink_kind.keeps_tables}
    documents, codes = {}, set()
    for name, member in (able or members).items():  # without any, the first one says why not
        if not as_json:
            say(f"{file}#{name}")
        documents[name], code = _verify(member, tables, as_json=as_json)
        codes.add(code)
    if as_json:
        say_json({"equal": codes == {ALL_EQUAL}, "sinks": documents})
    else:
        for name in members.keys() - able.keys():
            say(f"{file}#{name} has no tables to compare.")
    return min(codes - {ALL_EQUAL}, default=ALL_EQUAL)


def _verify(config: PipelineConfig, tables: Sequence[str], *, as_json: bool) -> tuple[dict[str, Any], int]:
    """The `--json` document and the exit code for one sink. Prints the reports without `as_json`."""
    ensure_run(config)
    reports = []
    with contextlib.closing(StateStore(config.state)) as state, Working("opening the state") as working:
        for report in verified(config, state, choose(state, tables)):
            reports.append(report)
            remember(state, report)
            if not as_json:
                for line in report.lines():
                    working.say(line)
    code = exit_code(reports, named=bool(tables))
    return document(reports, code), code


def document(reports: Iterable[TableReport], code: int) -> dict[str, Any]:
    """Returns the `--json` document. `tables`: those that were compared or should have been. `equal`: whether
    the exit code is 0."""
    found = sorted(reports, key=lambda report: report.table)
    return {
        "equal": code == ALL_EQUAL,
        "tables": [report.to_json() for report in found if report.not_compared is None],
        "not_compared": [report.to_json() for report in found if report.not_compared is not None],
    }


def remember(state: StateStore, report: TableReport) -> None:
    """Stores result, time and offset of the comparison for `penstock status`."""
    if report.not_compared is None:
        summary = report.summary() | {"at": time.time()}
        state.set_meta(VERIFIED + str(report.table), json.dumps(summary))


def choose(state: StateStore, names: Sequence[str]) -> list[TableState]:
    """Returns the captured tables with these names, or all of them if there are no names. Raises
    `ConfigError` for a table that is not captured."""
    known = state.tables()
    if not names:
        return [known[table] for table in sorted(known)]
    chosen = [table_named(name) for name in names]
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
    """Yields the report of each table as soon as it is compared. Raises `ConfigError` if the sink is a change
    log, or cannot be read back."""
    from penstock.sinks.base import Scannable, readable
    from penstock.spark.opened_sink import open_sink
    from penstock.spark.session import build_session
    from penstock.spark.verify import SparkTarget, transformed_rows, transformed_views
    from penstock.verify.present import PresentTargets

    folder = config.state / "verify"
    with contextlib.ExitStack() as closing:
        source = open_source(config)
        closing.callback(source.close)
        spark = build_session(config.spark, config.sink, folder)
        closing.callback(spark.stop)
        sink = open_sink(config, spark, state.uuid)
        _refuse_unreadable(config, sink)
        with explained("The comparison failed", folder):
            sink.check()
        log = RelayLog.open(LogPlace.of(config))
        made, versions = transformed_rows(sink, config.types), PipelineVersions(config, state, log)
        present = PresentTargets(sink, versions, made) if isinstance(sink, Scannable) else None
        verification = Verification(
            transformed_views(source.read_view, sink),
            present or SparkTarget(readable(sink).read, made),
            present or versions,
            RelayLogWindow(log, source.row_images, config.types),
            types=config.types,
            keys_listed=keys_listed,
        )
        if present is not None:
            closing.callback(present.close)
        with explained("The comparison failed", folder):
            for report in verification.verify([(table.table, table.rows_guess) for table in tables]):
                if present is not None:
                    present.close()  # who gets the report may need the pipeline
                yield report


def _refuse_unreadable(config: PipelineConfig, sink: Sink) -> None:
    from penstock.sinks.base import Readable, Scannable, TableSink
    from penstock.sinks.registry import own_names

    if not isinstance(sink, (Readable, Scannable)):
        raise ConfigError(
            f"The targets of the sink {config.sink.type} cannot be read back, so there is nothing to "
            "compare with.",
            hint="Compare them with the source's tables by other means.",
        )
    if not isinstance(sink, TableSink):
        raise ConfigError(
            f"The sink {config.sink.type} is a change log, so there is no table to compare with.",
            hint=f"`penstock verify` works with the sink {own_names(lambda kind: kind.keeps_tables)}.",
        )
