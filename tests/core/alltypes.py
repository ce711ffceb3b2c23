# ruff: noqa: ISC004  (a table of values)
"""Every MySQL 8.0 type in one table: the values that others get wrong, and what the server says they are."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

SELECT_SESSION = ("SET time_zone = '+00:00'", "SET sql_mode = ''", "SET NAMES utf8mb4")


@dataclass(frozen=True)
class Sample:
    """One column: its definition, values as SQL literals, and how the server is asked for them."""

    name: str
    definition: str
    values: tuple[str, ...]
    select: str = "{}"


def _bits(width: int) -> tuple[str, ...]:
    return ("b'0'", "b'1'", f"b'{'1' * width}'", f"b'1{'0' * (width - 1)}'", "NULL")


def _integers(name: str, bits: int) -> Iterable[Sample]:
    half = 2 ** (bits - 1)
    signed = (str(-half), str(half - 1), "0", "-1", "1", "NULL")
    yield Sample(f"c_{name}", name, signed)
    yield Sample(f"c_{name}_u", f"{name} unsigned", (str(2 * half - 1), "0", str(half), "1", "NULL"))


_DATES = ("'2024-02-29'", "'1000-01-01'", "'9999-12-31'", "'1970-01-01'", "'1969-12-31'", "NULL")
_ZERO_DATES = ("'0000-00-00'", "'2024-00-10'", "'2024-12-00'", "'0000-01-01'")
_TIMES = ("'-838:59:59'", "'838:59:59'", "'00:00:00'", "'-00:00:01'", "'17:04:05'", "NULL")
_FRACTIONS = (
    "'12:34:56.789012'",
    "'-12:34:56.700001'",
    "'-00:00:00.500000'",
    "'-838:59:58.999999'",
    "'00:00:00.1'",
)
_CHARS = ("'abc'", "''", "'ä€x'", "'  lead and trail  '", "'quote \\' slash \\\\ nul \\0 end'", "NULL")
_BYTES = ("x'00ff00'", "''", "x'ffffffff'", "x'0102030000'", "NULL")
_JSON = (
    """'{"b": 1, "a": [1, 2.5, "x", null, true, false], "aa": {}, "": []}'""",
    "'[1e0, 1.5e300, -0.0, 0.1, 1e15, 1e14, 1e-15, 123456789.125, 1e-300, "
    "12345678901234567890, 100000000000000000.0]'",
    "'[32767, 32768, -32768, -32769, 65535, 65536, 2147483647, "
    "2147483648, -2147483649, 18446744073709551615]'",
    "JSON_OBJECT('d', CAST('-12.3400' AS DECIMAL(20,4)), 'e', CAST('0.05' AS DECIMAL(3,2)))",
    "JSON_ARRAY(CAST('2015-01-15' AS DATE), CAST('2015-01-15 23:24:25.12' AS DATETIME(2)), "
    "CAST('-838:59:59' AS TIME), CAST('12:13:14.5' AS TIME(1)), TIMESTAMP('0000-00-00 00:00:00'))",
    "JSON_ARRAY(x'0102', REPEAT(x'ff', 100), b'101', _binary 'abc')",
    """JSON_ARRAY('quote " back \\\\ slash / ctl \\b\\t\\n\\r ', """
    """CHAR(1 USING utf8mb4), CHAR(31 USING utf8mb4), CHAR(127), '😀ä')""",
    "'\"text\"'",
    "'null'",
    "'true'",
    "'-5'",
    "'3.14'",
    "JSON_OBJECT('long', REPEAT('x', 70000), 'k', REPEAT('y', 200))",
    "CONCAT('[', REPEAT('{\"k\": [1]},', 8000), '0]')",
    "ST_AsGeoJSON(ST_GeomFromText('POINT(1.5 -2.25)'))",
    "NULL",
)

SAMPLES: tuple[Sample, ...] = (
    *(sample for name, bits in (("tinyint", 8), ("smallint", 16)) for sample in _integers(name, bits)),
    Sample("c_year", "year", ("1901", "2155", "0", "1970", "NULL"), "{} + 0"),
    *(
        sample
        for name, bits in (("mediumint", 24), ("int", 32), ("bigint", 64))
        for sample in _integers(name, bits)
    ),
    Sample("c_zerofill", "int(8) unsigned zerofill", ("42", "4294967295"), "{} + 0"),
    Sample("c_dec_5_2", "decimal(5,2)", ("-999.99", "0.01", "-0.01", "0", "NULL")),
    Sample("c_dec_10_0", "decimal(10,0)", ("9999999999", "-1", "NULL")),
    Sample("c_dec_9_9", "decimal(9,9)", ("0.123456789", "-0.999999999")),
    Sample("c_dec_19_10", "decimal(19,10) unsigned", ("123456789.0123456789", "0.0000000001")),
    Sample("c_dec_38_18", "decimal(38,18)", ("-" + "9" * 20 + "." + "9" * 18, "1.5")),
    Sample("c_dec_65_30", "decimal(65,30)", ("-" + "9" * 35 + "." + "9" * 30, "0", "-0.5", "NULL")),
    Sample("c_dec_65_0", "decimal(65,0)", ("9" * 65, "-" + "1" * 65)),
    Sample("c_float", "float", ("3.4e38", "-1.1754944e-38", "0.1", "16777217", "-0.0", "NULL"), "{} * 1e0"),
    Sample("c_double", "double",
           ("1.7976931348623157e308", "-2.2250738585072014e-308", "0.1", "-0.0", "NULL")),
    *(Sample(f"c_bit_{width}", f"bit({width})", _bits(width), "{} + 0") for width in (1, 2, 8, 9, 63, 64)),
    Sample("c_date", "date", _DATES, "CAST({} AS CHAR)"),
    *(
        Sample(
            f"c_datetime_{fsp}", f"datetime({fsp})",
            tuple(f"{date[:-1]} 23:59:58.987654'" for date in _DATES[:3]) + ("'1969-12-31 23:59:59'", "NULL"),
            "CAST({} AS CHAR)",
        )
        for fsp in range(7)
    ),
    *(
        Sample(
            f"c_timestamp_{fsp}", f"timestamp({fsp}) null",
            ("'1970-01-01 00:00:01'", "'2038-01-19 03:14:06.499999'", "'2024-02-29 12:00:00.123456'", "NULL"),
            "CAST({} AS CHAR)",
        )
        for fsp in range(7)
    ),
    Sample("c_time", "time", _TIMES, "CAST({} AS CHAR)"),
    *(Sample(f"c_time_{fsp}", f"time({fsp})", _TIMES + _FRACTIONS, "CAST({} AS CHAR)")
      for fsp in range(1, 7)),
    Sample("c_zero_date", "date not null", _ZERO_DATES, "CAST({} AS CHAR)"),
    Sample(
        "c_zero_datetime", "datetime(3) not null",
        tuple(f"{date[:-1]} 00:00:00'" for date in _ZERO_DATES) + ("'2024-00-00 11:22:33.5'",),
        "CAST({} AS CHAR)",
    ),
    Sample("c_zero_timestamp", "timestamp(2) not null default '2000-01-01'",
           ("0", "'2001-02-03 04:05:06.78'"), "CAST({} AS CHAR)"),
    Sample("c_char", "char(40)", _CHARS), Sample("c_varchar", "varchar(100)", _CHARS),
    Sample("c_varchar_big", "varchar(1000)", (*_CHARS, "REPEAT('ü', 1000)")),
    Sample("c_char_255", "char(255)", (*_CHARS, "REPEAT('€', 255)")),
    *(Sample(f"c_{size}text", f"{size}text", _CHARS) for size in ("tiny", "", "medium", "long")),
    Sample("c_longtext_big", "longtext", ("REPEAT('abcdefgh', 20000)", "'x'")),
    Sample("c_latin1", "varchar(40) character set latin1", ("'äöü€ÿ'", "'plain'", "NULL")),
    Sample("c_latin1_char", "char(10) character set latin1", ("'é  '", "''")),
    Sample("c_ucs2", "varchar(40) character set ucs2", ("'aä€'", "''")),
    Sample("c_utf16", "char(40) character set utf16", ("'aä€😀'", "'a '")),
    Sample("c_utf16le", "text character set utf16le", ("'aä€😀'",)),
    Sample("c_utf32", "varchar(40) character set utf32", ("'aä€😀'",)),
    Sample("c_utf8mb3", "varchar(40) character set utf8", ("'aä€'",)),
    Sample("c_sjis", "varchar(40) character set sjis", ("'テスト\\\\~'", "'表'")),
    Sample("c_ujis", "varchar(40) character set ujis", ("'日本語〜'",)),
    Sample("c_gbk", "varchar(40) character set gbk", ("'中文€'",)),
    Sample("c_gb18030", "varchar(40) character set gb18030", ("'中文😀'",)),
    Sample("c_big5", "varchar(40) character set big5", ("'中文'",)),
    Sample("c_euckr", "varchar(40) character set euckr", ("'한국어'",)),
    Sample("c_koi8r", "varchar(40) character set koi8r", ("'привет'",)),
    Sample("c_binary", "binary(16)", _BYTES, "HEX({})"),
    Sample("c_binary_255", "binary(255)", _BYTES, "HEX({})"),
    Sample("c_varbinary", "varbinary(300)", (*_BYTES, "REPEAT(x'00', 300)"), "HEX({})"),
    *(Sample(f"c_{size}blob", f"{size}blob", _BYTES, "HEX({})") for size in ("tiny", "", "medium", "long")),
    Sample("c_text_binary", "char(8) character set binary", ("'ab'", "x'00'"), "HEX({})"),
    Sample("c_enum", "enum('a','ü','x,y','')", ("1", "2", "3", "4", "'no such'", "NULL")),
    Sample("c_enum_latin1", "enum('é','ö') character set latin1", ("'é'", "'ö'")),
    Sample("c_enum_300", "enum(" + ",".join(f"'label {n}'" for n in range(300)) + ")", ("1", "256", "300")),
    Sample("c_set", "set('a','b','ü','d')", ("''", "'a'", "'a,ü'", "'a,b,ü,d'", "NULL")),
    Sample("c_set_64", "set(" + ",".join(f"'m{n}'" for n in range(64)) + ")",
           ("18446744073709551615", "9223372036854775808", "''", "'m0,m33'")),
    Sample("c_set_33", "set(" + ",".join(f"'m{n}'" for n in range(33)) + ")", ("'m32,m1'", "''")),
    Sample("c_set_20", "set(" + ",".join(f"'m{n}'" for n in range(20)) + ") character set latin1",
           ("'m19'", "''")),
    Sample("c_json", "json", _JSON),
    Sample("c_geometry", "geometry",
           ("ST_GeomFromText('POINT(1 2)')", "ST_GeomFromText('LINESTRING(0 0,1 1)', 4326)", "NULL"),
           "HEX({})"),
    Sample("c_point", "point srid 0", ("POINT(3, -4)",), "HEX({})"),
    Sample("c_virtual", "int as (c_tinyint + 1) virtual", ("DEFAULT",)),
    Sample("c_stored", "varchar(100) as (concat('<', c_varchar, '>')) stored", ("DEFAULT",)),
)  # fmt: skip

ROWS = max(len(sample.values) for sample in SAMPLES)


def create_table(name: str) -> str:
    columns = ",\n".join(f"`{sample.name}` {sample.definition}" for sample in SAMPLES)
    return (
        f"CREATE TABLE {name} (id BIGINT NOT NULL PRIMARY KEY, {columns}, KEY ((lower(c_varchar)))) "
        "DEFAULT CHARSET utf8mb4"
    )


def inserts(name: str) -> list[str]:
    """Statements that insert rows 1 to `ROWS`; each column goes through its values again and again."""
    return [
        f"INSERT INTO {name} VALUES ({row + 1}, {', '.join(s.values[row % len(s.values)] for s in SAMPLES)})"
        for row in range(ROWS)
    ]


def select(name: str) -> str:
    return f"SELECT id, {', '.join(s.select.format(f'`{s.name}`') for s in SAMPLES)} FROM {name} ORDER BY id"


def same(arrow: Any, server: str | bytes | None) -> bool:
    """Whether a value of ours is what the server's text says."""
    if isinstance(server, bytes):
        server = server.decode()
    if arrow is None or server is None:
        return arrow is None and server is None
    if isinstance(arrow, bool):
        return server == str(int(arrow))
    convert: dict[type, Callable[[Any], bool]] = {
        int: lambda value: str(value) == server,
        str: lambda value: bool(value == server),
        bytes: lambda value: value.hex().upper() == server,
        float: lambda value: repr(value) == repr(float(server)),
        decimal.Decimal: lambda value: f"{value:f}" == server,
        datetime.date: lambda value: value.isoformat() == server,
        datetime.datetime: lambda value: (
            value.replace(tzinfo=None) == datetime.datetime.fromisoformat(_six(server))
        ),
    }
    return convert[type(arrow)](arrow)


def _six(text: str) -> str:
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction:0<6}"
