"""What PostgreSQL registers as a source."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from penstock.config import PipelineConfig
from penstock.errors import ConfigError
from penstock.model.schema import TypeOptions
from penstock.relaylog.reader import RelayLog
from penstock.sources.base import Source
from penstock.sources.first_file import FirstFile
from penstock.sources.kind import SourceKind
from penstock.sources.postgresql.options import PostgreSqlOptions, StartAtLsn
from penstock.sources.source_places import Places
from penstock.sources.statements import Statements
from penstock.sources.stop_signals import Stopping
from penstock.sources.table_filter import TableFilter


def ensure_package() -> None:
    if find_spec("psycopg") is None:
        raise ConfigError(
            "`source.type: postgresql` needs the package psycopg.", hint="pip install 'penstock[postgresql]'"
        )


def _open(config: PipelineConfig, *, foreign_keys: bool) -> Source:
    ensure_package()
    from penstock.sources.postgresql.source import PostgreSqlSource

    return PostgreSqlSource(config)


def _statements(captured: TableFilter, log: RelayLog, *, types: TypeOptions) -> Statements:
    from penstock.sources.postgresql.source import statements_of

    return statements_of(captured, log)


def _receive(config: PipelineConfig, stopping: Stopping) -> None:
    ensure_package()
    from penstock.sources.postgresql.receiver import receive

    receive(config, stopping)


def _drop_slot(config: PipelineConfig) -> str | None:
    ensure_package()
    from penstock.sources.postgresql.slots import drop

    return drop(config)


def _adopt_server(config: PipelineConfig) -> dict[str, Any]:
    ensure_package()
    from penstock.sources.postgresql.adoption import adopt

    return adopt(config)


def _places() -> Places:
    from penstock.sources.postgresql.log_places import PostgreSqlPlaces

    return PostgreSqlPlaces()


def _first_file() -> FirstFile:
    ensure_package()
    from penstock.sources.postgresql.first_file import FIRST_FILE

    return FIRST_FILE


POSTGRESQL = SourceKind(
    name="postgresql", options=PostgreSqlOptions, open=_open, statements=_statements, receive=_receive,
    drop_slot=_drop_slot, adopt_server=_adopt_server, start=StartAtLsn, places=_places,
    first_file=_first_file,
)  # fmt: skip
