"""The error for rows that a table refuses because of what somebody has added to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import TableError
from penstock.failures.messages import text_of
from penstock.failures.trace import causes
from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sinks.lake.java_errors import JAVA_ERRORS

_REASONS = {
    "DELTA_CANNOT_MODIFY_APPEND_ONLY": "its property delta.appendOnly is true",
    "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES": "a row violates one of its CHECK constraints",
    "DELTA_NOT_NULL_CONSTRAINT_VIOLATED": "a row has NULL in a column that is NOT NULL there",
}
"""Reasons for Delta's names of errors. Delta's own messages contain values of rows."""


@contextmanager
def rows_refused(table: TableId) -> Iterator[None]:
    try:
        yield
    except JAVA_ERRORS as error:
        for cause in causes(text_of(error)):
            if (reason := _REASONS.get(cause.condition)) is not None:
                raise TableError(
                    f"The target of {table} refuses a change: {reason}.",
                    hint=f"Take that away by ALTER TABLE, and run `penstock unpark FILE {argument(table)}`.",
                    table=str(table),
                ) from error
        raise
