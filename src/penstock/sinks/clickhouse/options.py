"""The options of the sink `clickhouse`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from penstock.model.change import SEQUENCE
from penstock.model.units import Milliseconds
from penstock.secret import Secret
from penstock.sinks import server_url
from penstock.sinks.kind import NamespaceOptions
from penstock.sinks.names import which_penstock_adds

_VIRTUAL_COLUMNS = frozenset({
    "_part", "_part_index", "_part_starting_offset", "_part_uuid", "_partition_id", "_partition_value",
    "_sample_factor", "_part_offset", "_part_granule_offset", "_block_number", "_block_offset", "_disk_name",
    "_row_exists", "_table", "_database",
})  # fmt: skip
"""Of tables with the engine MergeTree, says ClickHouse's documentation. A server of 2018 refuses to copy a
table with such columns of its own."""


class ClickHouseOptions(NamespaceOptions):
    """Tables of ClickHouse (docs/sinks-clickhouse.md)."""

    type: Literal["clickhouse"]
    """Name of the sink."""
    url: str
    """The server's HTTP interface: `http://host:8123` or `https://host:8443`."""
    user: str = "default"
    """Account at the server. It creates databases, tables and views, and writes them."""
    password: Secret = Secret()
    """Its password; usually `${VARIABLE}`."""
    ca: Path | None = None
    """File with certificates to trust instead of the system's."""
    control: str = Field("penstock", pattern=r"^[a-z][a-z0-9_]{0,30}$")
    """Database with the sink's own table `targets`."""
    dates: Literal["native", "text"] = "native"
    """`native`: Date32 and DateTime64, which end at the years 1900 and 2299; a value beyond them parks the
    table. `text`: as String. Servers before 21.9 have only `text`."""
    timeout: Milliseconds = Field(300_000, ge=1000)
    """How long an answer of the server may take. A changed definition copies the table."""

    @field_validator("url")
    @classmethod
    def _is_url(cls, value: str) -> str:
        server_url.checked(value, ("http", "https"), "http://host:8123")
        return value

    @field_validator("namespace")
    @classmethod
    def _is_database(cls, value: str) -> str:
        if not value or "." in value:
            raise ValueError("it is the name of one database")
        return value

    @property
    def has_lists(self) -> bool:
        return False

    def reserved(self, column: str) -> str | None:
        if column in _VIRTUAL_COLUMNS:
            return "whose name ClickHouse has for a virtual column"
        return which_penstock_adds(column, [SEQUENCE])
