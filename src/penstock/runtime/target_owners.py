"""Asks the targets of a pipeline's tables which pipeline has created them."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.config import PipelineConfig
from penstock.errors import ConfigError, PenstockError
from penstock.model.schema import TableId
from penstock.sinks.base import Foreign, Missing
from penstock.sources import open_source
from penstock.sources.table_filter import TableFilter


@dataclass(frozen=True)
class Owned:
    """The target of a captured table. `owner`: the uuid of the pipeline that has created it; None: there is
    no target, or nobody can say. `note`: what is in its place then."""

    table: TableId
    place: str
    owner: str | None
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"table": str(self.table), "target": self.place, "pipeline": self.owner, "note": self.note}


def owners(config: PipelineConfig) -> list[Owned]:
    """One entry for each captured table, ordered by name. Starts Spark, and changes nothing. A sink that
    takes messages does not store whose topics are whose: then no table has an owner."""
    from penstock.spark.opened_sink import open_sink
    from penstock.spark.session import build_session

    with closing(open_source(config)) as source:
        captured = TableFilter(config.tables, fold_case=source.catalog.fold_case)
        tables = sorted(source.catalog.read_tables(captured))
    if config.sink_kind.takes_messages or not config.sink_kind.durable:
        note = "this sink does not store who writes"
        return [Owned(table, config.sink.type, None, note) for table in tables]
    folder = Path(tempfile.mkdtemp(prefix="penstock-owners-"))  # the state may not exist
    try:
        spark = build_session(config.spark, config.sink, folder)
        try:
            nobody = str(uuid.uuid4())  # so every target that has an owner is another pipeline's
            with closing(open_sink(config, spark, nobody)) as sink:
                sink.check()
                return [_owned(sink, table) for table in tables]
        finally:
            spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _owned(sink: Any, table: TableId) -> Owned:
    try:
        target = sink.open(table)
    except PenstockError as error:  # a damaged target; the pipeline says more
        return Owned(table, "", None, error.message)
    if isinstance(target, Foreign):
        return Owned(table, target.place, target.owner, "" if target.owner else target.reason)
    return Owned(table, "", None, "no target yet" if isinstance(target, Missing) else "")


def the_owner(found: Sequence[Owned], wanted: str | None) -> str | None:
    """The uuid of the pipeline that owns the targets. None: no target has an owner. Raises `ConfigError` if
    several pipelines own them, or none that is `wanted`."""
    known = sorted({one.owner for one in found if one.owner is not None})
    if wanted is not None and known and wanted not in known:
        raise ConfigError(
            f"No target belongs to the pipeline {wanted}.", hint=f"They belong to {', '.join(known)}."
        )
    if wanted is not None or not known:
        return wanted
    if len(known) > 1:
        counts = ", ".join(f"{one} ({sum(each.owner == one for each in found)} tables)" for one in known)
        raise ConfigError(
            f"The targets belong to several pipelines: {counts}.",
            hint="Say which of them this pipeline continues: `--pipeline UUID`. The tables of the others are "
            "parked when it runs. Leave them out by `tables.exclude`, or drop their targets.",
            pipelines=known,
        )
    return known[0]
