"""The options of the sink `hbase`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from penstock.model.change import SEQUENCE
from penstock.model.schema import TableId
from penstock.model.units import Bytes, Milliseconds
from penstock.sinks.hbase.names import namespace_name, table_name
from penstock.sinks.kind import SinkOptions
from penstock.sinks.names import which_penstock_adds
from penstock.sinks.table_entries import Property, TableEntry

SITE = "hbase-site.xml"


class NewTable(TableEntry):
    """An entry of `sink.tables`."""

    splits: tuple[str, ...] = ()
    """Row keys at which regions begin, beside the first one."""
    versions: int | None = Field(None, ge=1)
    """How many versions of a cell are kept. Default: `sink.versions`."""
    settings: dict[str, Property] = Field(default_factory=dict)
    """Further settings of the column family."""


class HBaseOptions(SinkOptions):
    """Rows as rows of HBase tables (docs/sinks-hbase.md)."""

    type: Literal["hbase"]
    """Name of the sink."""
    quorum: str = ""
    """The cluster's ZooKeeper: `zk1:2181,zk2:2181`. Empty: as `site` says."""
    site: Path | None = None
    """The cluster's `hbase-site.xml`, or a directory with it. Its properties count, also those for
    Kerberos."""
    properties: dict[str, Property] = Field(default_factory=dict)
    """Further properties of HBase's client, such as `zookeeper.znode.parent: /hbase-secure`."""
    table: str = "{database}:{table}"
    """Name of a table in HBase. What comes before a colon is its namespace."""
    family: str = Field("d", pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,60}$")
    """The column family in which the cells are."""
    uppercase: bool = False
    """Write names of columns in capital letters."""
    key: Literal["text", "ordered"] = "text"
    """Row keys. `text`: the texts of the key's columns, joined by `|`. `ordered`: bytes that sort as the
    values do."""
    values: Literal["text", "native"] = "text"
    """Cells. `text`: the values' texts. `native`: numbers and booleans as HBase's `Bytes.toBytes` writes
    Java's; all else as text."""
    control: str = Field("penstock_targets", pattern=r"^([A-Za-z0-9_]+:)?[A-Za-z0-9_][A-Za-z0-9_.-]{0,100}$")
    """Table with the sink's own records, one for each target."""
    versions: int = Field(1, ge=1)
    """How many versions of a cell new tables keep."""
    settings: dict[str, Property] = Field(default_factory=dict)
    """Settings of the column family of new tables, such as `COMPRESSION: SNAPPY`."""
    tables: tuple[NewTable, ...] = ()
    """How certain tables are created. For a table, the first entry that matches counts."""
    use_empty_tables: bool = False
    """Take tables that others have created for Penstock, with splits and settings of their own. They must be
    empty and have the column family."""
    timeout: Milliseconds = Field(60_000, ge=1000)
    """How long an operation may take, with the client's own retries."""
    batch_bytes: Bytes = Field(4 * 1024**2, ge=1024)
    """About so many bytes of rows are in one call. A row is never divided."""

    @field_validator("table")
    @classmethod
    def _names_tables(cls, value: str) -> str:
        if "{table}" not in value.rpartition(":")[2]:
            raise ValueError("it contains {table}, after the colon if it has one")
        if value.count(":") > 1:
            raise ValueError("one colon separates the namespace from the table")
        return value

    @field_validator("settings")
    @classmethod
    def _leaves_cells(cls, value: dict[str, str]) -> dict[str, str]:
        return _without_own_settings(value)

    @field_validator("tables")
    @classmethod
    def _entries_leave_cells(cls, value: tuple[NewTable, ...]) -> tuple[NewTable, ...]:
        for entry in value:
            _without_own_settings(entry.settings)
        return value

    @model_validator(mode="after")
    def _has_a_cluster(self) -> HBaseOptions:
        if not self.quorum and self.site is None and "hbase.zookeeper.quorum" not in self.properties:
            raise ValueError("name the cluster by `quorum` or by `site`")
        return self

    @property
    def has_lists(self) -> bool:
        return False

    def place(self, table: TableId) -> tuple[str, ...] | None:
        return self.full_name(table)

    def full_name(self, table: TableId) -> tuple[str, str]:
        """Namespace and name of the table's target."""
        names = {"{database}": table.database, "{table}": table.table}
        namespace, _, name = self.table.rpartition(":")
        for pattern, text in names.items():
            namespace, name = namespace.replace(pattern, text), name.replace(pattern, text)
        return namespace_name(namespace) if namespace else "default", table_name(name)

    def entry(self, table: TableId) -> NewTable | None:
        return next((one for one in self.tables if one.matches(table)), None)

    def client_properties(self) -> dict[str, str]:
        """Settings of the client besides those in `site`."""
        found = {
            "hbase.client.operation.timeout": str(self.timeout),
            "hbase.client.meta.operation.timeout": str(self.timeout),
            "hbase.rpc.timeout": str(self.timeout),
            "hbase.client.scanner.timeout.period": str(self.timeout),
            "hbase.client.retries.number": "6",
            "zookeeper.session.timeout": str(self.timeout),
            "zookeeper.recovery.retry": "1",
            "zookeeper.recovery.retry.intervalmill": "500",
            "hbase.client.keyvalue.maxsize": "0",  # the server's limit counts
        }
        if self.quorum:
            found["hbase.zookeeper.quorum"] = self.quorum
        return {**found, **self.properties}

    def reserved(self, column: str) -> str | None:
        return which_penstock_adds(column, [SEQUENCE])


def _without_own_settings(settings: dict[str, str]) -> dict[str, str]:
    names = {name.upper() for name in settings}
    if "VERSIONS" in names:
        raise ValueError("how many versions of a cell are kept is said by `versions`, not in `settings`")
    if "TTL" in names:
        raise ValueError(
            "a TTL has no effect: the time stamps of cells are no times (`penstock docs sinks-hbase`)"
        )
    return settings
