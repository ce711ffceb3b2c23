"""Types, conversions and values in ClickHouse's SQL. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.model.change import DELETED, SEQUENCE
from penstock.sinks.clickhouse.client import quoted, text

BITS: dict[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
DATES = (DateType, TimestampType, TimestampNTZType)
DECIMAL_DIGITS_MAX = 38
"""The limit of old servers. Spark has no more digits, either."""
FIRST_DATE, LAST_DATE = "1900-01-01", "2299-12-31"
"""The range of Date32 and DateTime64. The server changes other values silently."""


class Types:
    """The types of a server. `native_dates`: it has types for dates, and the option `dates` wants them.
    `bools`: it has Bool."""

    def __init__(self, *, native_dates: bool, bools: bool) -> None:
        self._native_dates = native_dates
        self._bools = bools

    def of(self, kind: DataType) -> str:
        """The type's name, as the server writes it."""
        if type(kind) in BITS:
            return f"Int{BITS[type(kind)]}"
        if isinstance(kind, BooleanType):
            return "Bool" if self._bools else "UInt8"
        if isinstance(kind, FloatType):
            return "Float32"
        if isinstance(kind, DoubleType):
            return "Float64"
        if isinstance(kind, DecimalType):
            return f"Decimal({kind.precision}, {kind.scale})"
        if isinstance(kind, DATES) and self._native_dates:
            return "Date32" if isinstance(kind, DateType) else "DateTime64(6, 'UTC')"
        assert isinstance(kind, (StringType, BinaryType, *DATES))
        return "String"

    def column(self, name: str, kind: DataType, *, key: bool) -> str:
        """The definition of a column with this name and type."""
        return f"{quoted(name)} {self.nullable(kind) if self.is_nullable(kind, key=key) else self.of(kind)}"

    def is_nullable(self, kind: DataType, *, key: bool) -> bool:
        """A key's column is NULL only for zero dates."""
        return not key or isinstance(kind, DATES)

    def nullable(self, kind: DataType) -> str:
        return f"Nullable({self.of(kind)})"

    def converted(self, column: str, old: DataType, kind: DataType) -> str:
        """A column's values in another type. A value that does not fit becomes NULL."""
        if isinstance(old, BinaryType) or isinstance(kind, BinaryType):
            return "NULL"
        shown = column if isinstance(old, StringType) else f"toString({column})"
        if isinstance(old, BooleanType):
            shown = f"toString(toUInt8({column}))"  # and not `true`
        if isinstance(kind, StringType):
            return shown
        if type(kind) in BITS:
            number, half = f"toInt64OrNull({shown})", 2 ** (BITS[type(kind)] - 1)
            return f"if({number} >= {-half} AND {number} <= {half - 1}, {number}, NULL)"
        if isinstance(kind, (FloatType, DoubleType)):
            return f"toFloat64OrNull({shown})"
        if isinstance(kind, BooleanType):
            return f"toFloat64OrNull({shown}) != 0"
        if isinstance(old, DateType) and isinstance(kind, TimestampNTZType):
            return column if self._native_dates else f"concat({column}, ' 00:00:00.000000')"
        if isinstance(old, DATES) and isinstance(kind, DATES) and self.of(old) == self.of(kind):
            return column
        if isinstance(kind, DecimalType) and self._native_dates:  # old servers have no such function
            digits = f"toDecimal128OrNull({shown}, {kind.scale})"
            return f"if(abs({digits}) < {10 ** (kind.precision - kind.scale)}, {digits}, NULL)"
        return "NULL"

    def literal(self, value: Any, kind: DataType) -> str:
        """A default as SQL, as Spark has computed it."""
        if value is None:
            return "NULL"
        if isinstance(kind, BinaryType):
            return f"unhex('{bytes(value).hex()}')"
        if isinstance(kind, BooleanType):
            return str(int(value))
        plain = format(value, "f") if isinstance(kind, DecimalType) else str(value)
        return f"CAST({text(plain)} AS {self.nullable(kind)})"

    def order(self, key: Sequence[str], columns: StructType) -> str:
        """The sorting key. Rows with equal ones are versions of one row."""
        parts = []
        for name in key:
            column = quoted(name)
            dates = isinstance(columns[name].dataType, DATES)
            parts += [f"isNull({column})", f"assumeNotNull({column})"] if dates else [column]
        return f"({', '.join(parts)})"

    def beyond(self, batch: pa.RecordBatch) -> str | None:
        """Name of a column with a date that the server would change. None: there is none."""
        if not self._native_dates:
            return None
        for field in batch.schema:
            if pa.types.is_date(field.type) or pa.types.is_timestamp(field.type):
                days = batch.column(field.name).cast(pa.date32(), safe=False)
                found = pc.min_max(days).as_py()
                if found["min"] is not None and not (
                    found["min"].isoformat() >= FIRST_DATE and found["max"].isoformat() <= LAST_DATE
                ):
                    return str(field.name)
        return None


def own_columns(names: Iterable[str]) -> list[str]:
    """The columns of the stored rows: the source's, and those that Penstock adds."""
    return [*names, SEQUENCE, DELETED]
