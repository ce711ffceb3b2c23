"""What topics that Debezium fills register as a source."""

from __future__ import annotations

from penstock.config import PipelineConfig
from penstock.model.schema import TypeOptions
from penstock.relaylog.reader import RelayLog
from penstock.sources.base import Source
from penstock.sources.debezium.options import DebeziumOptions
from penstock.sources.kind import SourceKind
from penstock.sources.statements import Statements
from penstock.sources.stop_signals import Stopping
from penstock.sources.table_filter import TableFilter


def _open(config: PipelineConfig, *, foreign_keys: bool) -> Source:
    from penstock.sources.debezium.source import DebeziumSource

    return DebeziumSource(config)


def _statements(captured: TableFilter, log: RelayLog, *, types: TypeOptions) -> Statements:
    from penstock.relaylog.segment_format import format_of
    from penstock.sources.debezium.statements import statements_of
    from penstock.sources.registry import of_format

    if (earlier := of_format(format_of(log.facts))) is not None:
        # Version 0.1.0 wrote topics as a log of another source, with its SQL.
        statements: Statements = earlier.statements(captured, log, types=types)
        return statements
    return statements_of(captured, log)


def _receive(config: PipelineConfig, stopping: Stopping) -> None:
    from penstock.sources.debezium.receiver import receive

    receive(config, stopping)


DEBEZIUM = SourceKind(
    name="debezium", options=DebeziumOptions, open=_open, statements=_statements, receive=_receive
)
