"""`penstock repair FILE [TABLE…]`: verifies, then reads again only the keys that differ."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from penstock import config as configuration
from penstock.commands.signal import has_ended, sent
from penstock.commands.terminal import say_json
from penstock.commands.verify import choose, remember, verified
from penstock.commands.working import Working
from penstock.model.column_type import BINARY
from penstock.model.pattern import exactly
from penstock.model.schema import TableSchema
from penstock.model.signal import Signal
from penstock.runtime.describe import ensure_run
from penstock.state import StateStore
from penstock.verify.report import DifferentKey, TableReport, exit_code

KEYS_MAX = 10_000
"""Differing keys of a table up to which only these are read again. With more, reading the whole table is
quicker than so many single rows."""


def repair(file: Path, tables: Sequence[str], *, as_json: bool) -> int:
    """Verifies the tables, reads again what differs, and prints the results. Returns the exit code of
    `verify`. A table that differed and was read again counts as equal."""
    config = configuration.load(file)
    ensure_run(config)
    state = StateStore(config.state)
    state.limit_signals(config.signals)
    found: list[dict[str, Any]] = []
    reports: list[TableReport] = []  # of tables that were not repaired
    with closing(state), Working("opening the state") as working:
        schemas = {table.table: table.schema for table in state.tables().values()}
        for report in verified(config, state, choose(state, tables), keys_listed=KEYS_MAX):
            remember(state, report)
            signal = None
            if not report.equal and report.error is None and report.not_compared is None:
                signal = _read_again(state, report, schemas[report.table], config.state)
            if signal is None or signal.status != "done":
                reports.append(report)
            left_out = report.not_compared.to_json() if report.not_compared is not None else None
            found.append({"table": str(report.table), "verdict": report.verdict, "error": report.error,
                          "not_compared": left_out,
                          "signal": signal.to_json() if signal else None})  # fmt: skip
            if not as_json:
                for line in _lines(report, signal):
                    working.say(line)
    if as_json:
        say_json({"tables": found})
    return exit_code(reports, named=bool(tables))


def _read_again(state: StateStore, report: TableReport, schema: TableSchema, folder: Path) -> Signal:
    """Reads the differing keys again if all are listed, otherwise the whole table."""
    whole = {"data-collections": [exactly(report.table)]}
    listed = report.keys_different and not report.keys_not_listed and not report.unverified
    if listed and not report.ranges_different:
        keys = [_key(schema, different) for different in report.keys_different]
        found = sent(state, "execute-snapshot", whole | {"keys": keys}, folder, until=has_ended)
        if found.status != "refused":
            return found
    return sent(state, "execute-snapshot", whole, folder, until=has_ended)


def _key(schema: TableSchema, different: DifferentKey) -> list[str | None]:
    return [
        f"0x{different.key[name]}" if schema.column(name).type in BINARY else different.key[name]
        for name in schema.key
    ]


def _lines(report: TableReport, signal: Signal | None) -> list[str]:
    if signal is None:
        return report.lines()
    count = len(report.keys_different)
    what = f"{count:,} keys" if "keys" in signal.data else "the whole table"
    said = "done" if signal.status == "done" else f"{signal.status}: see `penstock signals FILE {signal.id}`"
    return [f"{report.table}: {report.verdict}; {what} read again ({said})"]
