"""What a pipeline would do, without starting it: its tables, their targets, and how long the first read may
take. Reads definitions and estimates of the source, and changes nothing."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from penstock._core import arrow_schema
from penstock.config import PipelineConfig
from penstock.errors import PenstockError
from penstock.model.schema import TableSchema
from penstock.planning.parking import at_start
from penstock.runtime.notebook import Plan
from penstock.sources import open_source
from penstock.sources.base import Source
from penstock.sources.table_filter import TableFilter

ROWS_PER_SECOND = 50_000
"""Rows that one connection reads from a table with about fifteen columns, on a small machine
(docs/performance.md). The estimate of the time of a snapshot is as rough as this number."""
_ORDER = {"error": 0, "warning": 1, "ok": 2}


def plan(config: PipelineConfig) -> Plan:
    """The tables that the pipeline would follow, as they are now. Raises `TransientError` if the source does
    not answer, and `ConfigError` for mistakes of the configuration."""
    with closing(open_source(config, foreign_keys=config.cascades == "apply")) as source:
        findings = source.preflight.check(config)
        schemas, parked = {}, {}
        if not any(finding.level == "error" for finding in findings):
            catalog = source.catalog
            schemas = catalog.read_tables(TableFilter(config.tables, fold_case=catalog.fold_case))
            unfollowable = catalog.unfollowable(
                schemas, cascades=config.cascades == "park", reads=config.snapshot.mode != "never"
            )
            parked = at_start(
                {}, schemas, unfollowable, config, catalog.cascade_reason,
                logs_cascades=catalog.logs_cascades, add_key=catalog.add_key,
            )  # fmt: skip
        tables = [_table(config, source, schema) for schema in schemas.values()]
    for one in tables:
        found = next((state.parked for name, state in parked.items() if str(name) == one["table"]), None)
        one["parked"] = None if found is None else {"reason": found.reason, "hint": found.hint}
    rows = sum(one["rows_estimate"] for one in tables)
    pace = config.snapshot.parallel * ROWS_PER_SECOND
    if config.snapshot.rows_per_second:
        pace = min(pace, config.snapshot.rows_per_second)
    return Plan(
        pipeline=config.name,
        sink=config.sink.type,
        tables=tables,
        rows_estimate=rows,
        snapshot_seconds=0 if config.snapshot.mode == "never" else round(rows / pace, 1),
        findings=sorted((one.to_json() for one in findings), key=lambda one: _ORDER[one["level"]]),
    )


def _table(config: PipelineConfig, source: Source, schema: TableSchema) -> dict[str, Any]:
    arrow = arrow_schema(schema.to_json(), "rows", config.types.to_json())
    rows = _rows(config, source, schema) if config.snapshot.mode != "never" else 0
    return {
        "table": str(schema.table),
        "target": list(config.sink.place(schema.table) or (schema.table.database, schema.table.table)),
        "key": list(schema.key),
        "columns": {column.name: str(arrow.field(column.name).type) for column in schema.columns},
        "rows_estimate": rows,
        "chunks": -(-rows // config.snapshot.chunk_rows),
    }


def _rows(config: PipelineConfig, source: Source, schema: TableSchema) -> int:
    """The number of rows by the source's estimate. 0: it has none."""
    sizes: list[int] = []
    try:
        chunks = source.chunks.find(schema, config.snapshot.chunk_rows, "", sized=sizes.append)
        next(chunks, None)
    except PenstockError:  # an estimate is not worth an error
        return 0
    return sizes[0] if sizes else 0
