"""Data types as statements write them, with all synonyms, and as the server stores and prints them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.model.schema import Column
from penstock.sources.mysql.ddl import charsets
from penstock.sources.mysql.ddl.server import Server
from penstock.sources.mysql.ddl.tokens import Cursor, NotUnderstood, keywords

_SYNONYMS = {
    "INTEGER": "int", "INT4": "int", "INT1": "tinyint", "INT2": "smallint", "INT3": "mediumint",
    "MIDDLEINT": "mediumint", "INT8": "bigint", "DEC": "decimal", "FIXED": "decimal", "NUMERIC": "decimal",
    "NUMBER": "decimal", "FLOAT4": "float", "FLOAT8": "double", "VARCHARACTER": "varchar",
    "VARCHAR2": "varchar",
    "NVARCHAR": "varchar", "CHARACTER": "char", "NCHAR": "char", "RAW": "varbinary", "CLOB": "longtext",
    "GEOMCOLLECTION": "geometrycollection", "SQL_TSI_YEAR": "year",
}  # fmt: skip
_DIALECTS = {"MARIADB_SCHEMA": (), "ORACLE_SCHEMA": ("ORACLE",), "MAXDB_SCHEMA": ("MAXDB",)}
"""The sql_mode in which MariaDB understands a type behind this name: `mariadb_schema.date` is a DATE in any
session. MariaDB writes it so where the mode of the session would make something else of it."""
SPATIAL = keywords(
    "geometry point linestring polygon multipoint multilinestring multipolygon geometrycollection"
    " geomcollection"
)
_INTEGERS = {"tinyint": (4, 3), "smallint": (6, 5), "mediumint": (9, 8), "int": (11, 10), "bigint": (20, 20)}
"""Display widths, signed and unsigned."""
_NUMBERS = frozenset(_INTEGERS) | {"decimal", "float", "double"}
_TEXT_SIZES = (("tinytext", 255), ("text", 65_535), ("mediumtext", 2**24 - 1), ("longtext", 2**32 - 1))
_BLOBS = {"tinytext": "tinyblob", "text": "blob", "mediumtext": "mediumblob", "longtext": "longblob"}
_CHARACTER = {blob: text for text, blob in _BLOBS.items()} | {"binary": "char", "varbinary": "varchar"}
_TEXTS = frozenset(_BLOBS) | {"char", "varchar"}
_BINARIES = frozenset(_BLOBS.values()) | {"binary", "varbinary"}
_FRACTIONAL = frozenset({"time", "datetime", "timestamp"})
_PLAIN = frozenset({"date", "json", "inet4", "inet6", "uuid"})
_KINDS = (
    _NUMBERS | _TEXTS | _BINARIES | _FRACTIONAL | _PLAIN | SPATIAL | {"bit", "year", "enum", "set", "vector"}
)
_VARCHAR_BYTES_MAX = 65_535
"""Bytes of the longest VARCHAR: the size of a row (manual: "Limits on Table Column Count and Row Size")."""


@dataclass(frozen=True)
class TypeSpec:
    """A data type as written. `kind`: the server's name of it."""

    kind: str
    length: int | None = None
    decimals: int | None = None
    unsigned: bool = False
    zerofill: bool = False
    labels: tuple[str, ...] | None = None
    charset: str | None = None
    collation: str | None = None
    binary: bool = False
    """Whether it has the BINARY attribute: the binary collation of the character set."""
    compressed: bool = False
    serial: bool = False


def read_type(cursor: Cursor, server: Server) -> TypeSpec:
    """Reads a data type with its attributes (UNSIGNED, CHARACTER SET …). Raises `NotUnderstood`."""
    token = cursor.next()
    modes = _DIALECTS.get(token.keyword) if server.mariadb else None
    if modes is not None and cursor.take_sign("."):
        token, server = cursor.next(), replace(server, sql_mode=frozenset(modes))
    if token.kind != "word":
        raise NotUnderstood("a data type")
    word = token.keyword
    spec = _named(word, cursor, server)
    if spec is None:
        kind = type_name(word)
        if kind not in _KINDS:
            raise NotUnderstood("a data type that is not known")
        spec = TypeSpec(kind)
        if word in ("NCHAR", "NVARCHAR"):
            spec = replace(spec, charset="utf8")
        if kind == "char" and cursor.take_any_of("VARYING", "VARCHAR", "VARCHARACTER"):
            spec = replace(spec, kind="varchar")
    if spec.kind in ("enum", "set") and spec.labels is None:
        spec = replace(spec, labels=_labels(cursor, server, spec.kind))
    elif cursor.at_sign("(") and not spec.serial:
        spec = _arguments(spec, cursor)
    return _attributes(spec, cursor)


