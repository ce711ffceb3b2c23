"""Tables, columns and keys, as the source defines them.

`TableSchema.to_json()` is the contract with the Rust core: the core builds its decoders, and decides the
Arrow type of each column, from exactly this JSON (see `penstock._core.arrow_schema`). Nothing else maps
types.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from penstock.model.name import join_name, split_name


@dataclass(frozen=True, order=True)
class TableId:
    """A table of the source: database (schema) and table name, as the server spells them."""

    database: str
    table: str

    def __str__(self) -> str:
        """The text that `parse` takes apart again: different tables have different texts."""
        return join_name(self.database, self.table)

    @classmethod
    def parse(cls, text: str) -> TableId:
        database, table = split_name(text)
        if not database.text or not table.text:
            raise ValueError(f"{text!r} is not a table name; write it as database.table")
        return cls(database.text, table.text)


@dataclass(frozen=True)
class Column:
    """One column. `type` is one of the names in `model/column_type.py`."""

    name: str
    type: str
    nullable: bool = True
    unsigned: bool = False
    length: int | None = None
    """The declared length: of char and varchar in characters, of binary and varbinary in bytes, of bit in
    bits."""
    precision: int | None = None
    """decimal: digits in all."""
    scale: int | None = None
    """decimal: digits after the point."""
    fsp: int | None = None
    """time, datetime, timestamp: fractional digits 0-6."""
    charset: str | None = None
    """The source's name of the character set of a text, enum or set. `binary`: it has none."""
    collation: str | None = None
    """The source's name of the order in which it compares texts (`cascades.comparison.Comparisons`)."""
    labels: tuple[str, ...] | None = None
    """enum, set: the labels in order."""
    generated: str | None = None
    """`virtual` or `stored` for generated columns."""
    invisible: bool = False
    auto_increment: bool | None = None
    """Whether the source numbers rows in it. None: not known."""
    default: str | None = None
    """The default as the source's catalog prints it; None: no default (or NULL)."""
    default_is_expression: bool = False
    column_type: str = ""
    """The whole type as the source prints it, for people."""
    element: Column | None = None
    """list: what its elements are, which may be NULL and are no lists."""

    def to_json(self) -> dict[str, Any]:
        fields = {name: value for name, value in vars(self).items() if value is not None}
        return fields if self.element is None else {**fields, "element": self.element.to_json()}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Column:
        labels, element = fields.get("labels"), fields.get("element")
        return cls(**{**fields, "labels": None if labels is None else tuple(labels),
                      "element": None if element is None else cls.from_json(element)})  # fmt: skip


@dataclass(frozen=True)
class TypeOptions:
    """How some values are mapped: `types` of the pipeline file.

    `to_json()` is the form for the core, which chooses the Arrow types by it. A choice that makes different
    values equal (`decimal: double`, `tinyint1: boolean`) does not apply to key columns.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    zero_dates: Literal["null", "text", "error"] = "null"
    """Zero and partial dates (2024-00-10): NULL, the column as text, or park the table."""
    extreme_dates: Literal["error", "null", "text"] = "error"
    """Dates that are infinite, before the year 1 or after 9999 (PostgreSQL): park the table, NULL, or all
    dates of the column as text. In a key, `null` parks the table."""
    bigint_unsigned: Literal["decimal", "long", "string"] = "decimal"
    """BIGINT UNSIGNED: DECIMAL(20,0); BIGINT, where a value above 2^63 - 1 parks the table; text."""
    decimal: Literal["precise", "string", "double"] = "precise"
    """DECIMAL: DECIMAL (as text above 38 digits), text, or the nearest DOUBLE."""
    numeric_scale: Annotated[int, Field(ge=0, le=38)] | None = None
    """Numbers without a declared precision are text, with the digits that the source prints. With a scale:
    DECIMAL(38, scale), where a value that does not fit parks the table."""
    not_numbers: Literal["error", "null", "text"] = "error"
    """NaN and infinities in DECIMAL columns (PostgreSQL): park the table, NULL, or all numbers of the column
    as text. In a key, `null` parks the table."""
    time: Literal["text", "micros"] = "text"
    """TIME: as SELECT shows it, or as microseconds in a BIGINT."""
    binary: Literal["bytes", "base64", "hex"] = "bytes"
    """BINARY, VARBINARY and BLOB: bytes or text."""
    tinyint1: Literal["int", "boolean"] = "int"
    """TINYINT(1), also written BOOLEAN: its number, or true if it is not 0."""
    arrays: Literal["json", "list"] = "json"
    """Arrays: text, a JSON document; or lists, where an array with several dimensions parks the table."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))


