"""Reads the targets in HBase for a comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type

from penstock.errors import TableError
from penstock.model.schema import TableId
from penstock.sinks.hbase.cluster import Cluster, ClusterError
from penstock.sinks.hbase.faults import explained
from penstock.sinks.hbase.records import Record
from penstock.sinks.hbase.rows import OWN
from penstock.sinks.refusals import lacking_columns, unfit_value
from penstock.sinks.texts import Unfit, batch_of


@dataclass(frozen=True)
class HBaseScan:
    """A `Scan`. `target`: the name of a target of ours and what is recorded of it, or it raises
    `TableError`."""

    cluster: Cluster
    target: Callable[[TableId], tuple[Any, Record]]
    isolated: ClassVar[bool] = False

    def batches(self, table: TableId, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            name, record = self.target(table)
            if lacking := [one for one in fields.names if one not in record.names]:
                raise lacking_columns(table, lacking)
            for frame in self.cluster.scan(name, OWN, [record.form.qualifier(one) for one in fields.names]):
                columns = zip(frame.columns, fields, strict=True)
                yield batch_of([self._column(one.values, record, field) for one, field in columns], fields)
        except Unfit as error:
            raise unfit_value(table, error.column) from None
        except ClusterError as error:
            found = explained(error, f"The target of {table} cannot be read", table)
            raise TableError(found.message, hint=found.hint, table=str(table)) from None

    def _column(self, values: pa.Array, record: Record, field: pa.Field) -> pa.Array:
        try:
            return record.form.values(values, to_arrow_type(record.columns[field.name].dataType))
        except (pa.ArrowInvalid, ValueError):
            raise Unfit(field.name) from None