def _named(word: str, cursor: Cursor, server: Server) -> TypeSpec | None:
    """Reads types of several words, and types that depend on the server."""
    if word in ("BOOL", "BOOLEAN"):
        return TypeSpec("tinyint", 1)
    if word == "SERIAL":
        return TypeSpec("bigint", unsigned=True, serial=True)
    if word == "REAL":
        return TypeSpec("float" if server.mode("REAL_AS_FLOAT") else "double")
    if word == "DOUBLE":
        cursor.take("PRECISION")
        return TypeSpec("double")
    if word == "NATIONAL":
        word = cursor.take_any_of("CHAR", "CHARACTER", "VARCHAR", "VARCHARACTER") or ""
        varying = word.startswith("VARCHAR") or cursor.take("VARYING")
        return TypeSpec("varchar" if varying else "char", charset="utf8")
    if word == "LONG":
        if cursor.take("VARBINARY"):
            return TypeSpec("mediumblob")
        if not (cursor.take("CHAR", "VARYING") or cursor.take("CHARACTER", "VARYING")):
            cursor.take_any_of("VARCHAR", "VARCHARACTER")
        return TypeSpec("mediumtext")
    if word == "JSON" and server.mariadb:
        return TypeSpec("longtext", charset="utf8mb4", collation="utf8mb4_bin")
    if word == "XMLTYPE" and server.mariadb:
        return TypeSpec("longtext")
    if word == "TIMESTAMP" and server.mode("MAXDB"):
        return TypeSpec("datetime")
    if server.mariadb and server.mode("ORACLE"):
        return _of_oracle(word, sized=cursor.at_sign("("))
    return None


def _of_oracle(word: str, *, sized: bool) -> TypeSpec | None:
    """Types that mean something else in MariaDB's `sql_mode=ORACLE`. `sized`: a length follows."""
    if word == "DATE":
        return TypeSpec("datetime")
    if word == "NUMBER" and not sized:
        return TypeSpec("double")
    if word == "BLOB" and not sized:
        return TypeSpec("longblob")
    return None


def _labels(cursor: Cursor, server: Server, kind: str) -> tuple[str, ...]:
    if not cursor.take_sign("("):
        raise NotUnderstood("(")
    labels = []
    while True:
        token = cursor.peek()
        if (token.kind == "word" and cursor.peek(1).kind not in ("string", "double")) or (
            token.kind == "word" and token.keyword in ("X", "B")
        ):
            labels.append(_binary_literal(cursor))
        else:
            labels.append(cursor.string())
        if not cursor.take_sign(","):
            break
    if not cursor.take_sign(")"):
        raise NotUnderstood(")")
    return tuple(labels)


def _binary_literal(cursor: Cursor) -> str:
    token = cursor.next()
    word = token.keyword
    if word.startswith("0X"):
        digits, base = token.text[2:], 16
    elif word.startswith("0B"):
        digits, base = token.text[2:], 2
    elif word in ("X", "B") and cursor.peek().kind in ("string", "double"):
        digits, base = cursor.next().text, 16 if word == "X" else 2
    else:
        raise NotUnderstood("a label")
    try:
        number = int(digits or "0", base)
    except ValueError as error:
        raise NotUnderstood("a label") from error
    size = (len(digits) + 1) // 2 if base == 16 else (len(digits) + 7) // 8
    return number.to_bytes(size, "big").decode("utf-8", "replace")


def _arguments(spec: TypeSpec, cursor: Cursor) -> TypeSpec:
    """`(length)` or `(digits, decimals)`"""
    cursor.next()
    if cursor.at("MAX") or cursor.at_sign("*"):
        raise NotUnderstood("a length")
    length = cursor.number()
    decimals = None
    if cursor.take_sign("."):  # FLOAT(7.4): only the whole number counts
        cursor.number()
    if cursor.take_sign(","):
        cursor.take_sign("-")
        decimals = cursor.number()
    cursor.take_any("CHAR", "BYTE", "CHARACTER")  # VARCHAR2(10 CHAR)
    if not cursor.take_sign(")"):
        raise NotUnderstood(")")
    return replace(spec, length=length, decimals=decimals)


