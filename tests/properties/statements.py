"""Generated DDL: tables, and changes of them, as people write them and as they should not.

Statements fit the tables that are there by name, but a server may well refuse one (a row too long, a type
that takes no default): then nothing has changed and the next one is tried.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from penstock.sources.mysql.identifiers import quote

_PLAIN = (
    "TINYINT", "SMALLINT UNSIGNED", "MEDIUMINT", "INT", "INTEGER(4)", "BIGINT", "BIGINT UNSIGNED", "BOOL",
    "TINYINT(1)", "INT ZEROFILL", "INT(7) UNSIGNED ZEROFILL", "DECIMAL", "DECIMAL(12,3)", "FIXED(5,5)",
    "NUMERIC(7) UNSIGNED", "FLOAT", "FLOAT(30)", "FLOAT(7,3)", "DOUBLE", "DOUBLE PRECISION", "REAL(9,2)",
    "BIT", "BIT(17)", "YEAR", "DATE", "TIME", "TIME(4)", "DATETIME", "DATETIME(6)", "TIMESTAMP NULL",
    "TIMESTAMP(3) NULL", "BINARY(5)", "VARBINARY(30)", "TINYBLOB", "BLOB", "BLOB(70000)", "LONGBLOB",
    "LONG VARBINARY", "CHAR(4) BYTE", "JSON", "GEOMETRY", "GEOMETRYCOLLECTION", "NCHAR(4)",
    "NATIONAL VARCHAR(9)",
)  # fmt: skip
_CHARACTER = (
    "CHAR(3)", "CHARACTER(20)", "VARCHAR(20)", "VARCHAR(300)", "CHAR VARYING(9)", "TINYTEXT", "TEXT",
    "TEXT(80)", "TEXT(300)", "MEDIUMTEXT", "LONGTEXT", "LONG", "ENUM('a','B','it''s')",
    "ENUM('x','y','z','a')", "SET('p','q ','r')", "SET('1','2','3')",
)  # fmt: skip
_CONVERTED = ("latin1", "utf8", "utf8mb4", "ascii", "sjis", "gbk", "koi8r")
"""MySQL 8.0.15 ends itself when labels are converted to UTF-16 and when a conversion stands beside other
actions; from UTF-16 it converts labels wrongly."""
_CHARSETS = (*_CONVERTED, "binary", "cp1251")
_WIDE = ("ucs2", "utf16", "utf32")
_COLLATIONS = ("latin1_bin", "utf8_unicode_ci", "utf8mb4_bin", "utf8mb4_general_ci", "latin1_german1_ci")
_DEFAULTS = {
    "INT": ("0", "5", "'7'", "NULL"), "BOO": ("TRUE", "0"), "DEC": ("1.5", "'2.25'", "-3"), "NUM": ("7",),
    "FLO": ("1.5", "0", "1e5"), "DOU": ("-0.25", "'3'"), "REA": ("1",), "DAT": ("'2024-02-03'", "NULL"),
    "TIM": ("NULL",), "YEA": ("2001", "'99'"), "BIT": ("b'1'", "1"), "VAR": ("'x'", "''", "'a b '", "NULL"),
    "CHA": ("'x'", "' y '"), "ENU": ("'a'", "NULL"), "SET": ("''", "NULL"), "TIN": ("1", "NULL"),
    "SMA": ("12",), "BIG": ("123456789012",), "FIX": ("0.5",), "NCH": ("'n'",), "NAT": ("'n'",),
}  # fmt: skip
_NAMES = ("a", "b", "C", "d_e", "f g", "select", "Ü", "h", "i", "j", "k`l", "m")


class Definitions:
    """Writes statements from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def create(self, table: str) -> str:
        chance = self._random
        names = chance.sample(_NAMES, chance.randint(1, 7))
        parts = [f"{quote(name)} {self.column()}" for name in names]
        parts += self._keys(names)
        chance.shuffle(parts)
        options = ""
        if chance.random() < 0.5:
            options += f" DEFAULT CHARSET={chance.choice(_CHARSETS)}"
        elif chance.random() < 0.3:
            options += f" COLLATE {chance.choice(_COLLATIONS)}"
        return f"CREATE TABLE {quote(table)} ({', '.join(parts)}){options}"

    def column(self) -> str:
        chance = self._random
        text = chance.choice(_PLAIN)
        if chance.random() < 0.5:
            text = chance.choice(_CHARACTER)
            if chance.random() < 0.4:
                charsets = _CHARSETS if text[:3] in ("ENU", "SET") else _CHARSETS + _WIDE
                text += f" CHARACTER SET {chance.choice(charsets)}"
            elif chance.random() < 0.2:
                text += f" COLLATE {chance.choice(_COLLATIONS)}"
        if chance.random() < 0.4 and "NULL" not in text:
            text += chance.choice((" NOT NULL", " NULL"))
        if chance.random() < 0.4:
            defaults = _DEFAULTS.get(text[:3], ())
            if defaults and "TEXT" not in text and "BLOB" not in text:
                text += f" DEFAULT {chance.choice(defaults)}"
        if chance.random() < 0.1:
            text += chance.choice((" UNIQUE", " COMMENT 'x, y'", " PRIMARY KEY", " UNIQUE KEY"))
        return text

    def _keys(self, names: Iterable[str]) -> list[str]:
        chance = self._random
        names = list(names)
        keys = []
        for kind in ("PRIMARY KEY", "UNIQUE", "UNIQUE KEY k1", "KEY", "INDEX k2"):
            if chance.random() < 0.25:
                parts = chance.sample(names, min(len(names), chance.randint(1, 2)))
                keys.append(f"{kind} ({', '.join(quote(part) for part in parts)})")
        return keys

    def alter(self, table: str, columns: list[str], keys: list[str]) -> str:
        chance = self._random
        if chance.random() < 0.06:
            return f"ALTER TABLE {quote(table)} CONVERT TO CHARACTER SET {chance.choice(_CONVERTED)}"
        actions = [self._action(columns, keys) for _ in range(chance.choice((1, 1, 2, 3)))]
        return f"ALTER TABLE {quote(table)} " + ", ".join(actions)

    def _action(self, columns: list[str], keys: list[str]) -> str:
        chance = self._random
        old, other = chance.choice(columns), chance.choice(columns)
        new = chance.choice(_NAMES)
        place = chance.choice(("", "", " FIRST", f" AFTER {quote(other)}"))
        key = quote(chance.choice(keys)) if keys else quote("none")
        kind = chance.randrange(14)
        if kind < 3:
            return f"ADD COLUMN {quote(new)} {self.column()}{place}"
        if kind == 3:
            return f"ADD ({quote(new)} {self.column()}, KEY ({quote(other)}))"
        if kind == 4:
            return f"DROP COLUMN {quote(old)}"
        if kind < 7:
            return f"MODIFY {quote(old)} {self.column()}{place}"
        if kind < 9:
            return f"CHANGE COLUMN {quote(old)} {quote(new)} {self.column()}{place}"
        if kind == 9:
            return chance.choice(
                ("DROP PRIMARY KEY", f"DROP INDEX {key}", f"RENAME INDEX {key} TO `r{kind}`")
            )
        if kind == 10:
            return "ADD " + (self._keys(columns) or [f"UNIQUE ({quote(old)})"])[0]
        if kind == 11:
            return f"DEFAULT CHARACTER SET {chance.choice(_CHARSETS)}"
        if kind == 12:
            return f"RENAME COLUMN {quote(old)} TO {quote(new)}"
        return f"ALTER COLUMN {quote(old)} " + chance.choice(
            ("DROP DEFAULT", "SET DEFAULT 1", "SET DEFAULT 'x'")
        )
