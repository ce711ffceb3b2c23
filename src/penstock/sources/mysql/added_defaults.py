"""The values that existing rows have in a column that an ALTER TABLE added.

The server fills them with the constant DEFAULT converted to the column's type, with NULL, or, for a NOT NULL
column without DEFAULT, with the implicit default of the type ("Data Type Default Values" in the manual). For
values that only the server knows (an expression, CURRENT_TIMESTAMP, a conversion that may change values) it
is `NeedsSnapshot`.
"""

from __future__ import annotations

import base64
import datetime
import json
import re
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext

from penstock.errors import TableError
from penstock.model.schema import DEFAULT_TYPES, Column, TableId, TypeOptions
from penstock.sources.mysql.ddl.charsets import WIDE
from penstock.sources.mysql.ddl.definition import Default, DefaultExpression, DefaultLiteral
from penstock.sources.mysql.ddl.printed import without_spaces_beyond

Value = None | bool | int | float | Decimal | str | bytes | datetime.date | datetime.datetime

_TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_BINARIES = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})")
_DATETIME = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})[ T](\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,6}))?")
_INTEGERS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_FLOAT_MAX = {"float": 3.4028234e38, "double": 1.7976931348623157e308}
_NUMERIC = re.compile(r" *[-+]?[0-9.]+([eE][-+]?[0-9]+)? *")
_PLAIN_NUMBER = re.compile(r"0|-?[1-9]\d*|-?(?:0|[1-9]\d*)\.\d+")
_TIME = re.compile(r"(-?)(\d{1,3}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,6}))?")


def existing_value(
    table: TableId, column: Column, default: Default | None, *, types: TypeOptions = DEFAULT_TYPES
) -> Value:
    """The value of an added column in the rows that existed before, in the form of the column's Arrow type.

    Without `default` it is NULL if the column is nullable, else the implicit default of the type. Raises
    `TableError` if only the server knows the value.
    """
    if column.generated:
        raise _needs_snapshot(table, column, "is generated")
    if isinstance(default, DefaultExpression):
        raise _needs_snapshot(table, column, "has an expression as its default")
    try:
        if default is None:
            value = None if column.nullable else _implicit(column, types)
        else:
            value = None if default.kind == "null" else _convert(column, default, types)
            if default.expression and value is not None and not _fits(column, default, value):
                raise ValueError("a value that the server changes if sql_mode is not strict")
        return None if value is None else _as_chosen(column, value, types)
    except (ValueError, InvalidOperation, OverflowError) as error:
        raise _needs_snapshot(table, column, "has a default that only the server can convert") from error


def _as_chosen(column: Column, value: Value, types: TypeOptions) -> Value:
    """Returns the value in Arrow, converted as `types` in the pipeline file says."""
    if column.type == "bigint" and column.unsigned and types.bigint_unsigned != "decimal":
        number = int(str(value))
        if types.bigint_unsigned == "long" and number >= 1 << 63:
            raise ValueError("beyond BIGINT")
        return number if types.bigint_unsigned == "long" else str(number)
    if column.type == "decimal" and types.decimal != "precise":
        return float(str(value)) if types.decimal == "double" else str(value)
    if column.type == "time" and types.time == "micros":
        return _micros(str(value))
    if isinstance(value, bytes) and types.binary != "bytes":
        return value.hex().upper() if types.binary == "hex" else base64.b64encode(value).decode()
    if column.column_type.startswith("tinyint(1)") and not column.unsigned and types.tinyint1 == "boolean":
        return bool(value)
    return value


def _micros(text: str) -> int:
    match = _TIME.fullmatch(text)
    assert match is not None, "a time as `_time` writes it"
    sign, hours, minutes, seconds, fraction = match.groups()
    micros = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000
    micros += int((fraction or "").ljust(6, "0"))
    return -micros if sign else micros


def _needs_snapshot(table: TableId, column: Column, reason: str) -> TableError:
    return TableError(
        f"{table}: the added column {column.name} {reason}, so what existing rows hold is not in the log.",
        hint="Read the table again with a new snapshot.",
        table=str(table),
        column=column.name,
    )


def _implicit(column: Column, types: TypeOptions) -> Value:
    kind = column.type
    if kind in _TEXTS or kind == "set":
        return ""
    if kind == "enum" and column.labels:
        return column.labels[0]
    if kind == "binary":
        return bytes(column.length or 0)
    if kind in _BINARIES:
        return b""
    if kind == "json":
        return "null"
    if kind in ("date", "datetime", "timestamp"):
        return _zero_date(column, types)
    if kind == "time":
        return _time(column, "00:00:00")
    if kind in _INTEGERS or kind in ("decimal", "float", "double", "year", "bit"):
        return _convert(column, DefaultLiteral("number", "0"), types)
    raise ValueError(kind)


