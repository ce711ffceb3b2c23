"""The options of the sink `opensearch`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from penstock.model.change import SEQUENCE
from penstock.model.schema import TableId
from penstock.model.units import Bytes, Milliseconds
from penstock.secret import Secret
from penstock.sinks import server_url
from penstock.sinks.kind import SinkOptions
from penstock.sinks.names import index_name, which_penstock_adds
from penstock.sinks.table_entries import Property, TableEntry


class FieldsEntry(TableEntry):
    """An entry of `sink.mappings`."""

    fields: dict[str, dict[str, Any]]
    """For each column the mapping of its field, such as `{type: text, analyzer: german}`."""


class OpenSearchOptions(SinkOptions):
    """Rows as documents of OpenSearch (docs/sinks-opensearch.md)."""

    type: Literal["opensearch"]
    """Name of the sink."""
    url: str
    """The server: `https://host:9200`, also with a path."""
    user: str = ""
    """Account, for HTTP's basic authentication. Empty: none."""
    password: Secret = Secret()
    """Its password; usually `${VARIABLE}`."""
    api_key: Secret = Secret()
    """An API key in Base64, instead of an account."""
    ca: Path | None = None
    """File with certificates to trust instead of the system's."""
    index: str = "{database}.{table}"
    """Name of a table's index. It is an alias: the index behind it changes with `TRUNCATE` and
    definitions."""
    control: str = Field("penstock-targets", pattern=r"^[a-z][a-z0-9_.-]{0,99}$")
    """Index with the sink's own records, one for each table."""
    settings: dict[str, Property] = Field(default_factory=dict)
    """Settings of new indexes, such as `index.number_of_shards: 3`."""
    mappings: tuple[FieldsEntry, ...] = ()
    """Other mappings of some columns. For a table, the first entry that matches counts."""
    timeout: Milliseconds = Field(60_000, ge=1000)
    """How long an answer of the server may take."""
    bulk_bytes: Bytes = Field(5 * 1024**2, ge=1024)
    """About so many bytes are in one request. A row is never divided."""

    @field_validator("url")
    @classmethod
    def _is_url(cls, value: str) -> str:
        server_url.checked(value, ("http", "https"), "https://host:9200")
        return value

    @field_validator("index")
    @classmethod
    def _names_tables(cls, value: str) -> str:
        if "{table}" not in value:
            raise ValueError("it contains {table}, so that each table has an index")
        return value

    @model_validator(mode="after")
    def _one_account(self) -> OpenSearchOptions:
        if self.user and self.api_key.reveal():
            raise ValueError("give either `user` and `password`, or `api_key`")
        return self

    def alias(self, table: TableId) -> str:
        """The name that the table has at the server."""
        return index_name(self.index.replace("{database}", table.database).replace("{table}", table.table))

    def place(self, table: TableId) -> tuple[str, ...] | None:
        return (self.alias(table),)

    def fields(self, table: TableId) -> Mapping[str, dict[str, Any]]:
        return next((one.fields for one in self.mappings if one.matches(table)), {})

    def reserved(self, column: str) -> str | None:
        return which_penstock_adds(column, [SEQUENCE])
