"""What MySQL and MariaDB register as a source."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.config import PipelineConfig
from penstock.model.schema import TypeOptions
from penstock.relaylog.reader import RelayLog
from penstock.sources.base import Source
from penstock.sources.first_file import FirstFile
from penstock.sources.kind import SourceKind
from penstock.sources.mysql.options import MySqlOptions, StartAt, options_of
from penstock.sources.statement_reading import StatementReading
from penstock.sources.statements import Statements
from penstock.sources.stop_signals import Stopping, ensure_end
from penstock.sources.table_filter import TableFilter

if TYPE_CHECKING:
    from penstock.sources.mysql.log_places import MySqlPlaces

log = logging.getLogger(__name__)


def _open(config: PipelineConfig, *, foreign_keys: bool) -> Source:
    from penstock.sources.mysql.source import MySqlSource

    return MySqlSource(config, foreign_keys=foreign_keys)


def _statements(captured: TableFilter, log: RelayLog, *, types: TypeOptions) -> Statements:
    from penstock.sources.mysql.log_statements import statements_without_source

    return statements_without_source(captured, log, types=types)


def _read_statement(statement: Mapping[str, Any]) -> StatementReading:
    from penstock.sources.mysql.statement_reading import read_statement

    return read_statement(statement)


def _places() -> MySqlPlaces:
    from penstock.sources.mysql.log_places import MySqlPlaces

    return MySqlPlaces()


def _receive(config: PipelineConfig, stopping: Stopping) -> None:
    from penstock.sources.mysql import timeouts
    from penstock.sources.mysql.receiver import Receiver

    ensure_end(stopping, timeouts.interrupt)
    source = options_of(config)
    log.info("receiving from %s:%s into %s", source.host, source.port, config.relay_log_path)
    Receiver(config, stopping).run()


def _first_file() -> FirstFile:
    from penstock.sources.mysql.first_file import FIRST_FILE

    return FIRST_FILE


MYSQL = SourceKind(
    name="mysql", options=MySqlOptions, open=_open, statements=_statements, read_statement=_read_statement,
    of_the_server=frozenset(("mysql", "sys", "performance_schema")), start=StartAt, places=_places,
    canal_places=_places,
    receive=_receive, first_file=_first_file,
)  # fmt: skip
