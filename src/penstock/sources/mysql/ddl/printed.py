"""The text that a server prints as COLUMN_DEFAULT for a constant in a statement."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext

from penstock.model.schema import Column
from penstock.sources.mysql.ddl.definition import Default, DefaultExpression, DefaultLiteral
from penstock.sources.mysql.ddl.server import Server

_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "year"})
_TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "json"})
_BINARIES = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})


def default_text(column: Column, default: Default, server: Server) -> str | None:
    """Returns the printed text. None: there is no default, or it is NULL. A text whose printed form only the
    server knows is returned as written."""
    if isinstance(default, DefaultExpression):
        if default.now is None:
            return default.text
        digits = f"({default.now})" if default.now else ""
        if server.mariadb:
            return "current_timestamp" + (digits or "()")
        return "CURRENT_TIMESTAMP" + digits
    if default.kind == "null":
        return "NULL" if default.expression and not server.mariadb else None
    try:
        return _constant(column, default, server)
    except (ValueError, InvalidOperation, OverflowError):
        return default.text


def _constant(column: Column, default: DefaultLiteral, server: Server) -> str:
    kind = column.type
    if default.kind == "unknown" or (default.expression and not server.mariadb):
        return default.text
    if kind == "bit":
        return "b'" + (f"{_integer(default):b}") + "'"
    if kind in _INTEGERS:
        return _whole_number(column, default)
    if kind == "decimal":
        return _decimal(column, default)
    if kind in ("float", "double"):
        return _floating(column, default, server)
    if kind in ("enum", "set"):
        text = _labels(column, default)
        bare = column.charset == "binary" and text and server.at_least((8, 0, 0), None)
        return "0x" + text.encode().hex().upper() if bare else text
    if kind in ("date", "datetime", "timestamp"):
        return _date(column, default.text.strip(), server)
    if kind == "time":
        return _time(column, default.text.strip(), server)
    if default.kind in ("hex", "bits"):
        data = _bytes(default)
        if kind in _BINARIES and server.at_least((8, 0, 0), None):
            return "0x" + data.hex().upper() if data or kind == "binary" else ""
        return _padded(column, data.decode("utf-8", "replace"), server)
    if kind in _BINARIES and server.at_least((8, 0, 0), None):
        data = _as_text(default).encode()
        return "0x" + data.hex().upper() if data or kind == "binary" else ""
    if kind == "char":
        return _as_text(default).rstrip(" ")
    return _padded(column, without_spaces_beyond(column, _as_text(default)), server)


def without_spaces_beyond(column: Column, text: str) -> str:
    """Returns the text without trailing spaces that do not fit a VARCHAR. The server removes them silently,
    and refuses other characters that do not fit."""
    if column.type != "varchar" or column.length is None or len(text) <= column.length:
        return text
    return text[: column.length] + text[column.length :].rstrip(" ")


def _padded(column: Column, text: str, server: Server) -> str:
    if column.type in ("binary", "varbinary") and server.at_least(None, (11, 4, 0)):
        size = column.length or 0 if column.type == "binary" else 0
        if not text and not size:
            return ""
        return "x'" + text.encode().ljust(size, b"\0").hex() + "'"
    return text.ljust(column.length or 0, "\0") if column.type == "binary" else text


def _integer(default: DefaultLiteral) -> int:
    if default.kind == "hex":
        return int(default.text or "0", 16)
    if default.kind == "bits":
        return int(default.text or "0", 2)
    if default.kind == "string":
        return int.from_bytes(default.text.encode("utf-8"), "big")
    return int(default.text)


def _bytes(default: DefaultLiteral) -> bytes:
    if default.kind == "hex":
        return bytes.fromhex(default.text if len(default.text) % 2 == 0 else "0" + default.text)
    return int(default.text or "0", 2).to_bytes((len(default.text) + 7) // 8, "big")


def _number(default: DefaultLiteral) -> Decimal:
    return Decimal(_integer(default) if default.kind in ("hex", "bits") else default.text.strip())


def _whole_number(column: Column, default: DefaultLiteral) -> str:
    with localcontext() as context:
        context.prec = 100
        number = int(_number(default).quantize(Decimal(1), rounding=ROUND_HALF_UP))
    if column.type == "year":
        if default.kind == "string" and number == 0 and len(default.text.strip()) < 3:
            number = 2000
        elif 1 <= number <= 99:
            number += 2000 if number < 70 else 1900
        return f"{number:04d}"
    return _filled(column, str(number))


_FLOATING_WIDTH = {"float": 12, "double": 22}


def _filled(column: Column, text: str) -> str:
    """Puts zeros before the number, because defaults are printed with ZEROFILL, too."""
    if not column.column_type.endswith("zerofill"):
        return text
    match = re.search(r"\((\d+)(?:,(\d+))?\)", column.column_type)
    width = _FLOATING_WIDTH.get(column.type, 0) if match is None else int(match[1])
    dot = match is not None and column.type == "decimal" and int(match[2] or 0) > 0
    return text.zfill(width + dot)


def _decimal(column: Column, default: DefaultLiteral) -> str:
    with localcontext() as context:
        context.prec = 100
        places = Decimal(1).scaleb(-(column.scale or 0))
        number = _number(default).quantize(places, rounding=ROUND_HALF_UP)
        if number == 0:
            number = abs(number)
    return _filled(column, f"{number:f}")


def _floating(column: Column, default: DefaultLiteral, server: Server) -> str:
    scale = re.search(r",(\d+)\)", column.column_type)
    number = _number(default)
    if scale is not None:
        with localcontext() as context:
            context.prec = 100
            places = Decimal(1).scaleb(-int(scale[1]))
            return _filled(column, f"{number.quantize(places, rounding=ROUND_HALF_UP):f}")
    value = float(number)
    return _filled(column, _shortest(float(f"{value:.6g}") if column.type == "float" else value))


def _shortest(value: float) -> str:
    """A floating-point number as the server prints it: exponents from 1e15 on and below 1e-15."""
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    magnitude = len(digits) + exponent - 1
    if value == 0 or -15 <= magnitude < 15:
        return f"{Decimal(repr(value)).normalize():f}"
    text = "".join(map(str, digits))
    return ("-" if sign else "") + text[0] + ("." + text[1:] if text[1:] else "") + f"e{magnitude}"


def _as_text(default: DefaultLiteral) -> str:
    """The number as a string, in the server's form."""
    text = default.text
    if default.kind != "number":
        return text
    if "e" in text.lower():
        return _shortest(float(text))
    sign = "-" if text.startswith("-") else ""
    whole = text.lstrip("+-")
    return sign + ("0" + whole if whole.startswith(".") else whole)