def _attributes(spec: TypeSpec, cursor: Cursor) -> TypeSpec:
    """Reads the attributes directly after a type: signs, character set, COMPRESSED."""
    while True:
        if spec.kind == "year" and cursor.take_any_of("UNSIGNED", "SIGNED", "ZEROFILL"):
            continue
        if spec.kind in _NUMBERS and cursor.at_any("UNSIGNED", "SIGNED", "ZEROFILL"):
            word = cursor.next().keyword
            zerofill = spec.zerofill or word == "ZEROFILL"
            spec = replace(spec, unsigned=spec.unsigned or word == "UNSIGNED" or zerofill, zerofill=zerofill)
        elif (name := charset_clause(cursor)) is not None:
            spec = replace(spec, charset=None if name == "default" else name)
        elif cursor.take("ASCII"):
            spec = replace(spec, charset="latin1")
        elif cursor.take("UNICODE"):
            spec = replace(spec, charset="ucs2")
        elif cursor.take("BYTE"):
            spec = replace(spec, charset="binary")
        elif spec.kind in _TEXTS | {"enum", "set"} and cursor.take("BINARY"):
            spec = replace(spec, binary=True)
        elif cursor.take("COMPRESSED"):
            if cursor.take_sign("="):
                cursor.next()
            spec = replace(spec, compressed=True)
        else:
            return spec


def type_name(word: str) -> str:
    """The type that a keyword means: `bigint` for INT8."""
    return _SYNONYMS.get(word, word.lower())


def charset_clause(cursor: Cursor) -> str | None:
    """The name in CHARACTER SET name or CHARSET name, in lower case; None: no such clause comes."""
    if cursor.take("CHARACTER", "SET") or cursor.take("CHAR", "SET") or cursor.take("CHARSET"):
        cursor.take_sign("=")
        return _name(cursor)
    return None


def collation_name(cursor: Cursor) -> str:
    cursor.take_sign("=")
    return _name(cursor)


def _name(cursor: Cursor) -> str:
    token = cursor.next()
    if token.kind in ("word", "name", "double", "string"):
        return token.text.lower()
    raise NotUnderstood("the name of a character set or collation")


def resolve(
    spec: TypeSpec, name: str, *, inherited: tuple[str, str], server: Server, collation: str | None = None
) -> tuple[Column, str]:
    """Returns the column that the server creates (nullable, without default), and its DATA_TYPE. `inherited`:
    the table's character set and collation. `collation`: the column's COLLATE."""
    collation = collation or spec.collation
    kind, length, decimals = spec.kind, spec.length, spec.decimals
    named = collation if spec.charset is None else spec.charset
    if server.mariadb and kind in _BINARIES and named not in (None, "binary"):
        kind = _CHARACTER[kind]
    charset: str | None = None
    if kind in _TEXTS or kind in ("enum", "set"):
        charset, collation = charsets.settle(server, spec.charset, collation, inherited=inherited)
        if spec.binary:
            collation = charsets.binary_collation(server, charset)
        if kind in ("enum", "set"):
            if charset != "binary":  # spaces at the end of a label are dropped when the table is made
                spec = replace(spec, labels=tuple(label.rstrip(" ") for label in spec.labels or ()))
        else:
            kind, length, charset, collation = _text(server, kind, length, charset, collation)
    elif kind in ("binary", "varbinary") or kind in _BLOBS.values():
        kind, length, charset, collation = _binary(server, kind, length)
    else:
        collation = None
    kind, length, decimals = _sizes(kind, length, decimals)
    text = column_type(server, replace(spec, kind=kind, length=length, decimals=decimals))
    exact = _data_type(server, kind)
    return (
        Column(
            name=name,
            type="geometry" if kind in SPATIAL else kind,
            unsigned=spec.unsigned,
            length=length if kind in ("char", "varchar", "binary", "varbinary", "bit") else None,
            precision=length if kind == "decimal" else None,
            scale=decimals if kind == "decimal" else None,
            fsp=(length or 0) if kind in _FRACTIONAL else None,
            charset=charset,
            collation=collation,
            labels=spec.labels,
            column_type=text,
        ),
        exact,
    )


def _sizes(kind: str, length: int | None, decimals: int | None) -> tuple[str, int | None, int | None]:
    """Fills in lengths that were not written. FLOAT(p) with more than 24 bits is a double."""
    if kind == "decimal":
        return kind, length if length else 10, decimals or 0
    if kind == "float" and length is not None and decimals is None:
        return "float" if length <= 24 else "double", None, None
    if kind == "bit":
        return kind, length or 1, None
    if kind in ("char", "binary"):
        return kind, 1 if length is None else length, None
    if kind == "vector":
        return kind, 2048 if length is None else length, None
    return kind, length, decimals


