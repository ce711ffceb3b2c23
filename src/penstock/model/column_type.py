"""The types of columns, in Penstock's own words.

A source translates the types of its columns into these names when it reads definitions. The core decides what
a value of each becomes in Arrow (`core/src/column/`), and everybody else asks for the groups in this module.
The names are those of MySQL's types where MySQL has the type.
"""

from __future__ import annotations

INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
"""Whole numbers of 1, 2, 3, 4 and 8 bytes; `Column.unsigned` says whether they have a sign."""
INTEGER_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
BOOLEAN = "boolean"
"""True or false."""
FLOATS = frozenset({"float", "double"})
"""Binary floating point of 4 and 8 bytes."""
DECIMAL = "decimal"
"""An exact number with `Column.precision` digits, `Column.scale` of them after the point."""
NUMERIC = "numeric"
"""An exact number with any number of digits, or what is no number: `NaN`, `Infinity` and `-Infinity`."""
BIT = "bit"
"""A bit field of `Column.length` bits."""
YEAR = "year"
"""A year as a number."""
DATES = frozenset({"date", "datetime", "timestamp"})
"""A day; a day and a time without a zone; a moment. `Column.fsp`: digits of the fraction of a second."""
TIME = "time"
"""A signed span of time, with `Column.fsp` digits of the fraction of a second."""
INTERVAL = "interval"
"""A span of time in the form of ISO 8601, which may have months, days and times."""
SHORT_TEXTS = frozenset({"char", "varchar"})
"""Texts of at most `Column.length` characters. `char` is padded with spaces."""
LONG_TEXTS = frozenset({"tinytext", "text", "mediumtext", "longtext"})
"""Texts without a declared length, by how long they may become."""
SHORT_BINARY = frozenset({"binary", "varbinary"})
"""At most `Column.length` bytes. `binary` is padded with zero bytes."""
LONG_BINARY = frozenset({"tinyblob", "blob", "mediumblob", "longblob"})
"""Types of bytes without a declared length. Their names say how long a value may be."""
ENUM = "enum"
"""One of `Column.labels`."""
SET = "set"
"""Any of `Column.labels`."""
JSON = "json"
"""A JSON document."""
GEOMETRY = "geometry"
"""Any spatial type: a number that names the reference system, then well-known binary."""
VECTOR = "vector"
"""Numbers of 4 bytes each."""
ADDRESSES = frozenset({"inet4", "inet6", "uuid"})
"""Addresses and identifiers that are shown as text."""

LIST = "list"
"""Values of one type, which `Column.element` says, in an order. They may be NULL."""

JDBC_TYPES = {
    "boolean": 16,
    "tinyint": 5, "smallint": 5, "mediumint": 4, "int": 4, "bigint": -5, "decimal": 3, "float": 7,
    "double": 8, "bit": -7, "year": 4, "date": 91, "time": 92, "datetime": 93, "timestamp": 2014,
    "char": 1, "varchar": 12, "tinytext": 12, "text": 12, "mediumtext": 12, "longtext": 12, "binary": -2,
    "varbinary": -3, "tinyblob": 2004, "blob": 2004, "mediumblob": 2004, "longblob": 2004, "enum": 1,
    "set": 1, "json": 1111, "geometry": 1111, "vector": 1111,
    "list": 2003,
}  # fmt: skip
"""The numbers that Java gives to types (`java.sql.Types`)."""

BINARY = SHORT_BINARY | LONG_BINARY
TEXTS = SHORT_TEXTS | LONG_TEXTS

SHORT_TEXT = "varchar"
"""A text of at most `Column.length` characters that is not padded."""
FITTING = {
    "bool": "tinyint", "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint",
    "uint8": "smallint", "uint16": "int", "uint32": "bigint",
    "halffloat": "float", "float": "float", "double": "double", "date32[day]": "date", "date64[ms]": "date",
    "binary": "longblob", "large_binary": "longblob",
    "string": "longtext", "large_string": "longtext", "null": "longtext",
}  # fmt: skip
"""For the name of each Arrow type, the column type that takes all its values."""
FITTING_TIMES = {False: "datetime", True: "timestamp"}
"""The type for Arrow's timestamps, without a zone (False) and with one (True)."""