def _zero_date(column: Column, types: TypeOptions) -> Value:
    if types.zero_dates == "null":
        return None
    if types.zero_dates == "text":
        time = "" if column.type == "date" else " 00:00:00" + ("." + "0" * column.fsp if column.fsp else "")
        return "0000-00-00" + time
    raise ValueError("a zero date")


def _convert(column: Column, default: DefaultLiteral, types: TypeOptions) -> Value:
    kind = column.type
    # Bytes that are not those of the text.
    odd = (default.charset or "").startswith(WIDE) and (kind == "bit" or kind in _BINARIES)
    if default.charset == "binary" and not odd:
        odd = (column.charset or "").startswith(WIDE)
    if kind.endswith("text") and default.charset:  # MariaDB makes other characters of some
        odd = not (default.text.isascii() and default.text.isprintable())
    if default.kind == "unknown" or odd:
        raise ValueError("a constant whose value only the server knows")
    if kind in _INTEGERS or kind in ("decimal", "float", "double", "year"):
        return _number(column, default)
    if kind == "bit":
        bits = _bits(default)
        return bool(bits) if column.length == 1 else Decimal(bits) if column.length == 64 else bits
    text = default.text
    negative_zero = text.startswith("-") and not text.strip("-0.")
    if default.kind == "number" and (negative_zero or not _PLAIN_NUMBER.fullmatch(text)):
        raise ValueError("a number whose printed form only the server knows")
    if kind in _BINARIES:
        data = _bytes(default)
        return data.ljust(column.length or 0, b"\0") if kind == "binary" else data
    if default.kind in ("hex", "bits"):
        raise ValueError("a binary literal")
    if kind == "char":
        return text.rstrip(" ")
    if kind in _TEXTS:
        return without_spaces_beyond(column, text)
    if kind in ("enum", "set"):
        return _labels(column, default)
    if kind == "json":
        return _json(text)
    if kind == "time":
        return _time(column, text)
    if kind in ("date", "datetime", "timestamp"):
        return _date(column, text, types)
    raise ValueError(kind)


def _fits(column: Column, default: DefaultLiteral, value: Value) -> bool:
    """Whether the column holds the value as it is. A constant in parentheses is not checked when the column
    is defined. An INSERT converts it, and without a strict sql_mode changes what does not fit."""
    kind = column.type
    if kind in _INTEGERS or kind in ("decimal", "float", "double", "year", "bit"):
        if default.kind == "string" and kind != "bit" and not _NUMERIC.fullmatch(default.text):
            return False
        if kind == "year":
            return value == 0 or 1901 <= Decimal(str(value)) <= 2155
        if kind in _FLOAT_MAX:
            return (0 if column.unsigned else -_FLOAT_MAX[kind]) <= float(str(value)) <= _FLOAT_MAX[kind]
        number = Decimal(int(value) if isinstance(value, bool) else str(value))
        if kind == "decimal":
            largest = Decimal(10) ** ((column.precision or 0) - (column.scale or 0))
            return (number >= 0 if column.unsigned else -largest < number) and number < largest
        bits = (column.length or 0) if kind == "bit" else _INTEGERS[kind]
        low = 0 if column.unsigned or kind == "bit" else -(1 << bits - 1)
        return low <= number < low + (1 << bits)
    if kind in ("date", "datetime", "timestamp", "time") and isinstance(value, str):
        if kind == "time":
            return not re.match(r"-?838:59:59\.0*[1-9]", value)
        return not value.strip("0-: .") or bool(datetime.datetime.fromisoformat(value[:19]))
    if kind in _BINARIES and isinstance(value, bytes):
        return len(value) <= (column.length or 0)
    if kind in _TEXTS and isinstance(value, str):
        known = column.charset == "utf8mb4" or (value.isascii() and column.charset != "swe7")
        return known and len(value) * (4 if kind.endswith("text") else 1) <= (column.length or 255)
    return True


