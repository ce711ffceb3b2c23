"""Column definitions, keys and foreign keys as statements write them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.model.schema import KeyPart, TableId
from penstock.sources.mysql.ddl.default import read_default
from penstock.sources.mysql.ddl.definition import (
    Default,
    DefaultExpression,
    KeyKind,
)
from penstock.sources.mysql.ddl.server import Server
from penstock.sources.mysql.ddl.tokens import Cursor, NotUnderstood
from penstock.sources.mysql.ddl.types import TypeSpec, charset_clause, collation_name, read_type


@dataclass(frozen=True)
class ReferenceSpec:
    """A REFERENCES clause. A rule that was not written is None."""

    table: TableId
    columns: tuple[str, ...]
    on_delete: str | None = None
    on_update: str | None = None
    name: str | None = None
    """The name of the constraint, if the reference is part of a column."""


@dataclass(frozen=True)
class ForeignKeySpec:
    name: str | None
    index: str | None
    columns: tuple[str, ...]
    references: ReferenceSpec


@dataclass(frozen=True)
class IndexSpec:
    """An index as written. `name` None: the server chooses one."""

    kind: KeyKind
    name: str | None
    parts: tuple[KeyPart, ...]
    if_not_exists: bool = False

    @property
    def known_as(self) -> str:
        """The name by which IF NOT EXISTS looks for it."""
        return "PRIMARY" if self.kind == "primary" else self.name or self.parts[0].column or ""


@dataclass(frozen=True)
class CheckSpec:
    name: str | None


@dataclass(frozen=True)
class PeriodSpec:
    """A PERIOD FOR … (columns) clause, which gives a table a history or an application-time period."""

    system: bool
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class ColumnSpec:
    """A column as written. `nullable` None: the statement does not say."""

    name: str
    type: TypeSpec
    collation: str | None = None
    nullable: bool | None = None
    default: Default | None = None
    on_update: str | None = None
    auto_increment: bool = False
    primary: bool = False
    unique: bool = False
    comment: str = ""
    generated: str | None = None
    expression: str | None = None
    row_bound: bool = False
    """GENERATED ALWAYS AS ROW START or END."""
    invisible: bool = False
    references: ReferenceSpec | None = None
    checks: tuple[str | None, ...] = ()
    versioned: bool = False
    """WITH SYSTEM VERSIONING, which makes a new table system-versioned."""


Element = ColumnSpec | IndexSpec | ForeignKeySpec | CheckSpec | PeriodSpec


def read_element(cursor: Cursor, server: Server) -> Element:
    """Reads an element of CREATE TABLE (…) or of ADD, up to the end or to FIRST or AFTER."""
    constraint = read_constraint(cursor)
    if constraint is not None:
        return constraint
    return read_column(cursor, server)


def read_constraint(cursor: Cursor) -> IndexSpec | ForeignKeySpec | CheckSpec | PeriodSpec | None:
    """Reads an index or constraint. Returns None if a column follows."""
    if cursor.at("PERIOD", "FOR"):
        system = cursor.peek(2).keyword in ("SYSTEM_TIME", "SYSTEM")
        cursor.expect("PERIOD", "FOR")
        cursor.identifier()
        return PeriodSpec(system, cursor.names())
    name: str | None = None
    named = cursor.take("CONSTRAINT")
    if named:
        cursor.take("IF", "NOT", "EXISTS")
        if not cursor.at_any("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
            name = cursor.identifier()
    if cursor.take("PRIMARY", "KEY"):
        return _index(cursor, "primary", None)
    if cursor.take("UNIQUE"):
        cursor.take_any_of("INDEX", "KEY")
        return _index(cursor, "unique", name)
    if cursor.take("FOREIGN", "KEY"):
        return _foreign_key(cursor, name)
    if cursor.at("CHECK") and cursor.peek(1).text == "(":
        cursor.next()
        cursor.parenthesised()
        _enforced(cursor)
        return CheckSpec(name)
    if cursor.at_any("FULLTEXT", "SPATIAL") or (
        cursor.at("VECTOR") and cursor.peek(1).keyword in ("INDEX", "KEY")
    ):
        kind: KeyKind = cursor.next().text.lower()  # type: ignore[assignment]
        cursor.take_any_of("INDEX", "KEY")
        return _index(cursor, kind, None)
    if cursor.at_any("INDEX", "KEY") and not named:
        cursor.next()
        return _index(cursor, "index", None)
    if named:
        raise NotUnderstood("a constraint")
    return None


def _index(cursor: Cursor, kind: KeyKind, name: str | None) -> IndexSpec:
    if_not_exists = cursor.take("IF", "NOT", "EXISTS")
    if not cursor.at_sign("(") and not _at_index_type(cursor):
        name = cursor.identifier() or name
    return IndexSpec(kind, name, read_index_body(cursor), if_not_exists)


def read_index_body(cursor: Cursor) -> tuple[KeyPart, ...]:
    """`[USING x] (part, …) options`"""
    _index_type(cursor)
    if not cursor.take_sign("("):
        raise NotUnderstood("(")
    parts = [_key_part(cursor)]
    while cursor.take_sign(","):
        if cursor.peek(1).keyword == "WITHOUT":  # the columns of a period are part of the key, unnamed
            raise NotUnderstood("columns of a key")
        parts.append(_key_part(cursor))
    if not cursor.take_sign(")"):
        raise NotUnderstood(")")
    _index_options(cursor)
    return tuple(parts)


def _key_part(cursor: Cursor) -> KeyPart:
    if cursor.at_sign("("):
        cursor.parenthesised()
        cursor.take_any_of("ASC", "DESC")
        return KeyPart(None)
    name = cursor.column_name()
    length = None
    if cursor.at_sign("("):
        cursor.next()
        length = cursor.number()
        if not cursor.take_sign(")"):
            raise NotUnderstood(")")
    cursor.take_any_of("ASC", "DESC")
    return KeyPart(name, length)


def _at_index_type(cursor: Cursor) -> bool:
    """Whether an index type follows. If not, TYPE is the name of the index."""
    return cursor.at("USING") or (
        cursor.at("TYPE")
        and cursor.peek(1).keyword in ("BTREE", "HASH", "RTREE")
        and cursor.peek(2).text != ","
    )


def _index_type(cursor: Cursor) -> None:
    while _at_index_type(cursor):
        cursor.next()
        cursor.identifier()


def _index_options(cursor: Cursor) -> None:
    """Skips the options of an index, none of which matters."""
    while not cursor.at_end:
        if cursor.take_any_of("USING", "TYPE") or cursor.take("WITH", "PARSER"):
            cursor.identifier()
        elif cursor.take("COMMENT"):
            cursor.string()
        elif cursor.take_any_of("VISIBLE", "INVISIBLE", "IGNORED", "CLUSTERING"):
            if cursor.take_sign("="):
                cursor.next()
        elif cursor.take("NOT", "IGNORED"):
            pass
        elif cursor.peek().kind in ("word", "name") and (
            cursor.peek(1).text == "="
            or cursor.at_any(
                "KEY_BLOCK_SIZE", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE", "M", "DISTANCE"
            )
        ):
            cursor.next()
            cursor.take_sign("=")
            cursor.next()
        else:
            return


def _foreign_key(cursor: Cursor, name: str | None) -> ForeignKeySpec:
    cursor.take("IF", "NOT", "EXISTS")
    index = None if cursor.at_sign("(") else cursor.identifier()
    parts = read_index_body(cursor)
    columns = tuple(part.column for part in parts if part.column is not None)
    return ForeignKeySpec(name, index, columns, read_reference(cursor))


def read_reference(cursor: Cursor) -> ReferenceSpec:
    """Reads a REFERENCES clause. A parent without a database is in the child's database, not in the
    session's. All servers do so (MySQL 5.7, 8.0, 9.7, MariaDB 10.11, 11.8). LIKE, RENAME and EXCHANGE
    PARTITION use the session's database."""
    cursor.expect("REFERENCES")
    spec = ReferenceSpec(cursor.table(cursor.home), ())
    if cursor.at_sign("("):
        parts = read_index_body(cursor)
        spec = replace(spec, columns=tuple(part.column for part in parts if part.column is not None))
    while True:
        if cursor.take("MATCH"):
            cursor.next()
        elif cursor.take("ON", "DELETE"):
            spec = replace(spec, on_delete=_rule(cursor))
        elif cursor.take("ON", "UPDATE"):
            spec = replace(spec, on_update=_rule(cursor))
        else:
            return spec


