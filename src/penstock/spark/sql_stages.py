"""Evaluates the SQL of transforms with Spark: in a DataFrame, or for a batch in the driver.

A batch is evaluated by a small Spark job without Python workers. So a rule means the same for a row wherever
it is transformed. An expression never sees a row that is deleted, and only `where` sees rows that do not
fulfil it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import BooleanType

from penstock.errors import TableError
from penstock.failures.crossing import returned
from penstock.failures.messages import first_line
from penstock.model.change import DELETED
from penstock.model.schema import TableId
from penstock.sinks.spark_sql import quoted
from penstock.transforms.stages import MATCHES, SqlStage, failed, unfit

_DATA_ERROR = re.compile(r"\[([A-Z][A-Z0-9_.]+)\](?s:.{0,4000}?)SQLSTATE: (?:22|2[13])")
"""An error of Spark about a value. Its text has the value."""
_NOT_OF_ONE_ROW = "has an expression that is not computed from one row, such as an aggregate"
_UNSTEADY = ("CURRENT_LIKE", "PLAN_EXPRESSION")


def selected(frame: DataFrame, stage: SqlStage, *, only_results: bool = False) -> DataFrame:
    """The rows, with the columns that the stage computes. Raises `TableError` if Spark refuses an
    expression."""
    parts = [] if only_results else [quoted(name) for name in frame.columns]
    parts += [f"{text} AS {quoted(name)}" for name, text in results(frame.columns, stage).items()]
    try:
        found = frame.selectExpr(*parts)
        _refuse_unsteady(frame, found, stage)
        return found
    except AnalysisException as error:  # ParseException, too
        if error.getCondition() == "MISSING_GROUP_BY":  # it stands beside columns of the row
            raise unfit(stage.table, _NOT_OF_ONE_ROW) from None
        raise unfit(stage.table, f"has an expression that Spark refuses: {first_line(error)}") from None


def results(names: Sequence[str], stage: SqlStage) -> dict[str, str]:
    """The SQL of the columns that the stage computes, by their names, for rows with the columns `names`."""
    alive = [f"NOT {quoted(DELETED)}"] if DELETED in names else []
    where = stage.expressions.get(MATCHES)
    found = {}
    for name, text in stage.expressions.items():
        needed = alive if name == MATCHES or where is None else [*alive, where]
        found[name] = f"CASE WHEN {' AND '.join(needed)} THEN {text} END" if needed else text
    return found


def columns(spark: SparkSession, schema: pa.Schema, stage: SqlStage) -> pa.Schema:
    """The columns after the stage."""
    found = _without_rows(spark, schema, stage)
    return pa.schema([*schema, *to_arrow_schema(found.schema)])


def needed(spark: SparkSession, schema: pa.Schema, stage: SqlStage) -> set[str]:
    """The columns that the stage's expressions look at."""
    attributes = _without_rows(spark, schema, stage)._jdf.queryExecution().analyzed().references().toSeq()
    return {str(attributes.apply(place).name()) for place in range(attributes.size())}


def _without_rows(spark: SparkSession, schema: pa.Schema, stage: SqlStage) -> DataFrame:
    """The results for no rows. Raises `TableError` also if `where` is no condition."""
    kinds = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    found = selected(spark.createDataFrame([], kinds), stage, only_results=True)
    if MATCHES in found.columns and not isinstance(found.schema[MATCHES].dataType, BooleanType):
        kind = found.schema[MATCHES].dataType.simpleString()
        raise unfit(stage.table, f"has a `where` that is no condition: its type is {kind}")
    return found


def evaluated(
    spark: SparkSession, batch: pa.RecordBatch, stage: SqlStage, names: list[str]
) -> pa.RecordBatch:
    """The batch with the columns that the stage computes, in the driver. `names`: at least the columns that
    it looks at (`needed`)."""
    if not batch.num_rows:
        return _with(batch, pa.Table.from_batches([], columns(spark, batch.schema, stage)))
    frame = frame_of(spark, batch.select(names))
    return _with(batch, selected(frame, stage, only_results=True).toArrow())


def frame_of(spark: SparkSession, batch: pa.RecordBatch) -> DataFrame:
    """The rows of a batch, with the types that rules see."""
    kinds = from_arrow_schema(batch.schema, prefer_timestamp_ntz=True)
    return spark.createDataFrame(pa.Table.from_batches([batch]), kinds)


def _with(batch: pa.RecordBatch, results: pa.Table) -> pa.RecordBatch:
    names = [name for name in results.schema.names if name not in batch.schema.names]
    found = [results.column(name).combine_chunks() for name in names]
    arrays = [one.chunk(0) if isinstance(one, pa.ChunkedArray) else one for one in found]
    return pa.RecordBatch.from_arrays([*batch.columns, *arrays], [*batch.schema.names, *names])


def row_failure(table: TableId, error: BaseException) -> TableError | None:
    """The error of a row that could not be transformed, whoever raised it. None: it is another error."""
    ours = returned(error)
    if isinstance(ours, TableError):
        return ours if ours.details.get("row_failed") else None
    if not isinstance(ours, PySparkException | Py4JError):
        return None
    found = _DATA_ERROR.search(str(ours))
    return None if found is None else failed(table, f"Spark reports {found[1]}")


def _refuse_unsteady(before: DataFrame, after: DataFrame, stage: SqlStage) -> None:
    """Raises `TableError` for expressions whose value is not a function of the row: a repeated epoch would
    write other rows."""
    plan, rows = after._jdf.queryExecution().analyzed(), before._jdf.queryExecution().analyzed()
    jvm: Any = after.sparkSession._jvm
    patterns = jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    if plan.nodeName() != "Project" or plan.child().nodeName() != rows.nodeName():
        raise unfit(stage.table, _NOT_OF_ONE_ROW)
    unsteady = not plan.deterministic() or any(
        plan.containsPattern(getattr(patterns, name)()) for name in _UNSTEADY
    )
    if unsteady:
        raise unfit(
            stage.table,
            "has an expression whose value depends on more than the row, such as the time, chance or another "
            "table. A repeated epoch would write other rows",
        )
