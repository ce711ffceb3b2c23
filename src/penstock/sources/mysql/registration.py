"""What MySQL and MariaDB register as a source."""

from __future__ import annotations

from penstock.config import PipelineConfig
from penstock.model.schema import TypeOptions
from penstock.relaylog.reader import RelayLog
from penstock.sources.base import Source
from penstock.sources.kind import SourceKind
from penstock.sources.mysql.options import MySqlOptions
from penstock.sources.statements import Statements
from penstock.sources.table_filter import TableFilter


def _open(config: PipelineConfig, *, foreign_keys: bool) -> Source:
    from penstock.sources.mysql.source import MySqlSource

    return MySqlSource(config, foreign_keys=foreign_keys)


def _statements(captured: TableFilter, log: RelayLog, *, types: TypeOptions) -> Statements:
    from penstock.sources.mysql.source import statements_without_source

    return statements_without_source(captured, log, types=types)


MYSQL = SourceKind(name="mysql", options=MySqlOptions, open=_open, statements=_statements)
