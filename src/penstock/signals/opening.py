"""Opens the channels of signals that the pipeline file names, and sends signals from Python."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from penstock.config import PipelineConfig
from penstock.model.schema import TableId, TableSchema
from penstock.relaylog.reader import RelayLog
from penstock.signals.acceptance import accept
from penstock.signals.channels import Channel, FileChannel, TableChannel
from penstock.signals.commands import parse
from penstock.state import StateStore


def open_channels(
    config: PipelineConfig,
    state: StateStore,
    relay_log: RelayLog,
    read_table: Callable[[TableId], TableSchema | None],
) -> list[Channel]:
    channels: list[Channel] = []
    if config.signals.file is not None:
        channels.append(FileChannel(config.signals.file, state))
    if config.signals.table is not None:
        table = TableId.parse(config.signals.table)
        channels.append(TableChannel(table, state, relay_log, read_table, config.types))
    if config.signals.kafka is not None:
        from penstock.signals.topic import TopicChannel

        channels.append(TopicChannel(config.signals.kafka, config.name, state))
    return channels


def send(config: PipelineConfig, kind: str, data: dict[str, Any], signal_id: str | None = None) -> str:
    """Sends a signal from any process and returns its id. Raises `ConfigError`."""
    parse(kind, data)
    state = StateStore(config.state)
    state.limit_signals(config.signals)
    try:
        signal_id = signal_id or str(uuid.uuid4())
        accept(state, signal_id, kind, data, "python")
    finally:
        state.close()
    return signal_id
