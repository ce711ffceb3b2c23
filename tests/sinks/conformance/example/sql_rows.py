"""The rows that the sink `jdbc` has written, for the conformance suite."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from tests.sinks.conformance.example.typed_rows import frame_of

from penstock.model.schema import TableId
from penstock.sinks.sql.control import Control
from penstock.sinks.sql.options import JdbcOptions
from penstock.sinks.sql.registration import dialect_of


def written_rows(options: JdbcOptions, spark: SparkSession, table: TableId) -> DataFrame:
    dialect = dialect_of(options)
    session = dialect.connect()
    try:
        names = options.place(table)
        assert names is not None
        place = dialect.place(names)
        record = Control(dialect, options.control).find(session, place)
        assert record is not None
        columns = ", ".join(map(dialect.quoted, record.columns.names))
        rows = dialect.run(session, f"SELECT {columns} FROM {dialect.target(place)}")
    finally:
        session.close()
    return frame_of(spark, rows, record.columns)
