"""Opens a reader of changes for a pipeline file.

with follow("shop.yaml", ["shop.orders"]) as changes:
    for item in changes: ...
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Literal

from penstock import config as configuration
from penstock.changes.log_order import LogOrderReader
from penstock.changes.reader import ChangeReader, Definitions, Start, wait_for
from penstock.config import PipelineConfig, TablesConfig
from penstock.encode.options import check_format
from penstock.errors import ConfigError, TransientError
from penstock.model.pattern import matches
from penstock.model.plan import Evolve
from penstock.model.schema import TableId
from penstock.model.table import TableState
from penstock.planning.discovery import at_one_offset
from penstock.relaylog.files import LogPlace
from penstock.relaylog.reader import RelayLog
from penstock.sources import open_source
from penstock.sources.base import Source
from penstock.sources.table_filter import TableFilter
from penstock.state import StateStore

Order = Literal["table", "log"]


def follow(
    pipeline: str | Path | PipelineConfig,
    tables: Sequence[str],
    *,
    start: Start = "latest",
    until: int | None = None,
    before_images: bool = True,
    name: str | None = None,
    consumer_id: str | None = None,
    order: Order = "table",
    format: str = "json",
    options: Mapping[str, object] | None = None,
) -> ChangeReader:
    """Reads the relay log of a pipeline file, while `penstock run` or `penstock receive` writes it.

    `tables` are patterns as in the pipeline file. Definitions are those of the pipeline if it has run, else
    those of the source's catalog. `until`, `name`, `consumer_id`: see `ChangeReader`. Close it, or use it in
    a `with`.

    `order="log"` yields whole transactions over all tables, in the order of the log, with the rows as
    messages of a `format` (`LogOrderReader`). Its options are in docs/formats.md.

    Raises `ConfigError` for tables that do not exist or cannot be read, for a start at which definitions are
    not known, and while another reader or a pipeline with this `name` runs. Raises `TransientError` while the
    source does not answer.
    """
    config = pipeline if isinstance(pipeline, PipelineConfig) else configuration.load(pipeline)
    place = _place_of(config)
    source = open_source(config)
    try:
        if StateStore.exists(config.state):
            definitions = planned_definitions(config.state, tables)
        else:
            definitions = catalog_definitions(config, source, tables)
        _refuse_unfollowable(config, source, definitions)
        make: Callable[..., ChangeReader] = partial(ChangeReader, before_images=before_images)
        if order == "log":
            text = json.dumps(dict(options or {}))
            check_format(format, text)
            make = partial(LogOrderReader, format=format, options=text)
        reader = make(
            place, definitions, start=start, until=until, types=config.types, name=name,
            consumer_id=consumer_id, owns_name=name != config.name, source=source,
        )  # fmt: skip
    except BaseException:
        source.close()
        raise
    reader.closing(source.close)
    return reader


def planned_definitions(state: Path, tables: Sequence[str]) -> Definitions:
    """The definitions of a pipeline, at the offset up to which it has planned. The plans that are not applied
    yet are included."""
    with closing(StateStore(state, read_only=True)) as store, store.reading():
        at, known, plans = store.position, store.tables(), store.pending()
    chosen = _matching(tables, known)
    for table in chosen:
        _refuse_unplanned(known[table])
    if at is None:
        raise ConfigError(f"The pipeline of {state} has not begun yet.", hint="Try again in some seconds.")
    evolved = {
        one.table: step.schema
        for plan in plans
        for one in plan.tables
        for step in one.steps
        if isinstance(step, Evolve)
    }
    return Definitions(at, {table: evolved.get(table, known[table].schema) for table in chosen})


def catalog_definitions(config: PipelineConfig, source: Source, tables: Sequence[str]) -> Definitions:
    """The current definitions of the source, and an offset at which they are true."""
    log, catalog = RelayLog.open(_place_of(config)), source.catalog
    captured = TableFilter(TablesConfig(include=list(tables)), fold_case=catalog.fold_case)
    schemas, at, restless = at_one_offset(log, source, wait_for, lambda: catalog.read_tables(captured))
    if restless:
        names = ", ".join(sorted(map(str, restless)))
        raise TransientError(f"The definitions of {names} change faster than they can be read.")
    chosen = _matching(tables, schemas)
    return Definitions(at, {table: schemas[table] for table in chosen})


def _place_of(config: PipelineConfig) -> LogPlace:
    """The relay log; its archive alone on a machine that does not have the log."""
    return LogPlace.of(config).or_archive


def _matching(patterns: Sequence[str], known: Mapping[TableId, object]) -> list[TableId]:
    chosen: dict[TableId, None] = {}
    for pattern in patterns:
        found = [table for table in known if matches(pattern, table)]
        if not found:
            raise ConfigError(f"`{pattern}` matches no table that can be followed.")
        chosen.update(dict.fromkeys(found))
    return list(chosen)


def _refuse_unplanned(table: TableState) -> None:
    if table.planned:
        return
    why = f"it is {table.status}"
    if table.status == "live":
        why = "a resnapshot of it is pending" if table.resnapshot_pending else "it is catching up"
    raise ConfigError(
        f"It is not known from which place in the log the definition of {table.table} is valid: {why}.",
        hint="`penstock status FILE` says more. Leave the table out, or follow it when it is live again.",
    )


def _refuse_unfollowable(config: PipelineConfig, source: Source, definitions: Definitions) -> None:
    cascades = config.cascades != "ignore"
    unfollowable = source.catalog.unfollowable(definitions.schemas, cascades=cascades, reads=False)
    for table, found in sorted(unfollowable.items()):
        hint = "Leave the table out."
        if found == source.catalog.cascade_reason(table):
            hint = "Leave the table out, or accept the gap with `cascades: ignore`."
        raise ConfigError(found[0], hint=hint)