def _rule(cursor: Cursor) -> str:
    for words in (("CASCADE",), ("RESTRICT",), ("SET", "NULL"), ("SET", "DEFAULT"), ("NO", "ACTION")):
        if cursor.take(*words):
            return " ".join(words)
    raise NotUnderstood("what a foreign key does")


def _enforced(cursor: Cursor) -> None:
    if not cursor.take("ENFORCED"):
        cursor.take("NOT", "ENFORCED")


def read_column(cursor: Cursor, server: Server) -> ColumnSpec:
    """`name type attribute…`, up to the end, a comma, or FIRST or AFTER."""
    return read_definition(cursor, server, cursor.column_name())


def read_definition(cursor: Cursor, server: Server, name: str) -> ColumnSpec:
    """`type attribute…` of the column."""
    spec = ColumnSpec(name, read_type(cursor, server))
    if spec.type.serial:
        spec = replace(spec, nullable=False, auto_increment=True, unique=True)
    while not cursor.at_end and not cursor.at_sign(",") and not cursor.at_sign(")"):
        if cursor.at_any("FIRST", "AFTER"):
            break
        spec = _attribute(spec, cursor, server)
    return spec


def _attribute(spec: ColumnSpec, cursor: Cursor, server: Server) -> ColumnSpec:
    for parse in (_nulls_and_keys, _computed, _plain_attribute):
        changed = parse(spec, cursor, server)
        if changed is not None:
            return changed
    raise NotUnderstood("an attribute of a column")


