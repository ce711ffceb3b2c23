"""Whether the values of a column are the same after its definition was changed.

The server converts each value when a column gets another type, and the log does not contain the new values.
Some conversions can change no value. Others change only values that do not fit. Under a strict sql_mode such
a value makes the statement fail, so a statement in the log has changed none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from penstock.model.column_type import INTEGER_BITS
from penstock.model.schema import Column, TypeOptions
from penstock.sources.mysql.ddl import charsets
from penstock.sources.mysql.ddl.definition import ColumnDefinition, DefaultExpression
from penstock.sources.mysql.ddl.server import Server
from penstock.sources.mysql.ddl.types import text_bytes

_INTEGER_DIGITS = {"tinyint": 3, "smallint": 5, "mediumint": 8, "int": 10, "bigint": 20}
_TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_BINARIES = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_LABELLED = frozenset({"enum", "set"})

DECIMAL_DIGITS_MAX = 38
"""Most digits of a decimal in Arrow and Spark."""


def silent_changes(
    columns: Sequence[tuple[ColumnDefinition | None, ColumnDefinition]], server: Server, *, statement: bool
) -> list[str]:
    """Returns why values may have changed without row events. `columns`: each with its earlier definition;
    None: it is new. `statement`: the definitions are those before and after a statement, so what it does not
    say is as before. Otherwise both were read from the catalog."""
    reasons = []
    converts = any(before and _values(before.column) != _values(after.column) for before, after in columns)
    for before, after in columns:
        if before is None:
            reason = _added(after)
        elif statement and _is_untouched(before, after):
            reason = f"column {after.name} is computed again" if converts else None
        else:
            reason = _silent_change(before, after, server)
        reasons += [] if reason is None else [reason]
    return reasons


def _added(column: ColumnDefinition) -> str | None:
    """Returns why only the server knows the values of existing rows in an added column, or None."""
    name = f"the added column {column.name}"
    if column.column.generated:
        return f"{name} is generated"
    if column.auto_increment:
        return f"{name} numbers the rows"
    if isinstance(column.default, DefaultExpression) or (
        column.from_catalog and column.column.default_is_expression
    ):
        return f"{name} has an expression as its default"
    if column.from_catalog and column.column.default is not None:
        return f"{name} has a default that was not seen in the log"
    return None


def _is_untouched(before: ColumnDefinition, after: ColumnDefinition) -> bool:
    """Whether it is a generated column that the statement does not define. It has other values only if it is
    computed from a column that has."""
    generated = after.column.generated
    return bool(generated) and generated == before.column.generated and after.expression == before.expression


def _silent_change(before: ColumnDefinition, after: ColumnDefinition, server: Server) -> str | None:
    """Returns why values of the column may have changed. None: they have not."""
    old, new = before.column, after.column
    name = f"column {new.name}"
    if new.generated and (old.generated != new.generated or _expression_differs(before, after)):
        return f"{name} is computed again"
    if not new.generated and old.generated == "virtual":
        return f"{name} is not generated any more"
    if old.nullable and not new.nullable and not server.strict:
        return f"NULL in {name} becomes another value"
    # MariaDB writes the present moment for NULL, whatever its settings say.
    made_now = server.mariadb or not server.explicit_defaults
    if old.nullable and not new.nullable and new.type == "timestamp" and made_now:
        return f"NULL in {name} becomes another value"
    if new.auto_increment and not _numbers_rows(old):
        return f"{name} numbers rows that hold 0 or NULL"
    if _plain(old, new, server):
        return None
    return f"values of {name} are converted from {_type(old)} to {_type(new)}"


def _values(column: Column) -> Column:
    """The column without what changes no value that it has: its name, default and the like."""
    return replace(
        column, name="", nullable=True, invisible=False, auto_increment=None, default=None,
        default_is_expression=False,
    )  # fmt: skip


def _numbers_rows(column: Column) -> bool:
    """Whether the column has AUTO_INCREMENT. If that is not known, it has if it can have."""
    if column.auto_increment is not None:
        return column.auto_increment
    return not column.nullable and column.default is None


def form(column: Column, types: TypeOptions, *, in_key: bool) -> tuple[str, int] | None:
    """The form that `types` gives to values of the column. None: the server's form."""
    if column.type == "decimal":
        if types.decimal == "double" and not in_key:
            return ("double", 0)
        is_text = types.decimal == "string" or (column.precision or 0) > DECIMAL_DIGITS_MAX
        return ("decimal as text", column.scale or 0) if is_text else None
    if column.type == "bigint" and column.unsigned and types.bigint_unsigned == "string":
        return ("integer as text", 0)
    if column.type in ("date", "datetime", "timestamp") and types.zero_dates == "text":
        return ("date as text" if column.type == "date" else "moment as text", column.fsp or 0)
    if column.column_type.startswith("tinyint(1)") and types.tinyint1 == "boolean":
        return None if column.unsigned or in_key else ("boolean", 0)
    return None


_LESS = ("double", "boolean")
"""Forms in `types` that do not preserve the server's value."""


def other_form(name: str, was: tuple[str, int] | None, now: tuple[str, int] | None) -> str | None:
    """Returns why values that arrive from now on have another form than those in the target, although the
    server's values are the same. None: they have the same form. For example, the text of a decimal has the
    digits of its type, and digits that were dropped are lost."""
    is_text = now is not None and now[0] not in _LESS
    was_less = was is not None and was[0] in _LESS
    return f"column {name} arrives in another form" if was != now and (is_text or was_less) else None


def _expression_differs(before: ColumnDefinition, after: ColumnDefinition) -> bool:
    if before.expression is None:
        return True
    return _squeezed(before.expression) != _squeezed(after.expression or "")


