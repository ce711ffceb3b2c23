"""`penstock doctor FILE`: everything about the source that keeps a pipeline from working, and the SQL that
mends it."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock import config as configuration
from penstock.errors import PenstockError
from penstock.signals.work import as_told
from penstock.sources.base import Finding
from penstock.sources.mysql import preflight
from penstock.state import StateStore

_ORDER = {"error": 0, "warning": 1, "ok": 2}
_MARKS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "error": ("error", "bold red")}


def doctor(file: Path, *, as_json: bool) -> int:
    """Prints what preflight finds, worst first; the exit code: 1 if anything must be mended before a pipeline
    can run. Looks also at the tables that signals added. Reads only, also while the pipeline runs."""
    config, found = configuration.load(file), list[Finding]()
    if StateStore.exists(config.state):
        try:
            with closing(StateStore(config.state, read_only=True)) as state:
                config = as_told(config, state)
        except PenstockError as error:
            found.append(Finding("warning", "state", str(config.state), f"{error.message} {error.hint}"))
    findings = sorted(found + preflight.check(config), key=lambda finding: _ORDER[finding.level])
    failed = any(finding.level == "error" for finding in findings)
    if as_json:
        print(json.dumps({"ok": not failed, "findings": [finding.to_json() for finding in findings]}))
    else:
        _show(findings)
    return int(failed)


def _show(findings: list[Finding]) -> None:
    console = Console()
    table = Table(show_lines=False, pad_edge=False, box=None)
    table.add_column("check", no_wrap=True)
    table.add_column("result", no_wrap=True)
    table.add_column("what", overflow="fold")
    for finding in findings:
        mark, style = _MARKS[finding.level]
        table.add_row(finding.check, Text(mark, style=style), Text(finding.message))
    console.print(table)
    cures = list(dict.fromkeys(one.sql for one in findings if one.sql and one.level != "ok"))
    if cures:
        console.print("\nSQL that mends it, to be run at the source:\n", style="bold")
        for sql in cures:
            # Not wrapped, so that it can be copied.
            console.print(Text(sql), soft_wrap=True)
    errors = sum(finding.level == "error" for finding in findings)
    warnings = sum(finding.level == "warning" for finding in findings)
    console.print(f"\n{errors} error(s), {warnings} warning(s)")
