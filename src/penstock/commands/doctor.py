"""`penstock doctor FILE`: checks the source, prints the SQL that fixes what is wrong, and tries staging and
the sink."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from pathlib import Path

from rich.table import Table
from rich.text import Text

from penstock import config as configuration
from penstock.commands.doctor_sink import sink_findings
from penstock.commands.doctor_staging import staging_findings
from penstock.commands.terminal import cell, console, say_json
from penstock.commands.working import Working
from penstock.config import PipelineConfig
from penstock.errors import PenstockError
from penstock.model.schema import TableId
from penstock.model.table import TableState
from penstock.planning.parked_reasons import FOUND, checked, present_reasons
from penstock.planning.parking import at_start
from penstock.printable import printable
from penstock.signals.settings import tables_by_signal, with_signals
from penstock.sources import open_source
from penstock.sources.base import Source
from penstock.sources.preflight import Finding
from penstock.sources.table_filter import TableFilter
from penstock.state import StateStore
from penstock.steps import step

_ORDER = {"error": 0, "warning": 1, "ok": 2}
_MARKS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "error": ("error", "bold red")}


def doctor(file: Path, *, as_json: bool) -> int:
    """Prints what `findings_of`, `staging_findings` and `sink_findings` find, for each sink of the file.
    Returns the exit code: 1 if something must be fixed before the pipeline can run."""
    config, members = configuration.load_several(file)
    documents = {}
    for name, member in (members or {"": config}).items():
        with Working("checking the source"):
            findings = findings_of(member)
            step("trying staging")
            findings += staging_findings(member)
            step("trying the sink")
            findings += sink_findings(member)
        findings.sort(key=lambda finding: _ORDER[finding.level])
        ok = not any(finding.level == "error" for finding in findings)
        documents[name] = {"ok": ok, "findings": [finding.to_json() for finding in findings]}
        if not as_json:
            if name:
                console().print(cell(f"{file}#{name}", "bold"), soft_wrap=True)
            show(findings)
    ok = all(document["ok"] for document in documents.values())
    if as_json:
        say_json({"ok": ok, "sinks": documents} if members else documents[""])
    return int(not ok)


def findings_of(config: PipelineConfig) -> list[Finding]:
    """Returns the findings about the source, and one for each table that is parked or that `penstock run`
    would park, worst first. Includes tables added by signals. Changes nothing, so it may be used while the
    pipeline runs."""
    found = list[Finding]()
    known: dict[TableId, TableState] = {}
    found_before: dict[str, str] = {}
    removed: list[TableId] = []
    if StateStore.exists(config.state):
        try:
            with closing(StateStore(config.state, read_only=True)) as state:
                config, known = with_signals(config, state), state.tables()
                found_before = state.metas(FOUND)
                removed = list(map(TableId.parse, tables_by_signal(state)["removed"]))
        except PenstockError as error:
            found.append(Finding("warning", "state", str(config.state), f"{error.message} {error.hint}"))
    with closing(open_source(config, foreign_keys=config.cascades == "apply")) as source:
        found += source.preflight.check(config)
        if not any(finding.level == "error" for finding in found):
            found = with_parked(found, known, _at_start(config, source, known, removed, found_before))
    return sorted(found, key=lambda finding: _ORDER[finding.level])


def _at_start(
    config: PipelineConfig,
    source: Source,
    known: Mapping[TableId, TableState],
    removed: Collection[TableId],
    found_before: Mapping[str, str],
) -> dict[TableId, TableState]:
    """Returns the tables in the state in which `penstock run` would start to follow them. Those that are
    parked say whether the cause is still there (`planning/parked_reasons.py`)."""
    catalog = source.catalog
    captured = TableFilter(config.tables, fold_case=catalog.fold_case)
    captured.set(config.tables, removed)
    schemas = catalog.read_tables(captured)
    unfollowable = catalog.unfollowable(
        schemas, cascades=config.cascades == "park", reads=config.snapshot.mode != "never"
    )
    now = present_reasons(known, schemas, unfollowable, config, catalog)
    said = {name: checked(known[name], why, found_before.get(str(name))) for name, why in now.items()}
    return at_start(
        {**known, **said}, schemas, unfollowable, config, catalog.cascade_reason,
        logs_cascades=catalog.logs_cascades, add_key=catalog.add_key,
    )  # fmt: skip


def with_parked(
    findings: Iterable[Finding],
    known: Mapping[TableId, TableState],
    tables: Mapping[TableId, TableState],
) -> list[Finding]:
    """Returns the findings, and one for each table that is or will be parked. That one replaces the findings
    about the table's key, cascades and versioning, and that it is broken. `known`: the tables as they are
    stored. `tables`: the tables once the pipeline has started."""
    parked = {name: found for name, state in tables.items() if (found := state.parked) is not None}
    names = set(map(str, parked))
    kept, replaced = list[Finding](), dict[str, list[Finding]]()
    for one in findings:
        if one.check in ("key", "cascade", "versioning", "broken") and one.subject in names:
            replaced.setdefault(one.subject, []).append(one)
        else:
            kept.append(one)
    for table, why in parked.items():
        was, name = known.get(table), str(table)
        now = "is parked" if was is not None and was.parked is not None else "will be parked"
        message = f"{name} {now}; other tables are not affected. {why.reason} {why.hint}".strip()
        instead = replaced.get(name, [])
        check = instead[0].check if instead else "parked"
        sql = "\n".join(dict.fromkeys(one.sql for one in instead if one.sql))
        kept.append(Finding("warning", check, name, message, sql, parks=True))
    return kept


def show(findings: list[Finding]) -> None:
    out = console()
    table = Table(show_lines=False, pad_edge=False, box=None)
    table.add_column("check", no_wrap=True)
    table.add_column("result", no_wrap=True)
    table.add_column("what", overflow="fold")
    for finding in findings:
        mark, style = _MARKS[finding.level]
        table.add_row(finding.check, cell(mark, style), cell(finding.message))
    out.print(table)
    cures = list(dict.fromkeys(one.sql for one in findings if one.sql and one.level != "ok"))
    if cures:
        out.print("\nSQL to run at the source:\n", style="bold")
        for sql in cures:
            # Not wrapped, so that it can be copied.
            out.print(Text("\n".join(map(printable, sql.split("\n")))), soft_wrap=True)
    errors = sum(finding.level == "error" for finding in findings)
    warnings = sum(finding.level == "warning" for finding in findings)
    out.print(f"\n{errors} error(s), {warnings} warning(s)")
