"""Finds the rows that a chain of rules cannot transform, and transforms the others.

After a write has failed because of a row, the rows are transformed once more, in the driver, some at a time.
Those that fail are listed (`state/dead_letters.py`) before the others are written to the target.

A target must not keep an earlier version of such a row, so the row counts as deleted there. In a change log,
an update is left out if the row after it fails. If only the row before it does, readers do not have it: the
row after it is an `insert`.

A batch of 65,536 rows may have thousands of them, when a rule meets data that it was not written for. So all
rows are evaluated at once: Spark's `TryEval` is NULL where its expression fails, and a struct with all
results is never NULL otherwise. Only rows that fail are then evaluated one by one, to learn the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from py4j import protocol
from py4j.protocol import Py4JError
from pyspark.sql import Column as SparkColumn
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.classic.column import Column

from penstock.errors import TableError
from penstock.model.change import CHANGE_TYPE, DELETED, ROW, SEQUENCE, own_columns, own_name
from penstock.spark import sql_stages
from penstock.spark.sql_stages import row_failure
from penstock.spark.transform_chain import Chain
from penstock.state.dead_letters import Letter
from penstock.transforms.stages import AFTER, BEFORE, ArrowStage, SqlStage, Stage, last_before, parts_of

ROWS_AT_ONCE = 65_536
"""Rows that are transformed together, so that the driver does not keep all of them in memory."""

Failures = dict[int, TableError]
"""The error of each row that fails, by its place in the batch."""
Evaluate = Callable[[pa.RecordBatch], pa.RecordBatch]


def sift(
    chain: Chain,
    batches: Iterable[pa.RecordBatch],
    key: tuple[str, ...],
    add: Callable[[Letter], None],
) -> Iterator[pa.RecordBatch]:
    """The rows after the chain, without those that fail. These are passed to `add`. `key`: the columns that
    say at the source which row it is."""
    for batch in _whole_pairs(batches):
        for start in parts_of(batch, ROWS_AT_ONCE):
            yield from _sift(chain, batch.slice(*start), key, add)


def _sift(
    chain: Chain, batch: pa.RecordBatch, key: tuple[str, ...], add: Callable[[Letter], None]
) -> Iterator[pa.RecordBatch]:
    left, letters = _Left.all_of(batch), dict[int, Letter]()
    while isinstance(found := _transformed(chain, left.rows), TableError):
        failing = left.not_deleted(failures(chain, left.rows))
        if not failing:
            raise found
        for place, error in failing.items():
            origin = left.places[place]
            letters[origin] = _letter(chain, batch, origin, key, error.message)
        left = left.without(failing)
    for _, letter in sorted(letters.items()):
        add(letter)
    yield from found


def _transformed(chain: Chain, rows: pa.RecordBatch) -> list[pa.RecordBatch] | TableError:
    """The error: a row fails."""
    try:
        return list(chain.in_driver([rows])) if rows.num_rows else []
    except Exception as error:
        failure = row_failure(chain.table, error)
        if failure is None:
            raise
        return failure


@dataclass(frozen=True)
class _Left:
    """What is left of a batch without the rows that fail. `places`: those of the rows in the batch."""

    rows: pa.RecordBatch
    places: Sequence[int]

    @classmethod
    def all_of(cls, batch: pa.RecordBatch) -> _Left:
        return cls(batch, range(batch.num_rows))

    def not_deleted(self, failing: Failures) -> Failures:
        """Those that can still be left out."""
        if DELETED not in self.rows.schema.names:
            return failing
        deleted = self.rows.column(DELETED)
        return {place: error for place, error in failing.items() if not deleted[place].as_py()}

    def without(self, failing: Collection[int]) -> _Left:
        rows = self.rows
        if DELETED in rows.schema.names:
            gone = [one or place in failing for place, one in enumerate(rows.column(DELETED).to_pylist())]
            return _Left(_replaced(rows, DELETED, pa.array(gone, pa.bool_())), self.places)
        kept = [place not in failing for place in range(rows.num_rows)]
        name = own_name(CHANGE_TYPE, rows.schema.names)
        if name in rows.schema.names:
            kinds = rows.column(name).to_pylist()
            for place in range(len(kinds) - 1):
                if (kinds[place], kinds[place + 1]) != (BEFORE, AFTER):
                    continue
                if place + 1 in failing:
                    kept[place] = False  # without the row after it, it says nothing
                elif place in failing:
                    kinds[place + 1] = "insert"
            rows = _replaced(rows, name, pa.array(kinds, pa.string()))
        return _Left(
            rows.filter(pa.array(kept, pa.bool_())),
            [origin for origin, one in zip(self.places, kept, strict=True) if one],
        )


def _replaced(batch: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    place = batch.schema.get_field_index(name)
    return batch.set_column(place, batch.schema.field(place), values)


def _letter(chain: Chain, batch: pa.RecordBatch, place: int, key: tuple[str, ...], reason: str) -> Letter:
    own = own_columns(batch.schema.names)
    names = [name for name in batch.schema.names if name in key or name in own]
    [row] = batch.select(names).slice(place, 1).to_pylist()
    kind = own_name(CHANGE_TYPE, names)
    return {
        "table": str(chain.table),
        "key": {name: row[name] for name in key if name in row},
        "reason": reason,
        "offset": row.get(own_name(SEQUENCE, names)),
        **({"change": row[kind]} if kind in own else {}),
    }


def _whole_pairs(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, none of which ends between the two rows of an update."""
    held: pa.RecordBatch | None = None
    for batch in batches:
        held, whole = last_before(batch if held is None else pa.concat_batches([held, batch]))
        if whole.num_rows:
            yield whole
    if held is not None:
        yield held


