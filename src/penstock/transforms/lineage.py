"""Where each column of a table's messages comes from, if rules change its rows. Pure.

Columns that no rule touches go into messages straight from the log, with the definition of the source. So
rules need to see only the columns that they look at. A column that rules make gets the type that its values
have: that of the source's column if they still fit it, else the one that fits their Arrow type.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.column_type import (
    BINARY,
    DATES,
    DECIMAL,
    FITTING,
    FITTING_TIMES,
    FLOATS,
    INTEGERS,
    JSON,
    LIST,
    SHORT_TEXT,
    TEXTS,
)
from penstock.model.lists import list_array
from penstock.model.not_numbers import with_names
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.transforms import TransformRule, named, renamed

How = Literal["kept", "masked", "hashed", "computed"]

SAME_TYPE = TEXTS | BINARY | INTEGERS | FLOATS | DATES | {DECIMAL}
"""Types whose columns take any value of their Arrow type that is in their range. Those of ENUM, SET, JSON and
others have values that a rule need not give back."""


DIGITS_MAX = 64
"""Characters of a hash. A token has fewer."""


@dataclass(frozen=True)
class Line:
    """One column. `source`: the source's column whose values it has, or had before rules changed them. None:
    there is no such column."""

    name: str
    source: str | None
    how: How


@dataclass
class Lineage:
    """The columns of a table whose rules are added one by one. `needed`: the source's columns that rules look
    at."""

    lines: dict[str, Line]
    needed: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, columns: Sequence[str]) -> Lineage:
        return cls({name: Line(name, name, "kept") for name in columns})

    def add(self, rule: TransformRule, looked_at: Collection[str], result: Sequence[str]) -> None:
        """Adds the next rule. `looked_at`: the columns that its SQL looks at. `result`: the columns after
        it, in order."""
        for name in looked_at:
            self._need(name)
        for written in (*rule.columns, *rule.cast):
            name = named(self.lines, written) or written
            self._change(name, "computed")
        for written in (*rule.mask, *rule.hash, *rule.tokenize):
            name = named(self.lines, written) or written
            self._need(name)
            self._change(name, "masked" if written in rule.mask else "hashed")
        if rule.python is not None:
            for name in list(self.lines):
                self._need(name)
                self._change(name, "computed")
        after = {renamed(rule.rename, name): line for name, line in self.lines.items()}
        self.lines = {
            name: replace(after[name], name=name) if name in after else Line(name, None, "computed")
            for name in result
        }

    def _need(self, name: str) -> None:
        if (line := self.lines.get(name)) is not None and line.source is not None:
            self.needed.add(line.source)

    def _change(self, name: str, how: How) -> None:
        line = self.lines.get(name, Line(name, None, how))
        # A masked column never identifies a row again, and what is computed has a type of its own.
        if line.how == "masked" or (line.how == "computed" and how == "hashed"):
            how = line.how
        self.lines[name] = replace(line, how=how)

    def key(self, key: Sequence[str]) -> tuple[str, ...]:
        """The columns that identify a row in messages. Empty: they have none, because a column of the key is
        left out or masked."""
        of = {line.source: line for line in self.lines.values() if line.source is not None}
        if any(name not in of or of[name].how == "masked" for name in key):
            return ()
        return tuple(of[name].name for name in key)


class NoSuchType(Exception):
    """No column of a message can have this type."""

    def __init__(self, column: str, kind: pa.DataType) -> None:
        super().__init__(column, kind)
        self.column = column
        self.kind = kind


def definition(
    schema: TableSchema, target: TableId, lines: Sequence[Line], source: pa.Schema, result: pa.Schema,
    key: tuple[str, ...],
) -> TableSchema:  # fmt: skip
    """The table as messages show it. `source` and `result`: the columns before and after the rules. Raises
    `NoSuchType`."""
    columns = tuple(_column(schema, line, source, result.field(line.name).type) for line in lines)
    return replace(schema, table=target, columns=columns, key=key, unique=None, foreign_keys=())


def _column(schema: TableSchema, line: Line, source: pa.Schema, kind: pa.DataType) -> Column:
    before = None if line.source is None else schema.column(line.source)
    if line.how == "kept" and before is not None:
        return replace(before, name=line.name)
    nullable = before is None or before.nullable or line.how != "hashed"
    may_stay = line.how != "hashed" and before is not None and (before.element or before).type in SAME_TYPE
    if may_stay and before is not None and source.field(before.name).type == kind:
        return replace(
            before, name=line.name, nullable=nullable, generated=None, invisible=False, default=None,
            default_is_expression=False,
        )  # fmt: skip
    if line.how == "hashed":
        text = f"{SHORT_TEXT}({DIGITS_MAX})"
        return Column(line.name, SHORT_TEXT, nullable, length=DIGITS_MAX, charset="utf8mb4", column_type=text)
    return replace(column_for(line.name, kind), nullable=nullable)


def column_for(name: str, kind: pa.DataType) -> Column:
    """A column that takes the values of an Arrow type. Raises `NoSuchType`."""
    if pa.types.is_uint64(kind):
        kind = pa.decimal128(20)
    if pa.types.is_decimal128(kind) and 0 <= kind.scale <= 30:
        text = f"{DECIMAL}({kind.precision},{kind.scale})"
        return Column(name, DECIMAL, precision=kind.precision, scale=kind.scale, column_type=text)
    if pa.types.is_timestamp(kind):
        of = FITTING_TIMES[kind.tz is not None]
        return Column(name, of, fsp=6, column_type=f"{of}(6)")
    if _is_list(kind):
        element = column_for("element", kind.value_type)
        return Column(name, LIST, column_type=f"{LIST} of {element.column_type}", element=element)
    if pa.types.is_nested(kind):
        return Column(name, JSON, column_type=JSON)
    of = FITTING["string"] if pa.types.is_time(kind) else FITTING.get(str(kind), "")
    if not of:
        raise NoSuchType(name, kind)
    return Column(name, of, charset="utf8mb4" if of in TEXTS else None, column_type=of)


def _is_list(kind: pa.DataType) -> bool:
    """Whether it is a list in messages. Others are documents."""
    return bool(pa.types.is_list(kind)) and not pa.types.is_nested(kind.value_type)


def for_message(array: pa.Array) -> pa.Array:
    """The values of a column that rules made, in a type that `core/src/encode/arrow_image.rs` takes."""
    types, kind = pa.types, array.type
    if _is_list(kind):
        return list_array(pc.list_value_length(array).to_pylist(), for_message(array.flatten()))
    if types.is_nested(kind):
        return pa.array([None if one is None else _json(one) for one in array.to_pylist()], pa.string())
    if types.is_timestamp(kind):
        return array.cast(pa.timestamp("us", kind.tz))
    if types.is_time(kind):
        return array.cast(pa.string())
    other = {
        pa.bool_(): pa.int32(), pa.int8(): pa.int32(), pa.int16(): pa.int32(), pa.uint8(): pa.int32(),
        pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20),
        pa.float16(): pa.float32(), pa.date64(): pa.date32(), pa.null(): pa.string(),
        pa.large_string(): pa.string(), pa.large_binary(): pa.binary(),
    }.get(kind, kind)  # fmt: skip
    return array if other == kind else array.cast(other)


def _json(value: Any) -> str:
    return json.dumps(with_names(value), default=str, ensure_ascii=False, separators=(",", ":"))
