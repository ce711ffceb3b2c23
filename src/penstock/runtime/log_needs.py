"""Computes how far back a pipeline still needs the relay log. `relaylog/retention.py` argues why this is
enough."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.config import PipelineConfig
from penstock.model.offset import Offset
from penstock.model.table import is_catching_up, is_reading
from penstock.relaylog.consumers import Consumer
from penstock.signals.channels import read_to
from penstock.state import StateStore


def needed(state: StateStore, signals: Iterable[Offset] = ()) -> Offset:
    """Everything at or before this offset is never read again. `signals`: offsets up to which the source's
    log was read for signals."""
    with state.reading():
        position = state.position
        if position is None:
            return Offset(0)
        offsets = [position, *signals]
        offsets += [] if (planned := state.oldest_planned()) is None else [planned]
        offsets += [table.start for table in state.tables_that(is_reading)]
        offsets += [one.since for one in state.partials()]
        behind = (one.catches_up_from for one in state.tables_that(is_catching_up))
        offsets += [at for at in behind if at is not None]
    return min(offsets)


def register(config: PipelineConfig, state: StateStore) -> Consumer:
    """Registers the pipeline as a consumer of its relay log, identified by its state. Raises `ConfigError`
    if a running consumer has its name."""
    signals = [at for at in [read_to(state)] if at is not None and config.signals.table is not None]
    return Consumer(
        config.relay_log_path,
        config.name,
        id=state.uuid,
        kind="pipeline",
        place=str(config.state),
        needs=needed(state, signals),
        owns_name=state.position is not None,  # checked before: it has read this log
    )