def failures(chain: Chain, batch: pa.RecordBatch) -> Failures:
    """The rows that fail in the first stage in which any row does. Other rows may fail in later stages."""
    places = pa.array(range(batch.num_rows), pa.int64())
    rows = _with_places(batch, places)
    for stage in chain.stages:
        if not rows.num_rows:
            break
        if isinstance(stage, SqlStage):
            names = chain.looked_at(rows.schema, stage)
            found = _in_sql(chain.spark, rows, stage, names)
            evaluate: Evaluate = partial(sql_stages.evaluated, chain.spark, stage=stage, names=names)
        else:
            evaluate = partial(_in_arrow, stage)
            found = _halved(stage, rows, evaluate)
        if found:
            return {rows.column(ROW)[place].as_py(): error for place, error in found.items()}
        rows = evaluate(rows)
    return {}


def _with_places(batch: pa.RecordBatch, places: pa.Array) -> pa.RecordBatch:
    """The batch with the places of its rows in the column `ROW`, which stages pass on."""
    if ROW in batch.schema.names:
        return batch.set_column(batch.schema.get_field_index(ROW), ROW, places)
    return pa.RecordBatch.from_arrays([*batch.columns, places], [*batch.schema.names, ROW])


def _in_arrow(stage: ArrowStage, rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.concat_batches(list(stage([rows])))


def _in_sql(spark: SparkSession, rows: pa.RecordBatch, stage: SqlStage, names: list[str]) -> Failures:
    frame = sql_stages.frame_of(spark, rows.select(names))
    texts = sql_stages.results(frame.columns, stage).values()
    fails = _tried(spark, f.struct(*[f.expr(text) for text in texts])).isNull().alias("fails")
    try:
        mask = frame.select(fails).toArrow().column("fails").to_pylist()
    except Exception as error:
        # What several expressions have in common, Spark may evaluate before them.
        if row_failure(stage.table, error) is None:
            raise
        return _halved(stage, rows, lambda part: sql_stages.evaluated(spark, part, stage, names))
    places = [place for place, one in enumerate(mask) if one]
    if not places:
        return {}
    errors = _errors(spark, rows.take(pa.array(places, pa.int64())), stage, names)
    return {place: error for place, error in zip(places, errors, strict=True) if error is not None}


def _tried(spark: SparkSession, column: SparkColumn) -> SparkColumn:
    """The column, with NULL where it fails."""
    jvm: Any = spark._jvm
    utils = jvm.org.apache.spark.sql.classic.ExpressionUtils
    expressions = jvm.org.apache.spark.sql.catalyst.expressions
    return Column(utils.column(expressions.TryEval(utils.expression(column._jc))))


def _errors(
    spark: SparkSession, failing: pa.RecordBatch, stage: SqlStage, names: list[str]
) -> list[TableError | None]:
    """Why each of these rows fails. None: it does not, if it is alone.

    Spark's own evaluation of one row takes 50 ms or more. Its interpreter takes a few, but does not know all
    expressions: some are replaced only when a query is optimised.
    """
    jvm: Any = spark._jvm
    frame = sql_stages.frame_of(spark, failing.select(names))
    plan = sql_stages.selected(frame, stage, only_results=True)._jdf.queryExecution().analyzed()
    relation, interpreter, data = plan.child(), None, None
    if relation.nodeName() == "LocalRelation":
        expressions = jvm.org.apache.spark.sql.catalyst.expressions
        interpreter = expressions.InterpretedMutableProjection(plan.projectList(), relation.output())
        data = relation.data()
    found = []
    for place in range(failing.num_rows):
        error = None if data is None else _interpreted(stage, interpreter, data.apply(place))
        if error is None:
            row = failing.slice(place, 1)
            error = _error_of(stage, partial(sql_stages.evaluated, spark, row, stage, names))
        found.append(error)
    return found


def _interpreted(stage: SqlStage, interpreter: Any, row: Any) -> TableError | None:
    """Why a row fails. None: the interpreter does not know."""
    method = interpreter.apply
    # As py4j calls it, but without PySpark's exceptions: to choose the class of one takes 10 ms.
    arguments, _ = method._build_args(row)
    command = f"{protocol.CALL_COMMAND_NAME}{method.command_header}{arguments}{protocol.END_COMMAND_PART}"
    answer = method.gateway_client.send_command(command)
    try:
        protocol.get_return_value(answer, method.gateway_client, method.target_id, method.name)
    except Py4JError as error:
        return row_failure(stage.table, error)
    return None


def _halved(stage: Stage, rows: pa.RecordBatch, evaluate: Evaluate, first: int = 0) -> Failures:
    """Halves rows until each that fails is alone. `first`: the place of the first of these rows."""
    failure = _error_of(stage, lambda: evaluate(rows))
    if failure is None:
        return {}
    parts = parts_of(rows, max(1, rows.num_rows // 2))
    if rows.num_rows == 1:
        return {first: failure}
    if len(parts) == 1:  # the two rows of an update
        column = rows.schema.get_field_index(own_name(CHANGE_TYPE, rows.schema.names))
        kinds = pa.array(["insert"] * rows.num_rows, pa.string())
        rows = rows.set_column(column, rows.schema.field(column), kinds)
        parts = [(place, 1) for place in range(rows.num_rows)]
    found: Failures = {}
    for start, length in parts:
        found |= _halved(stage, rows.slice(start, length), evaluate, first + start)
    return found


def _error_of(stage: Stage, evaluate: Callable[[], Any]) -> TableError | None:
    """The error of a row that fails. None: none does. Raises any other error."""
    try:
        evaluate()
    except Exception as error:
        failure = row_failure(stage.table, error)
        if failure is None:
            raise
        return failure
    return None
