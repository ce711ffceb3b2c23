"""`penstock repair FILE [TABLE…]`: reads again what `verify` finds different, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from penstock import config as configuration
from penstock.commands.signal import has_ended, sent
from penstock.commands.status import describe
from penstock.commands.verify import choose, remember, verified
from penstock.model.schema import TableSchema
from penstock.model.signal import Signal
from penstock.snapshot.keys import BINARY
from penstock.state import StateStore
from penstock.verify.report import DifferentKey, TableReport

KEYS_MAX = 10_000
"""Beyond that the whole table is read."""


def repair(file: Path, tables: Sequence[str], *, as_json: bool) -> int:
    """The exit code: 0 if nothing differs, or all that differed has been read again."""
    config = configuration.load(file)
    describe(config)
    state = StateStore(config.state)
    console = Console()
    found: list[dict[str, Any]] = []
    left = False
    try:
        schemas = {table.table: table.schema for table in state.tables().values()}
        for report in verified(config, state, choose(state, tables), keys_listed=KEYS_MAX):
            remember(state, report)
            signal = None
            if not report.equal and report.error is None:
                signal = _read_again(state, report, schemas[report.table], config.state)
            left |= report.error is not None or (signal is not None and signal.status != "done")
            found.append({"table": str(report.table), "verdict": report.verdict, "error": report.error,
                          "signal": signal.to_json() if signal else None})  # fmt: skip
            if not as_json:
                console.print(_line(report, signal), markup=False, highlight=False)
    finally:
        state.close()
    if as_json:
        print(json.dumps({"tables": found}))
    return 1 if left else 0


def _read_again(state: StateStore, report: TableReport, schema: TableSchema, folder: Path) -> Signal:
    """By its keys, if they can be named; else the whole table."""
    whole = {"data-collections": [str(report.table)]}
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


def _line(report: TableReport, signal: Signal | None) -> str:
    if signal is None:
        return "\n".join(report.lines())
    count = len(report.keys_different)
    what = f"{count:,} keys" if "keys" in signal.data else "the whole table"
    said = "done" if signal.status == "done" else f"{signal.status}: see `penstock signals FILE {signal.id}`"
    return f"{report.table}: {report.verdict}; {what} read again ({said})"
