"""SQL of transforms over rows of tasks: only the columns that it looks at pass through the JVM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.errors import InternalError
from penstock.failures.crossing import returned
from penstock.model.schema import DEFAULT_TYPES, Column, TableId, TableSchema
from penstock.model.transforms import TransformRule
from penstock.secret import Secret
from penstock.sinks.rows import AnyOrder, Computed, Consume, Rows
from penstock.spark.sql_stages import row_failure
from penstock.spark.steps import StepRows
from penstock.spark.transform_chain import Chain

TABLE = TableId("shop", "orders")
SCHEMA = TableSchema(
    TABLE,
    (Column("id", "bigint", nullable=False), Column("a.b", "int"), Column("note", "longblob")),
    ("id",),
)
RULE = {"where": "id % 7 <> 0", "columns": {"double": "`a.b` * 2"}, "exclude": ["a.b"]}


@dataclass(frozen=True)
class Numbers:
    """Rows with some numbers. `calls`: a file with a byte for each time that they were made."""

    first: int
    count: int
    calls: Path | None = None


def made(task: Numbers) -> Iterator[pa.RecordBatch]:
    shift = 0
    if task.calls is not None:  # other rows, the second time
        with task.calls.open("ab") as file:
            file.write(b"x")
            shift = file.tell() - 1
    for start in range(task.first, task.first + task.count, 700):
        numbers = range(start + shift, min(start + 700, task.first + task.count) + shift)
        yield pa.RecordBatch.from_pydict(
            {
                "id": pa.array(numbers, pa.int64()),
                "a.b": pa.array([n if n % 3 else None for n in numbers], pa.int32()),
                "note": pa.array([b"x" * (n % 5) for n in numbers], pa.binary()),
                "_penstock_deleted": pa.array([n % 11 == 0 for n in numbers]),
                "_sequence": pa.array(numbers, pa.int64()),
            }
        )


def rows_of(spark: SparkSession, *work: Numbers) -> Rows:
    nothing: Any = None
    steps = StepRows(
        spark, nothing, nothing, nothing, types=DEFAULT_TYPES, before_images=False, driver_bytes_max=0
    )
    return steps._rows(SCHEMA, "latest", made, work, AnyOrder())


def chain(spark: SparkSession, *rules: dict[str, Any]) -> Chain:
    parsed = tuple(TransformRule(tables="*.*", **rule) for rule in rules)
    return Chain(spark, TABLE, parsed, ("id",), Secret())


def as_text(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"row": [repr(sorted(row.items())) for row in batch.to_pylist()]})


def texts(rows: Rows) -> list[str]:
    return sorted(row[0] for row in rows.through(as_text, "row string").collect())


@pytest.mark.parametrize(
    "rules",
    [
        [RULE],
        [{"rename": {"note": "more"}}, RULE],
        [{"columns": {"always": "'x'"}}],
        [RULE, {"columns": {"again": "double + 1"}}],
    ],
)
def test_rows_are_the_same_whether_all_columns_or_few_pass_through_the_jvm(
    spark: SparkSession, rules: list[dict[str, Any]]
) -> None:
    rows = rows_of(spark, Numbers(0, 1500), Numbers(1500, 0), Numbers(5000, 10_500))
    few = chain(spark, *rules).rows(rows)
    in_driver = chain(spark, *rules).in_driver([batch for task in (0, 5000) for batch in made(
        Numbers(task, 10_500 if task else 1500))])  # fmt: skip
    expected = sorted(text for batch in as_text(in_driver) for text in batch.column(0).to_pylist())
    assert texts(few) == expected
    assert texts(chain(spark, *rules).rows(replace(rows, compute=None))) == expected
    frame = few.frame.toArrow().to_batches()
    assert sorted(text for batch in as_text(frame) for text in batch.column(0).to_pylist()) == expected


def test_only_what_sql_looks_at_passes_through_the_jvm(spark: SparkSession) -> None:
    seen: list[list[str]] = []
    rows = rows_of(spark, Numbers(0, 10))
    compute = rows.compute
    assert compute is not None

    def watched(what: Computed, consume: Consume, result: Any) -> Any:
        seen.append(list(what.needed.names))
        return compute(what, consume, result)

    texts(chain(spark, RULE).rows(replace(rows, compute=watched)))
    assert seen == [["id", "a.b", "_penstock_deleted", "_sequence"]]


def test_rows_that_differ_when_they_are_made_again_are_an_error(spark: SparkSession, tmp_path: Path) -> None:
    rows = rows_of(spark, Numbers(0, 100, tmp_path / "calls"))
    with pytest.raises(Exception, match="made twice") as error:
        texts(chain(spark, RULE).rows(rows))
    assert isinstance(returned(error.value), InternalError)


@pytest.mark.parametrize(
    "rules",
    [
        [{"columns": {"number": "CAST(concat(id, 'x') AS INT)"}}],
        [{"where": "id > 0"}, {"python": "tests.spark.test_transform_chain:refused"}],
    ],
)
def test_a_row_that_fails_is_told_as_one(spark: SparkSession, rules: list[dict[str, Any]]) -> None:
    with pytest.raises(Exception) as error:
        texts(chain(spark, *rules).rows(rows_of(spark, Numbers(1, 10))))
    found = row_failure(TABLE, error.value)
    assert found is not None and "shop.orders" in found.message


def refused(batch: pa.RecordBatch) -> pa.RecordBatch:
    if batch.num_rows:  # else the columns are being found out
        raise ValueError("secret")
    return batch
