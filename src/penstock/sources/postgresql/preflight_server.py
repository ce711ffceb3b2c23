"""What the checks of `preflight.py` look at."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import psycopg

from penstock.config import PipelineConfig
from penstock.sources.postgresql.catalog import PgTable, read_tables
from penstock.sources.postgresql.options import PostgreSqlOptions, publication_of, slot_of
from penstock.sources.table_filter import TableFilter


@dataclass
class Server:
    """The server that is followed, or one that may be."""

    config: PipelineConfig
    options: PostgreSqlOptions
    connection: psycopg.Connection[Any]

    @property
    def name(self) -> str:
        info = self.connection.info
        return f"{info.host}:{info.port}"

    @property
    def publication(self) -> str:
        return publication_of(self.config)

    @property
    def slot(self) -> str:
        return slot_of(self.config)

    def row(self, query: str, *values: Any) -> tuple[Any, ...] | None:
        return self.connection.execute(query.encode(), values or None).fetchone()

    def setting(self, name: str) -> str:
        row = self.row("SELECT pg_catalog.current_setting(%s, true)", name)
        return "" if row is None or row[0] is None else str(row[0])

    @cached_property
    def captured(self) -> list[PgTable]:
        chosen = TableFilter(self.config.tables)
        return [one for one in read_tables(self.connection, self.publication) if one.table in chosen]
