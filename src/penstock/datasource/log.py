"""Cuts a part of a relay log into what tasks read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.datasource.definitions import (
    Definitions,
    Stretch,
    refuse_unknown,
    refuse_unseen,
    what_changed,
)
from penstock.datasource.options import RELAY_FOLDER, CdcOptions
from penstock.datasource.partitions import (
    LogPartition,
    Partition,
    Single,
    TruncatePartition,
    arrow_schema,
    grouped,
)
from penstock.datasource.places import offset_of
from penstock.errors import ConfigError, TableError
from penstock.model.offset import LogRange, Offset
from penstock.model.schema import TableId, TableSchema
from penstock.relaylog.files import LogPlace
from penstock.relaylog.reader import RelayLog
from penstock.sources import statements_of
from penstock.sources.table_filter import TableFilter


def open_log(options: CdcOptions) -> RelayLog:
    return RelayLog.open(LogPlace.at(place_of(options)))


def place_of(options: CdcOptions) -> str:
    """The relay log. Raises `ConfigError` if there is only a server."""
    if options.relay_log is not None:
        return options.relay_log
    if options.state is not None and (folder := options.state / RELAY_FOLDER).exists():
        return str(folder)
    raise ConfigError(
        "A batch query of penstock reads a relay log, and there is none yet.",
        hint="Give `relay_log`, or the `state` of a stream; or use `spark.readStream`.",
    )


def reach_of(log: RelayLog, options: CdcOptions) -> LogRange:
    """The part that a batch query reads."""
    start, end = offset_of(log, options.start, "from"), offset_of(log, options.to, "to")
    if end < start:
        raise ConfigError(f"`from` of penstock (offset {start}) is behind `to` (offset {end}).")
    return LogRange(start, end)


def present_schema(options: CdcOptions) -> TableSchema:
    """The definition of the rows that a batch query reads."""
    log = open_log(options)
    reach, schema = reach_of(log, options), None
    for stretch in _stretches(log, options, reach):
        if has_rows(log, options.table_id, stretch.range) or stretch.truncates:
            return refuse_unknown(options.table_id, stretch)
        schema = stretch.schema or schema
    if schema is None:
        raise _unknown(options, reach)
    return schema


def _unknown(options: CdcOptions, reach: LogRange) -> ConfigError:
    return ConfigError(
        f"There is no change of {options.table} between the offsets {reach.start} and {reach.end} of the "
        f"relay log {place_of(options)}, and its columns are not known otherwise.",
        hint="Check the option `table`, or read a longer part of the log.",
    )


def past(options: CdcOptions) -> list[Partition]:
    """The partitions of a batch query. Raises `TableError` if the columns of its one table change in
    between."""
    log = open_log(options)
    if options.is_envelope:
        return of_many(log, options, stretches_of_many(log, options, reach_of(log, options)))
    found: list[Partition] = []
    of_query: TableSchema | None = None
    before: Stretch | None = None
    for stretch in _stretches(log, options, reach_of(log, options)):
        refuse_unseen(options.table_id, stretch)
        if has_rows(log, options.table_id, stretch.range) or stretch.truncates:
            schema = refuse_unknown(options.table_id, stretch)
            of_query = of_query or schema
            if before is not None and not same_columns(of_query, schema, options):
                raise TableError(
                    f"{what_changed(before)} changed the columns of {options.table} within the part that is "
                    "read.",
                    hint=f"Read up to {before.range.end} and from there on by two queries.",
                    table=options.table,
                    offset=int(before.range.end),
                )
            found += partitions_of(log, options, stretch, schema)
        before = stretch
    return found


def _stretches(log: RelayLog, options: CdcOptions, reach: LogRange) -> Iterator[Stretch]:
    return Definitions(log, options.table_id, options.types).along(reach)


def has_rows(log: RelayLog, table: TableId, reach: LogRange) -> bool:
    """Whether the log has rows of the table between two transaction ends."""
    tables: dict[TableId, tuple[int, int]] = log.tables(reach, exact=True)
    return tables.get(table, (0, 0))[0] > 0


def stretches_of_many(
    log: RelayLog, options: CdcOptions, reach: LogRange
) -> Iterator[tuple[TableId, Stretch]]:
    """The stretches of all captured tables that have rows or statements in a part of the log."""
    captured = TableFilter(options.captured, fold_case=False)
    statements = statements_of(log, captured, types=options.types)
    found = {table for table, (events, _) in log.tables(reach, exact=True).items() if events}
    for statement in log.statements(reach):
        found |= statements.touched(statement, set(found))
    for table in sorted(found, key=str):
        if table in captured:
            for stretch in Definitions(log, table, options.types).along(reach):
                yield table, stretch


def of_many(
    log: RelayLog, options: CdcOptions, stretches: Iterable[tuple[TableId, Stretch]]
) -> list[Partition]:
    found: list[Single] = []
    for table, stretch in stretches:
        refuse_unseen(table, stretch)
        if has_rows(log, table, stretch.range) or stretch.truncates:
            found += partitions_of(log, options, stretch, refuse_unknown(table, stretch))
    return grouped(found, options.partition_bytes)


def same_columns(one: TableSchema, other: TableSchema, options: CdcOptions) -> bool:
    return bool(arrow_schema(one, options.types).equals(arrow_schema(other, options.types)))


def partitions_of(log: RelayLog, options: CdcOptions, stretch: Stretch, schema: TableSchema) -> list[Single]:
    """The parts of a stretch that tasks read. Each ends between transactions."""
    found: list[Single] = []
    start = stretch.range.start
    while start < stretch.range.end:
        end = Offset(min(log.cut(start, options.partition_bytes), stretch.range.end))
        if has_rows(log, schema.table, LogRange(start, end)):
            found.append(
                LogPartition(
                    place_of(options), schema, int(start), int(end), options.types, options.before_images
                )
            )
        start = end
    if stretch.truncates:
        at = stretch.range.end
        found.append(TruncatePartition(schema, int(at), log.commit_time_us_at(at), options.types))
    return found
