"""Reads the targets in OpenSearch for a comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from penstock.errors import TableError
from penstock.model.schema import TableId
from penstock.sinks.opensearch.client import Errors
from penstock.sinks.opensearch.faults import explained
from penstock.sinks.opensearch.records import Record
from penstock.sinks.opensearch.values import of_columns
from penstock.sinks.refusals import lacking_columns, unfit_value
from penstock.sinks.texts import Unfit, document_batch


@dataclass(frozen=True)
class OpenSearchScan:
    """A `Scan`. `record`: what is recorded of a target of ours, or it raises `TableError`. `portions`: all
    documents of an index."""

    record: Callable[[TableId], Record]
    portions: Callable[[str], Iterable[list[dict[str, Any]]]]
    isolated: ClassVar[bool] = False

    def batches(self, table: TableId, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            record = self.record(table)
            if lacking := [name for name in fields.names if name not in record.columns.names]:
                raise lacking_columns(table, lacking)
            for hits in self.portions(record.backing):
                rows = [of_columns(hit["_source"], fields.names) for hit in hits]
                yield document_batch(rows, fields)
        except Unfit as error:
            raise unfit_value(table, error.column) from None
        except Errors as error:
            found = explained(error, f"The target of {table} cannot be read", table)
            raise TableError(found.message, hint=found.hint, table=str(table)) from None