def _number(column: Column, default: DefaultLiteral) -> Value:
    if default.kind in ("hex", "bits"):
        number = Decimal(_bits(default))
    else:
        number = Decimal(default.text.strip())
    if column.type in ("float", "double"):
        if column.column_type.startswith(column.type + "("):
            raise ValueError("rounded to the display width")
        return float(number)
    with localcontext() as context:
        context.prec = 100
        if column.type == "decimal":
            rounded = number.quantize(Decimal(1).scaleb(-(column.scale or 0)), rounding=ROUND_HALF_UP)
            return str(rounded) if (column.precision or 0) > 38 else rounded
        rounded = number.quantize(Decimal(1), rounding=ROUND_HALF_UP)
    if number != rounded and "e" in default.text.lower():
        raise ValueError("a floating-point number that is rounded")
    integer = int(rounded)
    if column.column_type.startswith("year(2)"):
        return integer % 100
    if column.type == "year":
        if default.kind == "string" and integer == 0 and len(default.text.strip()) < 3:
            return 2000
        if 1 <= integer <= 99:
            return integer + (2000 if integer < 70 else 1900)
    if column.type == "bigint" and column.unsigned:
        return Decimal(integer)
    return integer


def _bits(default: DefaultLiteral) -> int:
    if default.kind == "hex":
        return int(default.text or "0", 16)
    if default.kind == "bits":
        return int(default.text or "0", 2)
    if default.kind == "string":
        return int.from_bytes(default.text.encode("ascii"), "big")
    return int(default.text)


def _bytes(default: DefaultLiteral) -> bytes:
    if default.kind == "hex":
        return bytes.fromhex(default.text if len(default.text) % 2 == 0 else "0" + default.text)
    if default.kind == "bits":
        return int(default.text or "0", 2).to_bytes((len(default.text) + 7) // 8, "big")
    return default.text.encode("ascii")  # other texts depend on the session's character set


def _labels(column: Column, default: DefaultLiteral) -> str:
    """Returns the labels with their declared spelling. DEFAULT may spell them in another letter case."""
    if default.kind != "string":
        raise ValueError("the number of a label")
    if len({label.casefold() for label in column.labels or ()}) < len(column.labels or ()):
        raise ValueError("labels that differ only in their case")
    declared = {label.casefold(): label for label in column.labels or ()}
    if column.type == "enum":
        if default.text.casefold() not in declared:
            raise ValueError("not a label")
        return declared[default.text.casefold()]
    wanted = {label.casefold() for label in default.text.split(",") if label}
    if not wanted <= declared.keys():
        raise ValueError("not a label")
    return ",".join(label for label in column.labels or () if label.casefold() in wanted)


def _json(text: str) -> str:
    """Returns the JSON text as the server prints it, for values whose printed form is certain."""
    value = json.loads(text)
    if value in ([], {}) or value is None or isinstance(value, bool | int):
        return json.dumps(value)
    raise ValueError("a JSON value whose printed form only the server knows")


def _time(column: Column, text: str) -> str:
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise ValueError("a time")
    sign, hours, minutes, seconds, fraction = match.groups()
    if int(hours) > 838 or int(minutes) > 59 or int(seconds) > 59:
        raise ValueError("a time out of range")
    digits = _fraction(column, fraction)
    return f"{sign}{int(hours):02d}:{int(minutes):02d}:{int(seconds):02d}" + ("." + digits if digits else "")


def _fraction(column: Column, fraction: str | None) -> str:
    """The fraction with exactly `fsp` digits. Only the server rounds."""
    fsp = column.fsp or 0
    if fraction and fraction[fsp:].strip("0"):
        raise ValueError("more digits than the column holds")
    return (fraction or "")[:fsp].ljust(fsp, "0")


def _date(column: Column, text: str, types: TypeOptions) -> Value:
    match = _DATETIME.fullmatch(text.strip()) or _DATE.fullmatch(text.strip())
    if match is None:
        raise ValueError("a date")
    parts = [int(part) for part in match.groups()[:6]]
    hour, minute, second = [*parts[3:], 0, 0, 0][:3]
    if column.type == "date" and (hour or minute or second):
        raise ValueError("a date with a time")
    year, month, day = parts[:3]
    if column.type == "timestamp" and (year or month or day):
        raise ValueError("a time in the session's zone")
    digits = "" if column.type == "date" else _fraction(column, match.groups()[6] if len(parts) > 3 else None)
    if types.zero_dates == "text":
        time = "" if column.type == "date" else f" {hour:02d}:{minute:02d}:{second:02d}"
        return f"{year:04d}-{month:02d}-{day:02d}{time}" + ("." + digits if digits else "")
    if year == month == day == 0 and not (hour or minute or second):
        return _zero_date(column, types)
    if column.type == "date":
        return datetime.date(year, month, day)
    return datetime.datetime(year, month, day, hour, minute, second, int(digits.ljust(6, "0") or "0"))
