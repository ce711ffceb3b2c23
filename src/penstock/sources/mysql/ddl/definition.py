"""The definition of a table, with everything that a statement can say about it.

`TableDefinition.to_schema` returns what `catalog.read_table` would read from the server for the same table.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from penstock.model.schema import (
    PASSIVE_RULES,
    CascadingKey,
    Column,
    KeyPart,
    TableId,
    TableSchema,
    UniqueKey,
)

KeyKind = Literal["primary", "unique", "index", "fulltext", "spatial", "vector"]


@dataclass(frozen=True)
class DefaultLiteral:
    """A constant DEFAULT as written. `text` is the number, the string without quotes, hex digits or bits. Of
    an `unknown` constant only the server knows the value; `text` is its SQL. `charset`: that of its bytes, if
    it is written before the text.

    `expression`: it was written in parentheses, so the server calls it an expression although its value is
    known.
    """

    kind: Literal["null", "number", "string", "hex", "bits", "unknown"]
    text: str = ""
    expression: bool = False
    charset: str | None = None


@dataclass(frozen=True)
class DefaultExpression:
    """A computed DEFAULT. `now`: it is the current time, with this number of fractional digits."""

    text: str
    now: int | None = None


Default = DefaultLiteral | DefaultExpression


@dataclass(frozen=True)
class ColumnDefinition:
    """A column. `column` has what the catalog says. The other fields are known only from statements."""

    column: Column
    data_type: str = ""
    """The exact DATA_TYPE: `point` where `column.type` is geometry."""
    default: Default | None = None
    on_update: str | None = None
    expression: str | None = None
    """The expression of a generated column, as written."""
    comment: str = ""
    from_catalog: bool = False
    """Whether it was read from the catalog. Then `on_update` and `expression` are not known."""

    @property
    def name(self) -> str:
        return self.column.name

    @property
    def auto_increment(self) -> bool:
        return bool(self.column.auto_increment)


@dataclass(frozen=True)
class Key:
    """An index. A part without column is an expression (a functional part)."""

    name: str
    kind: KeyKind
    parts: tuple[KeyPart, ...]
    implicit: bool = False
    """Whether the server made it for a foreign key."""

    @property
    def unique(self) -> bool:
        return self.kind in ("primary", "unique")

    @property
    def whole(self) -> bool:
        """Whether all of its parts are columns without a prefix."""
        return all(part.column is not None and part.length is None for part in self.parts)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(part.column for part in self.parts if part.column is not None)


@dataclass(frozen=True)
class ForeignKey:
    name: str
    columns: tuple[str, ...]
    references: TableId
    referenced: tuple[str, ...]
    on_delete: str = "NO ACTION"
    on_update: str = "NO ACTION"

    @property
    def cascades(self) -> bool:
        """Whether changed rows of the parent change rows of this table."""
        return self.on_delete not in PASSIVE_RULES or self.on_update not in PASSIVE_RULES


@dataclass(frozen=True)
class TableDefinition:
    """The definition of a table. `charset` None: not known, because an earlier version stored the
    definition."""

    table: TableId
    columns: tuple[ColumnDefinition, ...]
    keys: tuple[Key, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    checks: tuple[str, ...] = ()
    charset: str | None = None
    collation: str | None = None
    partitioned: bool = False
    versioned: bool = False
    sequence: bool = False
    options: tuple[tuple[str, str], ...] = field(default=())
    keys_known: bool = True
    """Whether all unique keys are known. False: only the key that identifies a row is known."""
    indexes_known: bool = True
    """Whether all other indexes are known, too."""

    def find(self, name: str) -> ColumnDefinition | None:
        lowered = name.lower()
        return next((one for one in self.columns if one.name.lower() == lowered), None)

    def named(self, table: TableId) -> TableDefinition:
        return replace(self, table=table)

    @property
    def primary(self) -> Key | None:
        return next((key for key in self.keys if key.kind == "primary"), None)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row: those of the primary key, or else of the first unique key over
        whole NOT NULL columns. A primary key over prefixes counts with whole columns, because rows with equal
        columns have equal prefixes."""
        primary = self.primary
        if primary is not None:
            return primary.columns
        nullable = {one.name for one in self.columns if one.column.nullable}
        for key in self.sorted_keys():
            if key.kind == "unique" and key.whole and nullable.isdisjoint(key.columns):
                return key.columns
        return ()

    def sorted_keys(self) -> tuple[Key, ...]:
        """The keys in the server's order: the primary key, unique keys over NOT NULL columns, other unique
        keys, the rest, and full-text indexes last (sql_table.cc, sort_keys)."""
        nullable = {one.name for one in self.columns if one.column.nullable}
        texts = {one.name for one in self.columns if one.column.type.endswith(("text", "blob"))}

        def rank(key: Key) -> tuple[int, bool, bool]:
            if key.kind == "primary":
                return (0, False, False)
            if key.kind == "unique":
                return (
                    1,
                    any(part.column is None or part.column in nullable for part in key.parts),
                    not key.whole or not texts.isdisjoint(key.columns),  # MariaDB: enforced by a hash
                )
            return (2, key.kind == "fulltext", False)

        return tuple(sorted(self.keys, key=rank))

    @property
    def cascading_keys(self) -> tuple[CascadingKey, ...]:
        """The keys for `TableSchema.foreign_keys`."""
        return tuple(
            CascadingKey(
                key.name, key.columns, key.references, key.referenced, key.on_delete, key.on_update
            )
            for key in self.foreign_keys
            if key.cascades
        )  # fmt: skip

    def to_schema(self, version: int = 1) -> TableSchema:
        keys = [UniqueKey(key.name, key.parts) for key in self.sorted_keys() if key.unique]
        if self.primary is not None:  # the order of the other keys does not matter then
            keys[1:] = sorted(keys[1:], key=lambda key: key.name)
        return TableSchema(
            table=self.table,
            columns=tuple(one.column for one in self.columns),
            key=self.key,
            version=version,
            charset=self.charset,
            collation=self.collation,
            unique=tuple(keys) if self.keys_known else None,
        )

    @classmethod
    def from_schema(cls, schema: TableSchema) -> TableDefinition:
        """The definition of a table whose schema was stored or read from the catalog."""
        keys: tuple[Key, ...]
        if schema.unique is None:
            keys = (Key("", "unique", tuple(KeyPart(name) for name in schema.key)),) if schema.key else ()
        else:
            keys = tuple(
                Key(key.name, "primary" if key.name == "PRIMARY" else "unique", key.parts)
                for key in schema.unique
            )
        return cls(
            table=schema.table,
            columns=tuple(
                ColumnDefinition(
                    column, data_type=column.column_type.partition("(")[0] or column.type, from_catalog=True
                )
                for column in schema.columns
            ),
            keys=keys,
            foreign_keys=tuple(
                ForeignKey(key.name, key.columns, key.parent, key.referenced, key.on_delete, key.on_update)
                for key in schema.foreign_keys
            ),
            charset=schema.charset,
            collation=schema.collation,
            sequence=any(column.name == "next_not_cached_value" for column in schema.columns[:1]),
            keys_known=schema.unique is not None,
            indexes_known=False,
        )
