"""Reads the targets of a SQL database for a comparison, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from penstock.errors import TableError
from penstock.model.schema import TableId
from penstock.sinks.refusals import lacking_columns, unfit_value
from penstock.sinks.sql.dialect import Dialect, Place, Session
from penstock.sinks.texts import Unfit


class SqlScan:
    """A `Scan`. `place`: finds the target of a table that is ours, or raises `TableError`."""

    def __init__(
        self, dialect: Dialect, session: Session, place: Callable[[Session, TableId], Place]
    ) -> None:
        self._dialect = dialect
        self._session = session
        self._place = place

    @property
    def isolated(self) -> bool:
        return self._dialect.isolates

    def batches(self, table: TableId, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
        dialect = self._dialect
        try:
            place = self._place(self._session, table)
            lacking = [name for name in fields.names if name not in dialect.columns(self._session, place)]
            if lacking:
                raise lacking_columns(table, lacking)
            yield from dialect.scanned(self._session, dialect.target(place), fields)
        except Unfit as error:
            raise unfit_value(table, error.column) from None
        except dialect.errors as error:
            found = dialect.explained(error, f"The target of {table} cannot be read", table)
            raise TableError(found.message, hint=found.hint, table=str(table)) from None