def _text(
    server: Server, kind: str, length: int | None, charset: str, collation: str
) -> tuple[str, int | None, str | None, str | None]:
    """Returns a text type. In the character set `binary` it is a binary type. A length decides its size
    class."""
    width = charsets.bytes_max(charset)
    if kind == "varchar" and length is None and not server.mariadb:
        raise NotUnderstood("a length")
    if kind == "text" and length is not None and (length or server.at_least((8, 0, 0), None)):
        kind, length = size_class(length * width), None
    elif kind == "varchar" and (length or 0) * width > _varchar_bytes_max(server):
        kind, length = size_class((length or 0) * width), None
    elif kind == "char" and (length or 0) > 255:
        kind, length = (
            ("varchar", length)
            if (length or 0) * width <= _VARCHAR_BYTES_MAX
            else (
                size_class((length or 0) * width),
                None,
            )
        )
    elif kind not in ("char", "varchar"):
        length = None
    if charset != "binary":
        return kind, length, charset, collation
    binary = {"char": "binary", "varchar": "varbinary"}.get(kind) or _BLOBS[kind]
    return binary, length, None, None


def _varchar_bytes_max(server: Server) -> int:
    return 65_532 if server.mariadb else _VARCHAR_BYTES_MAX


def _binary(server: Server, kind: str, length: int | None) -> tuple[str, int | None, str | None, str | None]:
    if kind == "blob" and length is not None and (length or server.at_least((8, 0, 0), None)):
        return _BLOBS[size_class(length)], None, None, None
    if kind == "varbinary" and (length or 0) > _varchar_bytes_max(server):
        return _BLOBS[size_class(length or 0)], None, None, None
    if kind == "binary" and (length or 0) > 255:
        return "varbinary", length, None, None
    return kind, length if kind in ("binary", "varbinary") else None, None, None


def size_class(size: int) -> str:
    """The smallest text type that has room for this number of bytes."""
    return next((name for name, limit in _TEXT_SIZES if size <= limit), "longtext")


def text_bytes(kind: str) -> int | None:
    """Most bytes of a value of a text or blob type. None: it is no such type."""
    sizes = dict(_TEXT_SIZES)
    for name, blob in _BLOBS.items():
        if kind in (name, blob):
            return sizes[name]
    return None


def _data_type(server: Server, kind: str) -> str:
    if kind in ("geometrycollection", "geomcollection"):
        return "geomcollection" if server.at_least((8, 0, 11), None) else "geometrycollection"
    return kind


def column_type(server: Server, spec: TypeSpec) -> str:
    """COLUMN_TYPE in the form of this server."""
    mark = "M!" if server.version >= (11, 4, 0) else "!"
    kind, length = spec.kind, spec.length
    signs = (" unsigned" if spec.unsigned else "") + (" zerofill" if spec.zerofill else "")
    if kind in _INTEGERS:
        return kind + _width(server, spec) + signs
    if kind == "decimal":
        return f"decimal({length},{spec.decimals}){signs}"
    if kind in ("float", "double"):
        return kind + (f"({length},{spec.decimals})" if spec.decimals is not None else "") + signs
    if kind == "year":
        width = 2 if length == 2 and server.mariadb else 4
        return f"year({width})" if server.has_display_widths else "year"
    if kind in ("enum", "set"):
        return kind + "(" + ",".join(_quoted(label) for label in spec.labels or ()) + ")"
    if kind in _FRACTIONAL:
        return f"{kind}({length})" if length else kind
    if kind in ("char", "varchar", "binary", "varbinary", "bit", "vector"):
        kind = f"{kind}({length})"
    elif kind in SPATIAL:
        kind = _data_type(server, kind)
    return kind + (f" /*{mark}100301 COMPRESSED*/" if spec.compressed and server.mariadb else "")


def _width(server: Server, spec: TypeSpec) -> str:
    signed, unsigned = _INTEGERS[spec.kind]
    width = spec.length or (unsigned if spec.unsigned else signed)
    if spec.serial or (spec.kind == "bigint" and spec.length is None):
        width = 20
    if server.has_display_widths or spec.zerofill:
        return f"({width})"
    return "(1)" if spec.kind == "tinyint" and width == 1 and not spec.unsigned else ""


_ESCAPED = str.maketrans({"'": "''", "\\": "\\\\", "\0": "\\0", "\n": "\\n", "\r": "\\r"})


def _quoted(label: str) -> str:
    return "'" + label.translate(_ESCAPED) + "'"
