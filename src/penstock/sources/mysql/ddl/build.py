"""Turns the parts of a statement into what the server creates: columns, names of keys, defaults."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from penstock.model.schema import Column, KeyPart, TableId
from penstock.sources.mysql.ddl.charsets import bytes_max
from penstock.sources.mysql.ddl.column import (
    CheckSpec,
    ColumnSpec,
    Element,
    ForeignKeySpec,
    IndexSpec,
    PeriodSpec,
    ReferenceSpec,
)
from penstock.sources.mysql.ddl.definition import (
    ColumnDefinition,
    Default,
    DefaultExpression,
    DefaultLiteral,
    ForeignKey,
    Key,
    KeyKind,
    TableDefinition,
)
from penstock.sources.mysql.ddl.printed import default_text
from penstock.sources.mysql.ddl.server import Server
from penstock.sources.mysql.ddl.types import resolve, text_bytes

_COMMENT_CHARACTERS_MAX = 1024
"""A longer comment is cut off. With a strict sql_mode it is refused."""
_HAS_FOREIGN_KEYS = ("INNODB", "NDB", "NDBCLUSTER")
_ZERO_TIMESTAMP = "0000-00-00 00:00:00"


class CannotApply(Exception):
    """The statement does not fit the known definition."""


def make_column(spec: ColumnSpec, *, inherited: tuple[str, str], server: Server) -> ColumnDefinition:
    column, data_type = resolve(
        spec.type, spec.name, inherited=inherited, server=server, collation=spec.collation
    )
    nullable = spec.nullable
    if nullable is None:
        bare_timestamp = column.type == "timestamp" and not server.explicit_defaults
        nullable = not bare_timestamp or spec.generated is not None
    if spec.primary:
        nullable = False
    made = ColumnDefinition(
        column=replace(
            column,
            nullable=nullable,
            generated=spec.generated,
            invisible=spec.invisible,
            auto_increment=spec.auto_increment,
        ),
        data_type=data_type,
        on_update=spec.on_update,
        expression=spec.expression,
        comment=spec.comment[:_COMMENT_CHARACTERS_MAX],
    )
    return with_default(made, spec.default, server)


def with_default(made: ColumnDefinition, default: Default | None, server: Server) -> ColumnDefinition:
    if default is not None and _is_dropped(made.column, default, server):
        needs_value = made.column.type == "json" and not made.column.nullable
        default = DefaultLiteral("string", "null") if needs_value else None
    text = None if default is None else default_text(made.column, default, server)
    expression = isinstance(default, DefaultExpression)
    if isinstance(default, DefaultLiteral) and default.expression:
        expression = not server.mariadb  # a constant in parentheses is still a constant there
    column = replace(made.column, default=text, default_is_expression=expression and text is not None)
    return replace(made, column=column, default=default)


def _is_dropped(column: Column, default: Default, server: Server) -> bool:
    """Whether the server drops the default. For these types, MySQL refuses a constant other than an empty
    one, or drops it with a warning if sql_mode is not strict. It keeps an expression in parentheses. MariaDB
    keeps every default."""
    return (
        (text_bytes(column.type) is not None or column.type in ("json", "geometry"))
        and not server.at_least(None, (10, 2, 1))
        and isinstance(default, DefaultLiteral)
        and not default.expression
        and default.kind in ("string", "hex", "bits")
        and not default.text
    )


def timestamps(specs: Sequence[ColumnSpec], made: list[ColumnDefinition], server: Server) -> None:
    """Applies the rules of a server without explicit_defaults_for_timestamp: the first TIMESTAMP of a
    statement keeps the time of the last change, and others are zero, unless the statement says otherwise."""
    if server.explicit_defaults:
        return
    first = True
    for index, (spec, one) in enumerate(zip(specs, made, strict=True)):
        if one.column.type != "timestamp" or one.column.generated:
            continue
        if not one.column.nullable and spec.default is None:
            if first and spec.on_update is None:
                now = DefaultExpression("CURRENT_TIMESTAMP", one.column.fsp or 0)
                made[index] = with_default(replace(one, on_update="CURRENT_TIMESTAMP"), now, server)
            else:
                made[index] = with_default(one, DefaultLiteral("string", _ZERO_TIMESTAMP), server)
        first = False


def primary_not_null(
    columns: Iterable[ColumnDefinition], keys: Iterable[Key]
) -> tuple[ColumnDefinition, ...]:
    """Makes the columns of a primary key NOT NULL."""
    primary = {
        part.column.lower() for key in keys if key.kind == "primary" for part in key.parts if part.column
    }
    return tuple(
        replace(one, column=replace(one.column, nullable=False)) if one.name.lower() in primary else one
        for one in columns
    )


class Keys:
    """Collects keys, foreign keys and checks, and names those without a name."""

    def __init__(
        self,
        table: TableId,
        server: Server,
        *,
        keys: Iterable[Key] = (),
        foreign_keys: Iterable[ForeignKey] = (),
        checks: Iterable[str] = (),
    ) -> None:
        self._table = table
        self._server = server
        self.keys = list(keys)
        self.foreign_keys = list(foreign_keys)
        self.checks = list(checks)

    def add(self, element: Element) -> None:
        match element:
            case IndexSpec(kind=kind, name=name, parts=parts, if_not_exists=known):
                if not (known and self.has(element.known_as)):
                    self.add_key(kind, name, parts)
            case ForeignKeySpec(name=name, index=index, columns=columns, references=reference):
                self.add_foreign_key(name, index, columns, reference)
            case CheckSpec(name=name):
                self.add_check(name)
            case ColumnSpec():
                self.add_column_keys(element)
            case PeriodSpec():
                pass

    def add_column_keys(self, spec: ColumnSpec) -> None:
        if spec.primary:
            self.add_key("primary", None, (KeyPart(spec.name),))
        if spec.unique and not (spec.primary and self._server.mariadb):
            self.add_key("unique", None, (KeyPart(spec.name),))
        for check in spec.checks:
            self.add_check(spec.name if self._server.mariadb else check)
        # MySQL before 9.0 ignores a REFERENCES that is part of a column.
        if spec.references is not None and self._server.at_least((9, 0, 0), (10, 5, 0)):
            self.add_foreign_key(spec.references.name, None, (spec.name,), spec.references)

    def has(self, name: str) -> bool:
        return any(key.name.lower() == name.lower() for key in self.keys)

    def add_key(
        self, kind: KeyKind, name: str | None, parts: tuple[KeyPart, ...], *, implicit: bool = False
    ) -> None:
        if kind == "primary":
            if any(key.kind == "primary" for key in self.keys):
                raise CannotApply("it has a primary key already")
            name = "PRIMARY"
        self.keys.append(Key(name or "", kind, parts, implicit))

    def add_foreign_key(
        self, name: str | None, index: str | None, columns: tuple[str, ...], reference: ReferenceSpec
    ) -> None:
        parts = tuple(KeyPart(column) for column in columns)
        self.add_key("index", name or index, parts, implicit=True)
        if name is None and (self._server.mariadb or (8,) <= self._server.version < (8, 0, 16)):
            name = index
        if name is None:
            pattern = re.compile(re.escape(f"{self._table.table}_ibfk_") + r"(\d+)")
            numbers = [int(m[1]) for key in self.foreign_keys if (m := pattern.fullmatch(key.name))]
            name = f"{self._table.table}_ibfk_{max(numbers, default=0) + 1}"
        unsaid = "NO ACTION" if self._server.at_least((8, 0, 0), None) else "RESTRICT"
        self.foreign_keys.append(
            ForeignKey(
                name,
                columns,
                reference.table,
                reference.columns or columns,
                reference.on_delete or unsaid,
                reference.on_update or unsaid,
            )
        )

    def add_check(self, name: str | None) -> None:
        if name is None:
            number = 1
            base = "CONSTRAINT_" if self._server.mariadb else f"{self._table.table}_chk_"
            while f"{base}{number}" in self.checks:
                number += 1
            name = f"{base}{number}"
        self.checks.append(name)

    def settled(self, columns: Sequence[ColumnDefinition], engine: str) -> tuple[Key, ...]:
        """Returns all keys over these columns, with names. An index that the server makes for a foreign key
        is left out if another key can replace it."""
        kept: list[Key] = []
        for key in self.keys:
            needless = next((other for other in kept if _covers(key, other) or _covers(other, key)), None)
            if needless is None:
                kept.append(key)
            elif needless.implicit and not (key.implicit and len(key.parts) < len(needless.parts)):
                kept.remove(needless)
                kept.append(key)
        named: list[Key] = []
        for key in settle_parts(kept, columns, engine, mariadb=self._server.mariadb):
            taken = {other.name.lower() for other in named}
            if key.name and key.name.lower() in taken and not key.implicit:
                raise CannotApply(f"it has a key {key.name} already")
            named.append(key if key.name else replace(key, name=_free_name(key.parts, taken)))
        return tuple(named)

    def settled_foreign_keys(
        self, columns: Sequence[ColumnDefinition], engine: str
    ) -> tuple[ForeignKey, ...]:
        """Returns the foreign keys, with the table's spelling of columns. Only InnoDB stores them."""
        names = {one.name.lower(): one.name for one in columns}

        def spelt(written: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(names.get(name.lower(), name) for name in written)

        if engine and engine.upper() not in _HAS_FOREIGN_KEYS:
            return ()
        return tuple(
            replace(
                key,
                columns=spelt(key.columns),
                referenced=spelt(key.referenced) if key.references == self._table else key.referenced,
            )
            for key in self.foreign_keys
        )


def _covers(key: Key, other: Key) -> bool:
    """Whether `other` was made for a foreign key and `key` begins with its columns."""
    if not other.implicit or key.kind in ("fulltext", "spatial", "vector"):
        return False
    begin = [(part.column or "").lower() for part in key.parts[: len(other.parts)] if part.length is None]
    return begin == [name.lower() for name in other.columns]


def _free_name(parts: tuple[KeyPart, ...], taken: set[str]) -> str:
    computed = any(part.column is None for part in parts)
    base = "functional_index" if computed else parts[0].column or ""
    if base.lower() not in taken and base.upper() != "PRIMARY":
        return base
    number = 2
    while f"{base}_{number}".lower() in taken:
        number += 1
    return f"{base}_{number}"


def make_table(
    table: TableId,
    elements: Sequence[Element],
    *,
    charset: tuple[str, str],
    server: Server,
    engine: str = "",
    selected: Sequence[ColumnDefinition] = (),
) -> TableDefinition:
    """Returns the definition of CREATE TABLE (…), without its options. `selected`: columns from its query."""
    specs = [one for one in elements if isinstance(one, ColumnSpec)]
    made = [make_column(spec, inherited=charset, server=server) for spec in specs]
    names = [one.name.lower() for one in made]
    if len(set(names)) < len(names):
        raise CannotApply("two columns have one name")
    timestamps(specs, made, server)
    made += selected
    keys = Keys(table, server)
    for element in elements:
        keys.add(element)
    settled = keys.settled(made, engine)
    bounds = {name.lower() for one in elements if isinstance(one, PeriodSpec) for name in one.columns}
    made = [
        replace(one, column=replace(one.column, nullable=False)) if one.name.lower() in bounds else one
        for one in made
    ]
    return TableDefinition(
        table=table,
        columns=primary_not_null(made, settled),
        keys=settled,
        foreign_keys=keys.settled_foreign_keys(made, engine),
        checks=tuple(keys.checks),
        charset=charset[0],
        collation=charset[1],
    )


_PART_BYTES_MAX = {"MYISAM": 1000, "ARIA": 2300}
"""Bytes of one part of an index, by engine (manuals: "The MyISAM Storage Engine", "Aria Storage Engine")."""
_INNODB_PART_BYTES_MAX = 3072
"""Bytes of one part of an index of InnoDB (manual: "InnoDB Limits")."""
_POINT_BYTES, _GEOMETRY_BYTES = 25, 8
"""Length of the prefix that MariaDB uses for such a column in an index that is not spatial."""


def _prefix(column: Column, length: int | None, engine: str) -> int | None:
    """Returns the length of a column's prefix in an index. Servers shorten it if it would be too long."""
    size = text_bytes(column.type)
    if column.length is not None and (length is None or length >= column.length):
        length = None
    wanted = column.length if length is None and size is None else length or size
    width = bytes_max(column.charset or "")
    room = _PART_BYTES_MAX.get(engine.upper(), _INNODB_PART_BYTES_MAX) // width
    if wanted is None or (length is None and size is None and wanted <= room):
        return None
    return min(wanted, room)


def settle_parts(
    keys: Iterable[Key], columns: Sequence[ColumnDefinition], engine: str, *, mariadb: bool
) -> tuple[Key, ...]:
    """Returns key parts with the columns' spelling of names. A prefix as long as its column counts as
    none."""
    known = {one.name.lower(): one for one in columns}
    settled = []
    for key in keys:
        parts = []
        for part in key.parts:
            if part.column is not None:
                column = known.get(part.column.lower())
                if column is None:
                    raise CannotApply(f"its key {key.name} names a column that it does not have")
                length = part.length
                if mariadb and key.kind in ("index", "unique") and column.column.type == "geometry":
                    length = _POINT_BYTES if column.data_type == "point" else _GEOMETRY_BYTES
                elif key.kind == "index":
                    length = _prefix(column.column, length, engine)
                elif (length or 0) >= (column.column.length or math.inf):
                    length = None
                if key.kind in ("fulltext", "spatial"):
                    length = None
                part = KeyPart(column.name, length)
            parts.append(part)
        settled.append(replace(key, parts=tuple(parts)))
    return tuple(settled)
