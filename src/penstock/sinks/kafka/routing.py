"""Which partition the messages of a table go to. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.model.schema import TableId, TableSchema
from penstock.sinks.kafka import canal_rules
from penstock.sinks.kafka.names import murmur2

if TYPE_CHECKING:
    from penstock.sinks.base import Route

PartitionBy = Literal["key", "table", "database", "transaction", "columns"]

SPLIT_BY_FORMAT = ("debezium", "cloudevents", "avro", "protobuf")
"""Formats that write a changed key as a deletion and a creation, whatever its partition."""


@dataclass(frozen=True)
class Routing:
    """How the partition of a table's messages is found. `canal`: by the rules of `partition_hash`, of which
    `rule` is the table's (None: it has none)."""

    by: PartitionBy = "key"
    columns: tuple[str, ...] = ()
    canal: bool = False
    rule: canal_rules.PartitionRule | None = None
    database_hash: bool = True

    @property
    def by_row(self) -> bool:
        """Whether the partition depends on values of the row, and not on the message's key."""
        return self.by == "columns" or (self.rule is not None and self.rule.columns is not None)

    def missing(self, schema: TableSchema) -> str | None:
        """A column that should decide, and that the table does not have. Canal's rules take it as an empty
        text."""
        known = {column.name.lower() for column in schema.columns}
        wanted = self.columns if self.by == "columns" else ()
        return next((name for name in wanted if name.lower() not in known), None)

    def partitions(self, table: TableId, count: int, *, by_key: bool) -> tuple[int | None, int]:
        """The partition of messages with a key (None: it depends on the key), and that of others."""
        if self.canal:
            whole = self.rule is not None and self.rule.columns is None
            fixed = canal_rules.table_partition(table, count) if whole else 0
            return fixed, fixed
        name = table.database if self.by == "database" else str(table)
        fixed = murmur2(name.encode()) % count
        return (None if self.by in ("key", "transaction", "columns") and by_key else fixed), fixed

    def route(self, format: str, count: int, *, has_key: bool) -> Route | None:
        """How the core has to route messages. A changed key moves no row if there is one partition, or if
        messages have no key."""
        if count == 1:
            return None
        if self.canal:
            if self.rule is None or self.rule.columns is None:
                return None
            name = "canal-database" if self.database_hash else "canal"
            return name, list(self.rule.columns) or None
        match self.by:
            case "columns":
                return "columns", list(self.columns)
            case "transaction":
                return "transaction", None
            case "key" if has_key and format not in SPLIT_BY_FORMAT:
                return "key", None
        return None
