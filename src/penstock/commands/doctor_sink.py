"""What `penstock doctor` finds out about the sink: it uses the target as a pipeline would, with Spark, and
leaves nothing behind. A sink whose targets are on the local disk is not tried."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any, cast

from penstock.config import PipelineConfig
from penstock.errors import PenstockError
from penstock.model.pattern import named_database
from penstock.sinks.base import Foreign, Sink, adopting
from penstock.sinks.refusals import unfit_target
from penstock.sources import open_source
from penstock.sources.preflight import Finding
from penstock.sources.table_filter import TableFilter
from penstock.state import StateStore


def sink_findings(config: PipelineConfig) -> list[Finding]:
    """One finding for each thing that was tried, in order. The first that failed is the last."""
    probe = config.sink_kind.probe(config.sink, config.spark.conf)
    if probe is None and not config.sink.adopts:
        return []
    if probe is not None and config.sink_kind.probes_without_spark:
        return [
            Finding("ok" if one.ok else "error", one.check, one.subject, one.message)
            for one in probe(cast(Any, None), [])
        ]
    from penstock.spark.opened_sink import open_sink
    from penstock.spark.session import build_session

    found = list[Finding]()
    # Not in the state directory, which may not exist yet, and in which a pipeline may be running.
    folder = Path(tempfile.mkdtemp(prefix="penstock-doctor-"))
    try:
        spark = build_session(config.spark, config.sink, folder)
    except PenstockError as error:
        message = f"{error.message} {error.hint}".strip()
        if str(folder) not in message:  # otherwise it names a log in there
            shutil.rmtree(folder, ignore_errors=True)
        return [Finding("error", "spark", config.sink.type, message)]
    try:
        for one in probe(spark, databases_of(config)) if probe is not None else ():
            found.append(Finding("ok" if one.ok else "error", one.check, one.subject, one.message))
        if config.sink.adopts and all(one.level == "ok" for one in found):
            with closing(open_sink(config, spark, _identity(config))) as sink:
                found += _adoptable(config, sink)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _adoptable(config: PipelineConfig, sink: Sink) -> list[Finding]:
    """One finding for each table of others that a run would take over, or could not."""
    from penstock._core import arrow_schema

    try:
        with closing(open_source(config)) as source:
            captured = TableFilter(config.tables, fold_case=source.catalog.fold_case)
            schemas = source.catalog.read_tables(captured)
    except PenstockError:
        return []  # other findings are about the source
    found = []
    for table, schema in sorted(schemas.items()):
        try:
            target = sink.open(table)
            if not isinstance(target, Foreign) or not target.adoptable or not schema.key:
                continue
            arrow = arrow_schema(schema.to_json(), "rows", config.types.to_json())
            if different := adopting(sink).differences(schema, arrow, rows=True):
                raise unfit_target(table, target.place, different)
            message = f"{target.place} exists, fits {table}, and will be adopted with its rows."
            found.append(Finding("ok", "adopt", str(table), message))
        except PenstockError as error:
            found.append(Finding("error", "adopt", str(table), f"{error.message} {error.hint}".strip()))
    return found


def _identity(config: PipelineConfig) -> str:
    """The pipeline's uuid. A pipeline that has never run has none."""
    if not StateStore.exists(config.state):
        return str(uuid.uuid4())
    with closing(StateStore(config.state, read_only=True)) as state:
        return state.uuid


def databases_of(config: PipelineConfig) -> list[str]:
    """The databases that patterns name. If all have wildcards, those of the captured tables; none if the
    source cannot be reached, which other findings are about."""
    named = [name for pattern in config.tables.include if (name := named_database(pattern)) is not None]
    if named:
        return list(dict.fromkeys(named))
    try:
        with closing(open_source(config)) as source:
            captured = TableFilter(config.tables, fold_case=source.catalog.fold_case)
            return sorted({table.database for table in source.catalog.read_tables(captured)})
    except PenstockError:
        return []
