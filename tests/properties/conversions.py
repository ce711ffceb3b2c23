"""Types with values at their edges, for ALTERs from each to each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

_INTEGERS = (("TINYINT", 8), ("SMALLINT", 16), ("MEDIUMINT", 24), ("INT", 32), ("BIGINT", 64))
_EXACT = 2**24 + 1, 2**53 + 1
"""Integers beyond these bits are rounded by FLOAT and DOUBLE."""


@dataclass(frozen=True)
class Kind:
    """A type, and literals of values that it holds. A value that a server refuses is left out."""

    type: str
    values: tuple[str, ...]


def kinds(flavor: str) -> list[Kind]:
    """The types that the server has."""
    found = [*_integers(), *_decimals(), *_floats(), *_bits(), *_times(), *_texts(), *_bytes(), *_labels()]
    found += _spatial()
    if flavor.startswith("mysql"):
        found.append(Kind("JSON", ('\'{"b": 1, "a": 2}\'', "'[1.0]'", "'\"x\"'", "'1'", "'null'")))
    else:
        found += _mariadb(flavor)
    return found


def _integers() -> Iterator[Kind]:
    for name, bits in _INTEGERS:
        for sign in ("", " UNSIGNED"):
            low, high = (0, 2**bits - 1) if sign else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
            edges = {low, high, 0, 1, -1, 99, 1901, *_EXACT, -_EXACT[1]}
            edges |= {
                edge for _, size in _INTEGERS for edge in (2**size, 2 ** (size - 1), -(2 ** (size - 1)) - 1)
            }
            fitting = sorted(edge for edge in edges if low <= edge <= high)
            yield Kind(name + sign, tuple(map(str, fitting)))
    yield Kind("TINYINT(1)", ("0", "1", "-1", "127", "-128"))
    yield Kind("INT(5) ZEROFILL", ("0", "7", "99999", "4294967295"))
    yield Kind("BIGINT(20) ZEROFILL", ("0", "7", str(2**64 - 1)))


def _decimals() -> Iterator[Kind]:
    for precision, scale in ((1, 1), (2, 0), (5, 0), (10, 0), (10, 2), (20, 0), (38, 10), (39, 0), (65, 30)):
        for sign in ("", " UNSIGNED", " ZEROFILL"):
            nines = "9" * (precision - scale) + "." + "9" * scale
            last = "0." + "0" * max(scale - 1, 0) + "1" if scale else "1"
            low = () if sign else (f"-{nines}", f"-{last}")
            if sign != " ZEROFILL" or precision == 10:
                yield Kind(f"DECIMAL({precision},{scale}){sign}", (nines, last, "0", *low))


def _floats() -> Iterator[Kind]:
    small = ("0", "0.1", "1.5", "12.345678", "16777217", "-1e-30", "-0.5", "-0.0")
    for size, most in (("FLOAT", "3.4e38"), ("DOUBLE", "1.7976931348623157e308")):
        for digits in ("", "(7,4)", "(9,4)", "(10,2)"):
            for sign in ("", " UNSIGNED", " ZEROFILL"):
                if sign != " ZEROFILL" or digits in ("", "(10,2)"):
                    values = (*small, most, f"-{most}", "123.45678901234567", "99999.994")
                    yield Kind(size + digits + sign, values)


def _bits() -> Iterator[Kind]:
    for width in (1, 2, 7, 8, 63, 64):
        yield Kind(
            f"BIT({width})", tuple(f"b'{bits}'" for bits in ("0", "1", "1" * width, "1" + "0" * (width - 1)))
        )


def _times() -> Iterator[Kind]:
    yield Kind("YEAR", ("0", "1901", "1970", "2069", "2155"))
    dates = ("1000-01-01", "9999-12-31", "1970-01-02", "2024-02-29", "2038-01-19", "0000-00-00", "2024-00-10")
    yield Kind("DATE", tuple(f"'{date}'" for date in dates))
    for fsp in ("", "(1)", "(3)", "(6)"):
        moments = [f"'{date} {time}'" for date in dates for time in ("00:00:00", "23:59:59.987654")]
        yield Kind(f"DATETIME{fsp}", tuple(moments))
        yield Kind(f"TIMESTAMP{fsp}", tuple(moments))
        clock = (
            "00:00:00",
            "-00:00:00.5",
            "838:59:59",
            "-838:59:59",
            "23:59:59.987654",
            "24:00:00",
            "-00:00:01",
        )
        yield Kind(f"TIME{fsp}", tuple(f"'{time}'" for time in clock))


_WORDS = ("''", "'a'", "'A'", "' a '", "'a b  '", "'abc'", "'1'", "'0'", "'07'", "'a,b'", "'\\t'", "'x\\0y'")
_TEXT_KINDS = ("TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT")
_CHARSETS = (
    "latin1",
    "utf8mb4",
    "utf8",
    "ascii",
    "ucs2",
    "utf16",
    "cp1251",
    "gbk",
    "swe7",
    "sjis",
    "latin2",
    "koi8r",
)


def _letters(charset: str) -> tuple[str, ...]:
    """Letters that only some character sets have, and bytes that are no letters of some."""
    every = {
        "latin1": ("_latin1 0xE9", "_latin1 0x80", "_latin1 0x81"),
        "utf8mb4": ("_utf8mb4 0xF09F9880", "_utf8mb4 0xE4B8AD", "_utf8mb4 0xC3A9"),
        "utf8": ("_utf8 0xE4B8AD", "_utf8 0xC3A9", "_utf8 0xE282AC"), "ascii": ("'~'", "'[]{}|'"),
        "ucs2": ("_ucs2 0x4E2D", "_ucs2 0xD83D"), "utf16": ("_utf16 0xD83DDE00", "_utf16 0x4E2D"),
        "cp1251": ("_cp1251 0xDF", "_cp1251 0x98"), "gbk": ("_gbk 0xD6D0", "_gbk 0xA2A1", "_gbk 0x80"),
        "swe7": ("_swe7 0x7B", "_swe7 0x40"),
        "sjis": ("_sjis 0x93FA", "_sjis 0x5C", "_sjis 0x7E", "_sjis 0x815F"),
        "latin2": ("_latin2 0xA1",), "koi8r": ("_koi8r 0xC1",),
    }  # fmt: skip
    return every[charset]


def _texts() -> Iterator[Kind]:
    for charset in _CHARSETS:
        words, mark = (*_WORDS, *_letters(charset)), f" CHARACTER SET {charset}"
        yield Kind(f"VARCHAR(10){mark}", (*words, "REPEAT('x', 10)"))
        yield Kind(f"CHAR(10){mark}", (*words, "REPEAT('x', 10)"))
    for charset in ("latin1", "utf8mb4"):
        words, mark = (*_WORDS, *_letters(charset)), f" CHARACTER SET {charset}"
        many = [
            f"REPEAT({letter}, {times})"
            for letter in _letters(charset)[:1]
            for times in (63, 64, 255, 3000, 16384)
        ]
        yield Kind(f"VARCHAR(300){mark}", (*words, "REPEAT('x', 300)"))
        yield Kind(f"CHAR(255){mark}", (*words, "REPEAT('x', 255)"))
        for name in _TEXT_KINDS:
            yield Kind(name + mark, (*words, "REPEAT('x', 255)", "REPEAT('x', 65535)", *many))
    yield Kind("VARCHAR(10) CHARACTER SET latin1 COLLATE latin1_bin", (*_WORDS, *_letters("latin1")))
    yield Kind("CHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", (*_WORDS, *_letters("utf8mb4")))


def _bytes() -> Iterator[Kind]:
    data = ("''", "'a'", "' a '", "0x00", "0x6100", "0x610000", "0x20", "0xE9FF", "'1'", "0xC3A9")
    for name in ("BINARY(10)", "BINARY(4)", "VARBINARY(10)", "VARBINARY(300)"):
        yield Kind(name, data)
    for name in ("TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"):
        yield Kind(name, (*data, "REPEAT('x', 255)", "REPEAT('x', 65535)"))


def _labels() -> Iterator[Kind]:
    lists = (
        "'a','b'", "'b','a'", "'a','b','c'", "'c','a','b'", "'A','B'", "'a','x'", "'1','2'", "'2','1'",
        "'','a','b'",
        "'a ','b'", "'a','b','é'", "'a'", "'abc','a'", "'" + "','".join(f"l{n}" for n in range(64)) + "'",
    )  # fmt: skip
    for kind in ("ENUM", "SET"):
        for labels in lists:
            names = [name.strip("'") for name in labels.split(",")]
            both = [f"'{names[0]},{names[-1]}'", "'a,b'"] if kind == "SET" else []
            for mark in ("", " CHARACTER SET utf8mb4", " CHARACTER SET ascii") if len(names) < 4 else ("",):
                if "ascii" not in mark or labels.isascii():
                    values = (*(f"'{name}'" for name in names), *both, "0", "'nothing'")
                    yield Kind(f"{kind}({labels}){mark}", values)
    yield Kind("ENUM('é','ß') CHARACTER SET latin1", ("'é'", "'ß'"))
    yield Kind("ENUM('é','ß') CHARACTER SET utf8mb4", ("'é'", "'ß'"))
    yield Kind("ENUM('a','A') CHARACTER SET latin1 COLLATE latin1_bin", ("'a'", "'A'"))


def _spatial() -> Iterator[Kind]:
    point, line = "POINT(1 2)", "LINESTRING(0 0, 1 1)"
    yield Kind("POINT", (f"ST_GeomFromText('{point}')",))
    yield Kind("LINESTRING", (f"ST_GeomFromText('{line}')",))
    yield Kind("GEOMETRY", tuple(f"ST_GeomFromText('{shape}')" for shape in (point, line)))
    yield Kind("GEOMETRYCOLLECTION", (f"ST_GeomFromText('GEOMETRYCOLLECTION({point})')",))


def _mariadb(flavor: str) -> Iterator[Kind]:
    yield Kind("YEAR(2)", ("0", "69", "70", "99", "1970"))
    yield Kind("INET6", ("'::'", "'::ffff:1.2.3.4'", "'2001:db8::ff'"))
    yield Kind("INET4", ("'0.0.0.0'", "'1.2.3.4'", "'255.255.255.255'"))
    yield Kind("UUID", ("'123e4567-e89b-12d3-a456-426655440000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"))
    yield Kind("JSON", ("'{\"b\": 1}'", "'[1.0]'"))
    yield Kind("VARCHAR(10) COMPRESSED", ("''", "'a'", "'a '"))
    yield Kind("BLOB COMPRESSED", ("''", "'a'", "REPEAT('x', 3000)"))
    yield Kind("TEXT COMPRESSED", ("''", "'a'", "REPEAT('x', 3000)"))


def codes(charset: str, width: int) -> tuple[str, ...]:
    """Literals of every byte, or of a sample of the codes of a character set with several bytes."""
    found = [bytes([code]) for code in range(256)]
    if charset in ("ucs2", "utf16", "utf16le"):
        order: Literal["little", "big"] = "little" if charset == "utf16le" else "big"
        found = [code.to_bytes(2, order) for code in range(0x100, 0x10000, 487)]
    elif charset == "utf32":
        found = [code.to_bytes(4, "big") for code in (*range(0x100, 0x11000, 997), 0x10FFFF)]
    elif charset.startswith("utf8"):
        found += [chr(code).encode() for code in range(0x80, 0xD800, 487)]
    elif width > 1:
        found += [bytes([lead, trail]) for lead in range(0x81, 0x100, 5) for trail in range(0x40, 0x100, 13)]
    return tuple(f"_{charset} 0x{code.hex()}" for code in found)


@dataclass(frozen=True)
class Case:
    """A table, its rows, and a change. `harmless`: it must not be read again where the server takes it."""

    columns: str
    names: str
    rows: tuple[str, ...]
    change: str
    harmless: bool = False


def _cases() -> Iterator[Case]:
    types = (
        "INT 5", "VARCHAR(5) 'x'", "DATE '2020-01-01'", "DATETIME '2020-01-01'", "TIMESTAMP '2020-01-01'",
        "ENUM('a','b') 'b'", "SET('a','b') 'b'", "DECIMAL(5,2) 1.5", "BIT(3) 5", "YEAR 2001",
        "TIME '1:00:00'",
        "FLOAT(7,4) 1.5", "BLOB 'x'", "TEXT 'x'", "DOUBLE 2",
    )  # fmt: skip
    for text in types:
        kind, _, value = text.rpartition(" ")
        null = (f"c {kind} NULL", "id, c", ("1, NULL", f"2, {value}"))
        yield Case(*null, f"MODIFY c {kind} NOT NULL")
        yield Case(*null, f"MODIFY c {kind} NOT NULL DEFAULT {value}")
        yield Case(*null, f"MODIFY c {kind} NULL DEFAULT {value}", harmless=True)
        yield Case(*null, "ADD x INT NOT NULL DEFAULT 3", harmless=True)
        if kind not in ("BLOB", "TEXT"):
            yield Case(*null, "ADD PRIMARY KEY (id, c)")
        yield Case(f"c {kind} NOT NULL", "id, c", (f"1, {value}",), f"MODIFY c {kind} NULL", harmless=True)
        yield Case(
            f"c {kind} NOT NULL", "id, c", (f"1, {value}",), f"CHANGE c d {kind} NOT NULL", harmless=True
        )
    for kind in ("INT", "BIGINT UNSIGNED", "DOUBLE"):
        for mark, rows in (
            ("NULL", ("1, NULL", "2, 0", "3, 7", "4, NULL")), ("NOT NULL", ("1, 0", "2, 0", "3, 7")),
            ("NOT NULL DEFAULT 0", ("1, 0", "2, 7")),
        ):  # fmt: skip
            for more in ("", ", ADD PRIMARY KEY (c, id)"):
                plain = Case(f"c {kind} {mark}, KEY (c)", "id, c", rows, "")
                yield replace(plain, change=f"MODIFY c {kind} NOT NULL AUTO_INCREMENT{more}")
                yield replace(plain, change=f"MODIFY c BIGINT UNSIGNED NOT NULL AUTO_INCREMENT{more}")
        numbered = Case(
            f"c {kind} NOT NULL AUTO_INCREMENT, KEY (c)", "id, c", ("1, 0", "2, 7"), "", harmless=True
        )
        yield replace(numbered, change=f"MODIFY c {kind} NOT NULL AUTO_INCREMENT COMMENT 'x'")
        yield replace(numbered, change=f"MODIFY c {kind} NOT NULL")
        yield replace(numbered, change="ADD x INT")
        yield replace(
            numbered, change="ADD n INT NOT NULL AUTO_INCREMENT UNIQUE, MODIFY c INT NOT NULL", harmless=False
        )
    for kept in ("STORED", "VIRTUAL"):
        made = f"a INT, t VARCHAR(9), g VARCHAR(20) AS (CONCAT(a)) {kept}, h INT AS (LENGTH(t)) {kept}"
        of = Case(made, "id, a, t", ("1, 5, 'x'", "2, NULL, NULL", "3, 100000, 'é'"), "")
        yield replace(of, change="ADD x INT", harmless=True)
        yield replace(of, change="MODIFY t VARCHAR(9) DEFAULT 'y', DROP h", harmless=True)
        yield replace(of, change="CHANGE t u VARCHAR(9), DROP h", harmless=True)
        yield replace(of, change="MODIFY a DECIMAL(12,2)")
        yield replace(of, change="MODIFY a INT(9) ZEROFILL")
        yield replace(of, change="MODIFY a SMALLINT")
        yield replace(of, change="CONVERT TO CHARACTER SET utf8mb4")
        yield replace(of, change="MODIFY t VARCHAR(9) CHARACTER SET utf8mb4")
        yield replace(of, change=f"MODIFY g VARCHAR(20) AS (CONCAT(a, 'x')) {kept}")
        yield replace(of, change=f"MODIFY g VARCHAR(3) AS (CONCAT(a)) {kept}")
        yield replace(of, change="MODIFY g VARCHAR(20)")
        yield replace(of, change=f"MODIFY t VARCHAR(9) AS (CONCAT(a)) {kept}")
    yield Case("c TIMESTAMP NULL", "id, c", ("1, NULL",), "MODIFY c TIMESTAMP")
    yield Case(
        "c VARCHAR(20) NOT NULL, KEY (c(3))", "id, c", ("1, 'abcdef'",), "ADD KEY (c(2))", harmless=True
    )
    yield Case("c TEXT, KEY (c(3))", "id, c", ("1, 'abcdef'",), "ADD PRIMARY KEY (id)", harmless=True)


CASES = tuple(_cases())