def _nulls_and_keys(spec: ColumnSpec, cursor: Cursor, server: Server) -> ColumnSpec | None:
    if cursor.take("NOT", "NULL"):
        return replace(spec, nullable=False)
    if cursor.take("NOT", "SECONDARY") or cursor.take("NOT", "ENFORCED") or cursor.take("ENFORCED"):
        return spec
    if cursor.take("NULL"):
        return replace(spec, nullable=True)
    if cursor.take("PRIMARY"):
        cursor.take("KEY")
        return replace(spec, primary=True)
    if cursor.take("UNIQUE"):
        cursor.take("KEY")
        return replace(spec, unique=True)
    if cursor.take("KEY"):
        return replace(spec, primary=True)
    if cursor.take("AUTO_INCREMENT"):
        return replace(spec, auto_increment=True, nullable=False)  # a NULL that follows undoes it
    if cursor.take("SERIAL", "DEFAULT", "VALUE"):
        return replace(spec, auto_increment=True, nullable=False, unique=True)
    if cursor.at("REFERENCES"):
        return replace(spec, references=read_reference(cursor))
    return None


def _computed(spec: ColumnSpec, cursor: Cursor, server: Server) -> ColumnSpec | None:
    if cursor.take("DEFAULT"):
        return replace(spec, default=read_default(cursor))
    if cursor.take("ON", "UPDATE"):
        now = read_default(cursor)
        return replace(spec, on_update=now.text if isinstance(now, DefaultExpression) else None)
    if cursor.take("GENERATED", "ALWAYS", "AS", "ROW") or cursor.take("AS", "ROW"):
        cursor.take_any_of("START", "END")
        return replace(spec, generated="stored", row_bound=True, nullable=False)
    if cursor.take("GENERATED", "ALWAYS", "AS") or (
        cursor.at("AS") and cursor.peek(1).text == "(" and cursor.take("AS")
    ):
        expression = cursor.parenthesised()
        return replace(spec, generated=spec.generated or "virtual", expression=expression)
    if spec.expression is not None and cursor.take("VIRTUAL"):
        return replace(spec, generated="virtual")
    if spec.expression is not None and cursor.take_any_of("STORED", "PERSISTENT"):
        return replace(spec, generated="stored")
    named = cursor.at("CONSTRAINT")
    if named or cursor.at("CHECK"):
        name = None
        if cursor.take("CONSTRAINT") and not cursor.at_any("CHECK", "REFERENCES"):
            name = cursor.identifier()
        if cursor.at("REFERENCES"):
            return replace(spec, references=replace(read_reference(cursor), name=name))
        cursor.expect("CHECK")
        cursor.parenthesised()
        _enforced(cursor)
        return replace(spec, checks=(*spec.checks, name))
    return None


def _plain_attribute(spec: ColumnSpec, cursor: Cursor, server: Server) -> ColumnSpec | None:
    if cursor.take("COMMENT"):
        cursor.take_sign("=")
        return replace(spec, comment=cursor.string())
    if cursor.take("COLLATE"):
        return replace(spec, collation=collation_name(cursor))
    if (charset := charset_clause(cursor)) is not None:
        return replace(spec, type=replace(spec.type, charset=charset))
    if cursor.take("BINARY"):
        return replace(spec, type=replace(spec.type, binary=True))
    if cursor.take_any_of("COLUMN_FORMAT", "STORAGE", "SRID"):
        cursor.next()
        return spec
    if cursor.take("INVISIBLE"):
        return replace(spec, invisible=True)
    if cursor.take("VISIBLE"):
        return replace(spec, invisible=False)
    if cursor.take("COMPRESSED"):
        if cursor.take_sign("="):
            cursor.next()
        return replace(spec, type=replace(spec.type, compressed=True))
    if cursor.take("WITHOUT", "SYSTEM", "VERSIONING"):
        return spec
    if cursor.take("WITH", "SYSTEM", "VERSIONING"):
        return replace(spec, versioned=True)
    if cursor.take_any_of("ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE"):
        cursor.take_sign("=")
        cursor.string()
        return spec
    if (
        cursor.peek().kind in ("word", "name")
        and cursor.peek(1).text == "="
        and cursor.peek(1).kind == "sign"
    ):
        cursor.next()  # MariaDB: attributes that an engine defines; REF_SYSTEM_ID = n
        cursor.next()
        cursor.next()
        return spec
    return None
