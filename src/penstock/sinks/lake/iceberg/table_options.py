"""The section `sink.tables`: how the sink lays out new targets, in the words of Iceberg's SQL. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from pydantic import Field, field_validator, model_validator
from typing_extensions import Self

from penstock.model.pattern import is_wild, named_database
from penstock.model.schema import TableId
from penstock.sinks.lake.terms import Order, Term
from penstock.sinks.names import directory_name
from penstock.sinks.table_entries import Property, TableEntry, Texts

_OWN_PROPERTIES = (
    "format-version", "write.delete.mode", "write.update.mode", "write.merge.mode", "location", "provider",
    "owner",
)  # fmt: skip
"""Properties of tables that are not the user's."""
_VALUES = {
    "write.format.default": ("parquet", "orc", "avro"),
    "write.parquet.compression-codec": (
        "zstd", "gzip", "snappy", "lz4", "lz4_raw", "brotli", "lzo", "uncompressed",
    ),
}  # fmt: skip
"""Properties whose other values Iceberg refuses only when it writes a file. Source: Iceberg's documentation,
"Configuration"."""


class TableShape(TableEntry):
    """How new targets are laid out whose source tables match. For a table, the first entry that matches
    counts. Targets that exist stay as they are: change them with `ALTER TABLE` in Spark."""

    partition_by: Texts = ()
    """Partitions, as in Iceberg's SQL: `region`, `days(created)` (also `years`, `months`, `hours`),
    `bucket(16, id)`, `truncate(4, code)`."""
    sort_by: Texts = ()
    """Order of the rows in each file: columns or transforms of columns, each with `asc` or `desc`, and
    `nulls first` or `nulls last`."""
    properties: dict[str, Property] = Field(default_factory=dict)
    """Table properties, such as `write.parquet.compression-codec`. Those that Penstock relies on cannot be
    set: `penstock.*`, `format-version` and the write modes."""
    format_version: Literal[2, 3] = 3
    """Version of Iceberg's table format. `2`: for readers that do not know version 3. Then merges leave files
    of position deletes, which all readers know, instead of deletion vectors, and take up to twice as long."""
    adopt: bool = False
    """Take over a table that exists, was made by others and fits, with its rows. At the end of the snapshot
    it equals its source. Without it, such a table is refused."""
    branch: str | None = Field(None, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=100)
    """Branch of the target that all rows are written to, for write-audit-publish. Readers of the table see
    them once main has been fast-forwarded. None: main."""
    location: str | None = None
    """Where the table's files are: a URL, in which `{database}` and `{table}` are the target's names. None:
    where the catalog puts the table."""

    @field_validator("partition_by")
    @classmethod
    def _is_terms(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        _refuse_repeated(map(Term.parse, value))
        return value

    @field_validator("sort_by")
    @classmethod
    def _is_orders(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        _refuse_repeated(Order.parse(text).term for text in value)
        return value

    @field_validator("properties")
    @classmethod
    def _are_not_ours(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if name.startswith("penstock.") or name in _OWN_PROPERTIES:
                raise ValueError(f"{name} is set by Penstock itself; leave it out")
        for name, known in _VALUES.items():
            if name in value and value[name].lower() not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}")
        return value

    @model_validator(mode="after")
    def _gives_each_table_its_place(self) -> Self:
        if self.location is None:
            return self
        if "://" not in self.location and not self.location.startswith("file:/"):
            raise ValueError("`location` must be a URL, such as s3://bucket/lake/{database}/{table}")
        many_tables = len(self.match) > 1 or any(map(is_wild, self.match))
        many_databases = len(self.match) > 1 or any(named_database(one) is None for one in self.match)
        for name, needed in (("{table}", many_tables), ("{database}", many_databases)):
            if needed and name not in self.location:
                raise ValueError(
                    f"`location` must contain {name}: several tables can match, and each needs its own place"
                )
        return self

    @property
    def partitions(self) -> tuple[Term, ...]:
        return tuple(map(Term.parse, self.partition_by))

    @property
    def order(self) -> tuple[Order, ...]:
        return tuple(map(Order.parse, self.sort_by))

    def location_of(self, table: TableId) -> str | None:
        """The location for a target. Its names are written as in directory names."""
        if self.location is None:
            return None
        names = {"{database}": directory_name(table.database), "{table}": directory_name(table.table)}
        return re.sub(r"\{database\}|\{table\}", lambda found: names[found[0]], self.location).rstrip("/")


def _refuse_repeated(terms: Iterable[Term]) -> None:
    known: dict[tuple[str, str], Term] = {}
    for term in terms:
        group = "time" if term.transform in ("year", "month", "day", "hour") else term.transform
        other = known.setdefault((group, term.column.lower()), term)
        if other is not term:
            raise ValueError(f"`{other}` and `{term}` say the same twice; leave one out")
