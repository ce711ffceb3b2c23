"""Arrow columns as the texts that databases read: CSV for COPY, literals for INSERT. By column."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from penstock.errors import TableError
from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sinks.decimals import decimal_texts

_CSV = pa_csv.WriteOptions(include_header=False, quoting_style="all_valid")
NUL = "\x00"


def as_csv(batch: pa.RecordBatch) -> bytes:
    """The rows as `COPY … (FORMAT csv)` reads them. NULL is nothing at all, an empty text is `""`."""
    columns = [_for_csv(column) for column in batch.columns]
    out = io.BytesIO()
    names = [str(number) for number in range(len(columns))]
    pa_csv.write_csv(pa.RecordBatch.from_arrays(columns, names), out, _CSV)
    return out.getvalue()


def _for_csv(column: pa.Array) -> pa.Array:
    if _is_binary(column.type):
        return pa.array([None if value is None else "\\x" + value.hex() for value in column.to_pylist()],
                        pa.large_string())  # fmt: skip
    if pa.types.is_decimal(column.type):
        return decimal_texts(column)
    return column.cast(pa.string()) if pa.types.is_temporal(column.type) else column


def text_columns(batch: pa.RecordBatch) -> Iterator[tuple[int, str]]:
    """Places and names of the columns with text."""
    for number, field in enumerate(batch.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            yield number, field.name


def column_with_nul(batch: pa.RecordBatch) -> str | None:
    """Name of a column with a text that contains NUL."""
    for number, name in text_columns(batch):
        if pc.any(pc.match_substring(batch.column(number), NUL)).as_py():
            return name
    return None


def refuse_no_numbers(batch: pa.RecordBatch, table: TableId, database: str, *, infinities: bool) -> None:
    """Raises `TableError` for NaN, and for `infinities`, which a database cannot store."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if not pa.types.is_floating(column.type):
            continue
        wrong = pc.invert(pc.is_finite(column)) if infinities else pc.is_nan(column)
        if pc.any(wrong).as_py():
            raise TableError(
                f"Column {name} of {table} has {'NaN or an infinity' if infinities else 'NaN'}, which "
                f"{database} cannot store.",
                hint="Correct the value at the source and run "
                f"`penstock resnapshot FILE {argument(table)}`, or give the column another value with "
                f"`transforms` and run `penstock unpark FILE {argument(table)}`.",
                table=str(table),
            )


def without_nul(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = list(batch.columns)
    for number, _ in text_columns(batch):
        columns[number] = pc.replace_substring(columns[number], NUL, "")
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def as_tuples(batch: pa.RecordBatch) -> list[str]:
    """Each row as `(1,'a',NULL)`, in literals of MySQL."""
    literals = [_literals(column) for column in batch.columns]
    if not literals:
        return []
    comma = pa.scalar(",", pa.large_string())
    joined = literals[0] if len(literals) == 1 else pc.binary_join_element_wise(*literals, comma)
    return [f"({row})" for row in joined.to_pylist()]


def _literals(column: pa.Array) -> pa.Array:
    kind, text = column.type, pa.large_string()
    if _is_binary(kind):
        values = ["NULL" if value is None else f"X'{value.hex()}'" for value in column.to_pylist()]
        return pa.array(values, text)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    if pa.types.is_float32(kind):
        # Its fewest digits can be above the largest FLOAT.
        column = column.cast(pa.float64())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit))
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    values = decimal_texts(column) if pa.types.is_decimal(kind) else column.cast(text)
    if is_text:
        for plain, escaped in (("\\", "\\\\"), ("'", "\\'"), (NUL, "\\0")):
            values = pc.replace_substring(values, plain, escaped)
    if is_text or pa.types.is_temporal(kind):
        quote, nothing = pa.scalar("'", text), pa.scalar("", text)
        values = pc.binary_join_element_wise(quote, values, quote, nothing)
    return pc.fill_null(values, pa.scalar("NULL", text))


def as_rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Each row as values of SQLite: numbers, texts and bytes."""
    return zip(*[_plain(column).to_pylist() for column in batch.columns], strict=True)


def _plain(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8())
    if pa.types.is_decimal(kind) and not (kind.scale == 0 and kind.precision <= 18):
        return decimal_texts(column)
    if pa.types.is_decimal(kind):
        return column.cast(pa.int64())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit))
    return column.cast(pa.string()) if pa.types.is_temporal(kind) else column


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    )