def _squeezed(expression: str) -> str:
    return "".join(expression.split()).replace("`", "")


def _type(column: Column) -> str:
    return column.column_type.partition("(")[0] if column.labels else column.column_type or column.type


def _plain(old: Column, new: Column, server: Server) -> bool:
    if old.type in INTEGER_BITS:
        return _from_integer(old, new, server)
    if old.type == "decimal":
        return _from_decimal(old, new, server)
    if old.type in ("float", "double"):
        return _from_float(old, new, server)
    if old.type == "bit":
        return new.type == "bit" and (new.length or 1) >= (old.length or 1)
    if old.type == "year":
        if new.type == "year":  # YEAR(2) has other values
            return _is_short_year(old) == _is_short_year(new)
        return new.type in ("smallint", "mediumint", "int", "bigint") or (
            new.type == "tinyint" and _is_short_year(old)
        )
    if old.type in _LABELLED:
        return _from_labels(old, new, server)
    if old.type in _TEXTS:
        return _from_text(old, new, server)
    if old.type in _BINARIES:
        return _from_binary(old, new)
    if old.type in ("datetime", "timestamp"):
        return new.type == old.type and (new.fsp or 0) >= (old.fsp or 0)
    if old.type == "time":
        return new.type == "time" and new.fsp == old.fsp  # its digits are part of the value
    if old.type == "date":
        return new.type in ("date", "datetime")
    if old.type == "geometry":
        # MariaDB writes NULL for a shape that the new type does not have.
        return new.type == "geometry" and (server.strict or new.column_type in ("geometry", old.column_type))
    return (old.type, old.length) == (new.type, new.length)


def _is_short_year(column: Column) -> bool:
    """MariaDB's YEAR(2), whose values are 0 to 99."""
    return column.column_type.startswith("year(2)")


def _digits(column: Column) -> tuple[int, int] | None:
    """The digits before and after the point to which FLOAT(7,4) rounds. None: it does not round."""
    match = re.search(r"\((\d+),(\d+)\)", column.column_type)
    return None if match is None else (int(match[1]) - int(match[2]), int(match[2]))


def _from_integer(old: Column, new: Column, server: Server) -> bool:
    bits = INTEGER_BITS[old.type] - (0 if old.unsigned else 1)
    if new.type in INTEGER_BITS:
        wider = INTEGER_BITS[new.type] - (0 if new.unsigned else 1) >= bits
        return (wider and (old.unsigned or not new.unsigned)) or server.strict
    if new.type == "decimal":
        digits_fit = (new.precision or 0) - (new.scale or 0) >= _INTEGER_DIGITS[old.type]
        return (digits_fit and not (new.unsigned and not old.unsigned)) or server.strict
    if new.type == "double" and _digits(new) is None:
        return bits <= 53 and not (new.unsigned and not old.unsigned)
    return False


def _from_decimal(old: Column, new: Column, server: Server) -> bool:
    if new.type != "decimal" or (new.scale or 0) < (old.scale or 0):
        return False
    room = (new.precision or 0) - (new.scale or 0) >= (old.precision or 0) - (old.scale or 0)
    return (room and not (new.unsigned and not old.unsigned)) or server.strict


def _from_float(old: Column, new: Column, server: Server) -> bool:
    if old.type != new.type and new.type != "double":
        return False
    before, after = _digits(old), _digits(new)
    if after is not None:  # it rounds, and strict or not, that is silent
        if before is None or old.type != new.type or after[1] < before[1]:
            return False
        if after[0] < before[0] and not server.strict:
            return False
    return old.unsigned or not new.unsigned or server.strict


def _from_labels(old: Column, new: Column, server: Server) -> bool:
    before, after = old.labels or (), new.labels or ()
    text = server.strict or charsets.covers(new.charset, old.charset) or "".join(before).isascii()
    if old.type == new.type == "enum":
        return set(before) <= set(after) and text
    if old.type == new.type == "set":
        return before == after[: len(before)] and text
    if new.type in _TEXTS and new.type != "char":
        longest = len(",".join(before)) if old.type == "set" else max(map(len, before), default=0)
        return _room(new) >= longest * charsets.bytes_max(new.charset or "") and text
    return False


def _room(column: Column) -> int:
    """Most bytes of a value of a text or binary column."""
    size = text_bytes(column.type)
    return size if size is not None else (column.length or 0) * charsets.bytes_max(column.charset or "binary")


def _characters(column: Column) -> int:
    """The number of characters that certainly fit. For a text type, all of them may have the greatest
    length."""
    size = text_bytes(column.type)
    return size // charsets.bytes_max(column.charset or "") if size is not None else column.length or 0


def _from_text(old: Column, new: Column, server: Server) -> bool:
    if new.type not in _TEXTS or (new.type == "char" and old.type != "char"):
        return False  # CHAR drops the spaces at the end
    if not (
        charsets.covers(new.charset, old.charset)
        or (server.strict and charsets.checks(new.charset, old.charset))
    ):
        return False
    if old.type == "char" and new.type != "char" and server.mode("PAD_CHAR_TO_FULL_LENGTH"):
        return False
    old_size, new_size = text_bytes(old.type), text_bytes(new.type)
    if old_size is not None and old.charset == new.charset:
        return (new_size or _room(new)) >= old_size
    if old_size is not None:
        # CONVERT TO chooses a type that holds as many characters as the old one.
        return new_size is not None and (_characters(new) >= _characters(old) or server.strict)
    return _characters(new) >= (old.length or 0)


def _from_binary(old: Column, new: Column) -> bool:
    if new.type not in _BINARIES:
        return False
    if new.type == "binary":
        return old.type == "binary" and old.length == new.length
    return _room(new) >= _room(old)
