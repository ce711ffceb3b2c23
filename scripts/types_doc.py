"""Writes docs/types.md from the core's type mapping: `python scripts/types_doc.py`. With `--check` it only
compares."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path
from typing import get_args, get_type_hints

from penstock import _core
from penstock.model.schema import Column, TableId, TableSchema, TypeOptions

PAGE = Path(__file__).parent.parent / "docs" / "types.md"

ROWS: list[tuple[str, Column, str]] = [
    ("TINYINT, SMALLINT, MEDIUMINT, INT", Column("c", "int"), ""),
    ("TINYINT, SMALLINT, MEDIUMINT UNSIGNED", Column("c", "mediumint", unsigned=True), ""),
    ("INT UNSIGNED", Column("c", "int", unsigned=True), ""),
    ("BIGINT", Column("c", "bigint"), ""),
    ("BIGINT UNSIGNED", Column("c", "bigint", unsigned=True), ""),
    ("DECIMAL(p,s), p ≤ 38", Column("c", "decimal", precision=12, scale=2), "exact, with its scale"),
    ("DECIMAL(p,s), p > 38", Column("c", "decimal", precision=65, scale=30), "the text that SELECT shows"),
    ("FLOAT", Column("c", "float"), ""),
    ("DOUBLE", Column("c", "double"), ""),
    ("BIT(1)", Column("c", "bit", length=1), ""),
    ("BIT(2) … BIT(63)", Column("c", "bit", length=8), "as a number"),
    ("BIT(64)", Column("c", "bit", length=64), "as a number"),
    ("BOOLEAN of topics", Column("c", "boolean"), ""),
    ("NUMERIC of topics", Column("c", "numeric"), "a number without a precision, with its digits: see below"),
    ("INTERVAL of topics", Column("c", "interval"), "ISO 8601, as the topic has it: see below"),
    ("array", Column("c", "list", element=Column("element", "int")), "its JSON, or a list: see below"),
    ("YEAR", Column("c", "year"), ""),
    ("DATE", Column("c", "date"), "zero and partial dates: see below"),
    ("DATETIME(n)", Column("c", "datetime", fsp=6), "no time zone; zero and partial dates: see below"),
    ("TIMESTAMP(n)", Column("c", "timestamp", fsp=6), "UTC; the zero timestamp: see below"),
    ("TIME(n)", Column("c", "time", fsp=0), "text as SELECT shows it, `-838:59:59` to `838:59:59`"),
    (
        "CHAR, VARCHAR, TEXT",
        Column("c", "varchar", length=10, charset="utf8mb4"),
        "from the column's character set; CHAR without trailing spaces, as SELECT shows it",
    ),
    ("ENUM", Column("c", "enum", charset="utf8mb4", labels=("a", "b")), "the label"),
    ("SET", Column("c", "set", charset="utf8mb4", labels=("a", "b")), "labels joined by commas"),
    ("BINARY(n)", Column("c", "binary", length=4), "padded with zero bytes to n, as SELECT shows it"),
    ("VARBINARY, BLOB", Column("c", "varbinary", length=4), ""),
    ("JSON", Column("c", "json"), "the text that the server prints, byte for byte"),
    ("MariaDB: INET4, INET6, UUID", Column("c", "inet6"), "the text that SELECT shows"),
    ("VECTOR(n)", Column("c", "vector"), "as stored: n floats of 4 bytes, little-endian"),
    ("spatial types", Column("c", "geometry"), "as stored: SRID (4 bytes, little-endian), then WKB"),
]

HEAD = """# Types

How the values of each MySQL column type arrive at the target. The snapshot and the log give the same
values: those that the server's SELECT shows. `scripts/types_doc.py` generates this page from the code.

| MySQL | Arrow | Spark | remarks |
|---|---|---|---|
"""

TAIL = """
- Every target column accepts NULL.
- Generated and invisible columns arrive like others. MariaDB 11 omits generated columns from the log of
  updates. There the server is asked to compute them, which needs the privilege CREATE TEMPORARY TABLES
  on the table's database. Without it, the table is parked at its first update; so is a table with a
  stored generated column that depends on a TIMESTAMP.
- JSON is printed as the server that wrote the log prints it. For a double, MySQL 5.7 writes `1`, and
  later versions `1.0`.
- MariaDB's JSON is LONGTEXT and arrives as it was written. MariaDB's COMPRESSED columns arrive
  decompressed.

## Choices

The section `types` of the pipeline file changes some mappings. The snapshot, the log and
`penstock verify` use the same choices. A choice that would make different values equal does not apply
to key columns. If a target exists, another choice for its columns is refused when the pipeline starts:
`penstock resnapshot FILE TABLE --recreate`, and then `penstock run`, creates the target again.

@@CHOICES@@

Arrow, Spark and lake tables cannot represent zero and partial dates (`0000-00-00`, `2024-00-10`, the
year 0). With `zero_dates: text` every DATE, DATETIME and TIMESTAMP column arrives as text. A table with
such dates in its key needs this choice.