DEFAULT_TYPES = TypeOptions()
EXACT_TYPES = TypeOptions(zero_dates="text", arrays="list")
"""Loses nothing of any value: for rows that become messages of a format."""


@dataclass(frozen=True)
class KeyPart:
    """A column of a key; `length`: only so many characters or bytes of it; no column: an expression."""

    column: str | None
    length: int | None = None


@dataclass(frozen=True)
class UniqueKey:
    """A unique key. The primary key's name is `PRIMARY`."""

    name: str
    parts: tuple[KeyPart, ...]


PASSIVE_RULES = ("NO ACTION", "RESTRICT")
"""Rules of foreign keys that change no rows."""


@dataclass(frozen=True)
class CascadingKey:
    """A foreign key by which the server itself changes rows of its table when rows of `parent` change.

    `columns` of the table refer to the columns `referenced` of the parent, in this order. `on_delete` and
    `on_update` are the rules as the catalog prints them: CASCADE, SET NULL, NO ACTION, RESTRICT …
    """

    name: str
    columns: tuple[str, ...]
    parent: TableId
    referenced: tuple[str, ...]
    on_delete: str = "NO ACTION"
    on_update: str = "NO ACTION"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "parent": [self.parent.database, self.parent.table]}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> CascadingKey:
        columns, referenced = tuple(fields["columns"]), tuple(fields["referenced"])
        return cls(**{**fields, "columns": columns, "referenced": referenced,
                      "parent": TableId(*fields["parent"])})  # fmt: skip


@dataclass(frozen=True)
class TableSchema:
    """Columns in the source's order and the key that identifies a row.

    `key` is the primary key, else the first unique index whose columns are all NOT NULL, else empty.
    `version` counts schemas of this table within one pipeline, from 1. `charset` and `collation` are the
    table's own, for columns that come later; `unique`: its unique keys in the server's order, which are
    needed when one of them is dropped. None: not known. `foreign_keys`: those that change rows without row
    events in the log; they are filled in only if the pipeline applies them. `catalog`: of PostgreSQL, the
    database that the table's schema is in. It says nothing of the table.
    """

    table: TableId
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    version: int = 1
    charset: str | None = None
    collation: str | None = None
    unique: tuple[UniqueKey, ...] | None = None
    foreign_keys: tuple[CascadingKey, ...] = ()
    catalog: str = field(default="", compare=False)

    @property
    def key_columns(self) -> tuple[Column, ...]:
        return tuple(self.column(name) for name in self.key)

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    def to_json(self) -> str:
        return self._json

    @cached_property
    def _json(self) -> str:
        """The JSON, computed once: it is asked for many times, and the value never changes."""
        document: dict[str, Any] = {
            "database": self.table.database,
            "table": self.table.table,
            "version": self.version,
            "key": list(self.key),
            "columns": [column.to_json() for column in self.columns],
        }
        if self.charset is not None:
            document.update(charset=self.charset, collation=self.collation)
        if self.unique is not None:
            document["unique"] = [
                {"name": key.name, "parts": [[part.column, part.length] for part in key.parts]}
                for key in self.unique
            ]
        if self.foreign_keys:
            document["foreign_keys"] = [key.to_json() for key in self.foreign_keys]
        if self.catalog:
            document["catalog"] = self.catalog
        return json.dumps(document, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | dict[str, Any]) -> TableSchema:
        document = json.loads(text) if isinstance(text, str) else text
        unique = document.get("unique")
        return cls(
            table=TableId(document["database"], document["table"]),
            columns=tuple(Column.from_json(column) for column in document["columns"]),
            key=tuple(document["key"]),
            version=document["version"],
            charset=document.get("charset"),
            collation=document.get("collation"),
            unique=None
            if unique is None
            else tuple(
                UniqueKey(key["name"], tuple(KeyPart(*part) for part in key["parts"])) for key in unique
            ),
            foreign_keys=tuple(CascadingKey.from_json(key) for key in document.get("foreign_keys", ())),
            catalog=document.get("catalog", ""),
        )
