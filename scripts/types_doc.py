"""Writes docs/types.md from the core's own mapping: `python scripts/types_doc.py`; with `--check` it only
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
    ("the same UNSIGNED, but INT", Column("c", "mediumint", unsigned=True), ""),
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
    ("VECTOR(n)", Column("c", "vector"), "as stored: n floats of 4 bytes, little endian"),
    ("spatial types", Column("c", "geometry"), "as stored: SRID (4 bytes, little endian), then WKB"),
]

HEAD = """# Types

How values of a MySQL column arrive. The snapshot and the log give the same; both are what the server's
SELECT shows. This table is made from the code by `scripts/types_doc.py`.

| MySQL | Arrow | Spark | remarks |
|---|---|---|---|
"""

TAIL = """
Every column may be NULL at the target. Generated columns arrive like others, invisible ones too; but MariaDB
11 leaves generated columns out of the log of updates: there the server is asked to compute them, which needs
the privilege CREATE TEMPORARY TABLES on the table's database (without it, and where a stored one is made of
a TIMESTAMP, the table is parked at its first update). MariaDB's
JSON is LONGTEXT, and arrives as it was written; its COMPRESSED columns arrive unpacked.

JSON is printed as the server that wrote the log prints it: MySQL 5.7 writes `1`, later ones `1.0` for a
double.

## Choices

`types` in the pipeline file decides where people differ. The snapshot, the log and `penstock verify` follow
the same choices; changing them for a table that exists already needs a new target. A choice that makes
different values equal is not made for columns of the key.

@@CHOICES@@

Zero and partial dates (`0000-00-00`, `2024-00-10`, the year 0) have no place in Arrow, Spark or a lake table.
With `zero_dates: text` every DATE, DATETIME and TIMESTAMP column arrives as text; in a key nothing else is
possible for a table that has such dates.

## Bytes that are no text

A character column may hold bytes that its character set does not know. They are not replaced: each such byte
arrives as `\\xNN`.
"""


CHOICES = {
    "zero_dates": "zero and partial dates: NULL, the column as text, or the table is parked",
    "bigint_unsigned": "BIGINT UNSIGNED: DECIMAL(20,0); BIGINT, larger values park the table; text",
    "decimal": "DECIMAL: exact, with its scale (above 38 digits as text); text; the nearest DOUBLE",
    "time": "TIME: text, or microseconds in a BIGINT",
    "binary": "BINARY, VARBINARY, BLOB: bytes; base64 in one line; upper-case hexadecimal digits",
    "tinyint1": "TINYINT(1), which BOOLEAN makes: the number, or whether it is not 0",
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
        names = [f"`{name}`" for name in get_args(get_type_hints(TypeOptions)[option.name])]
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