## Numbers without a precision

PostgreSQL's NUMERIC and Oracle's NUMBER may have any number of digits. Such a column arrives as text with
the digits that the source sent: `1.50` stays `1.50`. With `numeric_scale: 2` it arrives as DECIMAL(38,2).
Then zeros at the end of the fraction do not count, and a number with more digits parks the table. With
`decimal: double` it arrives as the nearest DOUBLE.

What is no number has the texts `NaN`, `Infinity` and `-Infinity`. A DOUBLE has them, too; a DECIMAL does not
(`not_numbers`). Texts of numbers sort as texts: cast them in queries.

## Spans of time

An INTERVAL arrives as a text of ISO 8601, such as `P1Y2M3DT4H5M6.78S`. A span that topics have as a
number arrives with hours, minutes and seconds: `PT730H30M`, `PT-0.5S`. Each part has its own sign.

## Arrays

PostgreSQL and topics have arrays of one type. With `arrays: json` they arrive as text, a JSON document:
numbers are numbers, `true` and `false` are words, bytes are Base64, and all else is a string as `SELECT`
prints it. With `arrays: list` they arrive as lists, `ARRAY<INT>` for example, whose elements have the types
of this page. A list may be NULL or empty, and each element may be NULL.

An array with several dimensions, or whose first element is not number 1 (`'[0:1]={1,2}'`), is no list: with
`arrays: list` it parks the table. A key is never a list; such a column is text. If the type of the elements
changes at the source, the table is read again.

| target | with `arrays: list` |
|---|---|
| Iceberg, Delta, Parquet change log, `python` | a list |
| OpenSearch, Redis with `value: json`, `http`, `console` | an array of JSON |
| SQL databases, ClickHouse, HBase, Redis with `value: hash` | text, the JSON document |
| messages | as their format has arrays, whatever `types` says: see [formats](formats.md) |

## Bytes that are not text

A character column may contain bytes that are invalid in its character set. They are not replaced: each
such byte arrives as `\\xNN`.
"""


CHOICES = {
    "zero_dates": "zero and partial dates: NULL; the column as text; the table is parked",
    "extreme_dates": "infinite dates, and those before the year 1 or after 9999: the table is parked; NULL; "
    "all dates of the column as text",
    "bigint_unsigned": "BIGINT UNSIGNED: DECIMAL(20,0); BIGINT, where larger values park the table; text",
    "decimal": "DECIMAL: exact with its scale (text above 38 digits); text; the nearest DOUBLE",
    "numeric_scale": "NUMERIC of topics: text; DECIMAL(38, scale), where other numbers park the table",
    "not_numbers": "NaN and infinities in DECIMAL columns: the table is parked; NULL; all numbers of the "
    "column as text",
    "time": "TIME: text, or microseconds in a BIGINT",
    "binary": "BINARY, VARBINARY, BLOB: bytes; base64 in one line; upper-case hexadecimal digits",
    "arrays": "arrays: a JSON document; a list, where an array of several dimensions parks the table",
    "tinyint1": "TINYINT(1), also written BOOLEAN: the number; BOOLEAN, true if it is not 0",
}


def spark_name(arrow: object) -> str:
    names = {
        "int32": "INT",
        "int64": "BIGINT",
        "float": "FLOAT",
        "double": "DOUBLE",
        "bool": "BOOLEAN",
        "string": "STRING",
        "binary": "BINARY",
        "date32[day]": "DATE",
        "timestamp[us]": "TIMESTAMP_NTZ",
        "timestamp[us, tz=UTC]": "TIMESTAMP",
    }
    text = str(arrow)
    return names.get(text) or text.replace("decimal128", "DECIMAL").replace(", ", ",")


def page() -> str:
    lines = []
    for name, column, remark in ROWS:
        schema = TableSchema(TableId("d", "t"), (column,))
        arrow = _core.arrow_schema(schema.to_json(), "rows").field("c").type
        lines.append(f"| {name} | `{arrow}` | {spark_name(arrow)} | {remark} |")
    choices = ["| option | choices | |", "|---|---|---|"]
    for option in fields(TypeOptions):
        hint = get_type_hints(TypeOptions)[option.name]
        listed = [f"`{name}`" for name in get_args(hint)]
        names = ["none", "0 to 38"] if option.default is None else listed
        names[0] += " (default)"
        choices.append(f"| `{option.name}` | {', '.join(names)} | {CHOICES[option.name]} |")
    return HEAD + "\n".join(lines) + "\n" + TAIL.replace("@@CHOICES@@", "\n".join(choices))


def main() -> int:
    if "--check" in sys.argv:
        same = PAGE.read_text("utf-8") == page()
        print("docs/types.md is up to date" if same else "docs/types.md differs: run scripts/types_doc.py")
        return 0 if same else 1
    PAGE.write_text(page(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
