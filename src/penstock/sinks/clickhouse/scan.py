"""Reads the targets in ClickHouse for a comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

import pyarrow as pa

from penstock.errors import TableError
from penstock.model.schema import TableId
from penstock.sinks.clickhouse.client import Client, Errors, quoted, text
from penstock.sinks.clickhouse.faults import explained
from penstock.sinks.refusals import lacking_columns, unfit_value
from penstock.sinks.texts import Unfit, csv_batches


class ClickHouseScan:
    """A `Scan`. `place`: the view of a table that is ours, or raises `TableError`."""

    isolated: ClassVar[bool] = False

    def __init__(self, client: Client, place: Callable[[TableId], tuple[str, str]]) -> None:
        self._client = client
        self._place = place

    def batches(self, table: TableId, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            database, view = self._place(table)
            present = self._client.rows(
                f"SELECT name FROM system.columns WHERE database = {text(database)} AND table = {text(view)}"
            )
            lacking = [name for name in fields.names if [name] not in present]
            if lacking:
                raise lacking_columns(table, lacking)
            columns = ", ".join(map(_shown, fields))
            query = f"SELECT {columns} FROM {quoted(database)}.{quoted(view)} FORMAT CSV"
            yield from csv_batches(self._client.stream(query), fields, null="\\N")
        except Unfit as error:
            raise unfit_value(table, error.column) from None
        except Errors as error:
            found = explained(error, f"The target of {table} cannot be read", table)
            raise TableError(found.message, hint=found.hint, table=str(table)) from None


def _shown(field: pa.Field) -> str:
    column = quoted(field.name)
    if pa.types.is_binary(field.type):
        return f"hex({column})"
    return f"toString({column})" if pa.types.is_temporal(field.type) else column
