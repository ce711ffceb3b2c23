"""What `penstock doctor` finds out about the sink: it uses the target as a pipeline would, with Spark, and
leaves nothing behind. A sink whose targets are on the local disk is not tried."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import closing
from pathlib import Path

from penstock.config import PipelineConfig
from penstock.errors import PenstockError
from penstock.model.pattern import named_database
from penstock.sources import open_source
from penstock.sources.preflight import Finding
from penstock.sources.table_filter import TableFilter


def sink_findings(config: PipelineConfig) -> list[Finding]:
    """One finding for each thing that was tried, in order. The first that failed is the last."""
    probe = config.sink_kind.probe(config.sink, config.spark.conf)
    if probe is None:
        return []
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
        for one in probe(spark, databases_of(config)):
            found.append(Finding("ok" if one.ok else "error", one.check, one.subject, one.message))
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return found


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