def _labels(column: Column, default: DefaultLiteral) -> str:
    """Returns the labels with their declared spelling. DEFAULT may spell them in another case."""
    labels = column.labels or ()
    if default.kind == "number":
        number = int(default.text)
        if column.type == "enum":
            return labels[number - 1] if 1 <= number <= len(labels) else ""
        return ",".join(label for index, label in enumerate(labels) if number >> index & 1)
    declared = {label.casefold(): label for label in reversed(labels)}
    if column.type == "enum":
        exact = default.text.rstrip(" ")
        return exact if exact in labels else declared.get(exact.casefold(), default.text)
    wanted = {label.casefold().rstrip(" ") for label in default.text.split(",") if label}
    return ",".join(label for label in labels if label.casefold() in wanted)


_DATE = re.compile(
    r"(\d{4}|\d{2})\D(\d{1,2})\D(\d{1,2})(?:[ T](\d{1,2})\D(\d{1,2})(?:\D(\d{1,2})(?:\.(\d{1,6}))?)?)?"
)
_TIME = re.compile(r"(-?)(\d{1,3}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?")


def _date(column: Column, text: str, server: Server) -> str:
    if re.fullmatch(r"\d{14}|\d{8}", text):
        text = f"{text[:4]}-{text[4:6]}-{text[6:8]} " + (
            ":".join((text[8:10], text[10:12], text[12:])) if text[8:] else "0:0:0"
        )
    if text == "0":
        text = "0000-00-00"
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError("a date")
    year, month, day, hour, minute, second, fraction = (part or "0" for part in match.groups())
    whole = int(year) if len(year) == 4 else int(year) + (2000 if int(year) < 70 else 1900)
    if len(year) == 2 and not (int(year) or int(month) or int(day)):
        whole = 0
    carry, digits = _fraction(column, fraction, server)
    moment = (whole, int(month), int(day), int(hour), int(minute), int(second))
    if carry:
        moment = (datetime(*moment) + timedelta(seconds=1)).timetuple()[:6]
    date = "{:04d}-{:02d}-{:02d}".format(*moment[:3])
    if column.type == "date":
        return date
    return date + " {:02d}:{:02d}:{:02d}".format(*moment[3:]) + digits


def _fraction(column: Column, fraction: str, server: Server) -> tuple[bool, str]:
    """(it rounds up to a second, the fraction as shown). MySQL rounds, MariaDB cuts off."""
    digits = column.fsp or 0
    kept = int(fraction.ljust(6, "0")[:digits] or "0")
    if not server.mariadb and fraction[digits : digits + 1] >= "5":
        kept += 1
    carry = kept == 10**digits
    return carry, f".{0 if carry else kept:0{digits}d}" if digits else ""


def _time(column: Column, text: str, server: Server) -> str:
    if re.fullmatch(r"\d{1,7}", text):
        text = f"{text[:-4] or 0}:{text[-4:-2] or 0}:{text[-2:]}"
    match = _TIME.fullmatch(re.sub(r"^\d{4}-\d\d?-\d\d? ", "", text))
    if match is None:
        raise ValueError("a time")
    sign, hours, minutes, seconds, fraction = match.groups()
    carry, digits = _fraction(column, fraction or "0", server)
    total = (int(hours) * 60 + int(minutes)) * 60 + int(seconds or 0) + carry
    return f"{sign}{total // 3600:02d}:{total // 60 % 60:02d}:{total % 60:02d}{digits}"
