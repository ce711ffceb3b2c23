"""Rows that rules cannot transform, when there are many of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.model.schema import TableId
from penstock.model.transforms import TransformRule
from penstock.secret import Secret
from penstock.spark import sql_stages
from penstock.spark.row_failures import sift
from penstock.spark.transform_chain import Chain
from penstock.state.dead_letters import Letter

TABLE = TableId("shop", "orders")
INVALID, BY_ZERO = "CAST_INVALID_INPUT", "DIVIDE_BY_ZERO"


def chain(spark: SparkSession, *rules: dict[str, Any], key: tuple[str, ...] = ("id",)) -> Chain:
    parsed = tuple(TransformRule(tables="*.*", on_error="dead_letter", **rule) for rule in rules)
    return Chain(spark, TABLE, parsed, key, Secret())


def texts(count: int) -> list[str | None]:
    return [None if n % 17 == 0 else f"x{n}" if n % 5 == 0 else str(n % 4) for n in range(count)]


def latest(values: list[str | None]) -> pa.RecordBatch:
    numbers = range(len(values))
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array(numbers, pa.int64()),
            "text": pa.array(values, pa.string()),
            "_penstock_deleted": pa.array([n % 13 == 0 for n in numbers]),
            "_sequence": pa.array(numbers, pa.int64()),
        }
    )


def sifted(chain: Chain, *batches: pa.RecordBatch) -> tuple[list[dict[str, Any]], list[Letter]]:
    letters: list[Letter] = []
    found = [row for batch in sift(chain, batches, ("id",), letters.append) for row in batch.to_pylist()]
    return found, letters


def fails(text: str | None) -> str | None:
    """Why `12 / text`, as whole numbers, cannot be computed."""
    if text is None:
        return None
    return BY_ZERO if text == "0" else None if text.isdigit() else INVALID


DIVIDED = {"columns": {"result": "12 div CAST(text AS INT)", "half": "CAST(text AS INT) / 2"}}


def test_of_hundreds_of_rows_that_fail_each_is_listed_with_its_reason(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, times = texts(1500), []
    evaluated = sql_stages.evaluated

    def counted(*arguments: Any) -> pa.RecordBatch:
        times.append(1)
        return evaluated(*arguments)

    monkeypatch.setattr(sql_stages, "evaluated", counted)
    found, letters = sifted(chain(spark, DIVIDED), latest(values))
    reasons = {n: fails(text) for n, text in enumerate(values) if n % 13 != 0}
    bad = {n: reason for n, reason in reasons.items() if reason is not None}
    assert len(bad) > 400 and {*bad.values()} == {INVALID, BY_ZERO}
    assert {one["key"]["id"]: one["reason"].rpartition(" ")[2].rstrip(".") for one in letters} == bad
    assert [one["offset"] for one in letters] == sorted(bad)
    results = {row["id"]: row["result"] for row in found if not row["_penstock_deleted"]}
    good = {n: values[n] for n, reason in reasons.items() if reason is None}
    assert results == {n: None if text is None else 12 // int(text) for n, text in good.items()}
    assert sorted(row["id"] for row in found) == [*range(1500)], "the others are deleted at the target"
    assert len(times) < 10, "rows are not evaluated one by one"


@pytest.mark.parametrize(
    "sql",
    [
        "nvl(CAST(text AS INT), 0)", "nullif(CAST(text AS INT), 5)", "CAST(text AS INT) BETWEEN 1 AND 2",
        "to_date(concat('2020-01-0', CAST(text AS INT) + 1))", "CAST(text AS DECIMAL(3,2))",
        "element_at(array(1), CAST(text AS INT) + 1) > 0", "CAST(CONCAT('2020-01-0', text) AS DATE)",
    ],
)  # fmt: skip
def test_the_rows_that_fail_are_those_that_fail_alone(spark: SparkSession, sql: str) -> None:
    """Also with expressions that Spark replaces by others before it evaluates them."""
    values = [None, "0", "1", "2", "x", "3", "12", "y"]
    rules = chain(spark, {"columns": {"result": sql}})
    expected = {}
    for place, text in enumerate(values):
        row = pa.RecordBatch.from_pydict({"id": [place], "text": pa.array([text], pa.string())})
        row = row.append_column("_sequence", pa.array([place], pa.int64()))
        try:
            list(rules.in_driver([row]))
        except Exception as error:
            failure = sql_stages.row_failure(TABLE, error)
            assert failure is not None
            expected[place] = failure.message
    assert 0 < len(expected) < len(values)
    batch = pa.RecordBatch.from_pydict({"id": range(len(values)), "text": pa.array(values, pa.string())})
    batch = batch.append_column("_sequence", pa.array(range(len(values)), pa.int64()))
    found, letters = sifted(rules, batch)
    assert {one["offset"]: one["reason"] for one in letters} == expected
    assert [row["_sequence"] for row in found] == [n for n in range(len(values)) if n not in expected]


def refuses_seven(batch: pa.RecordBatch) -> pa.RecordBatch:
    if 7 in batch.column("number").to_pylist():
        raise ValueError
    return batch


def test_updates_of_which_one_row_fails_in_whatever_rule(spark: SparkSession) -> None:
    """A text that is no number fails in the first rule, and a 7 in the second one."""
    updates = [("1", "2"), ("x", "3"), ("4", "x"), ("7", "5"), ("6", "7"), ("x", "7"), ("7", "x"), ("8", "9")]
    rows = [("insert", "7"), ("insert", "1"), ("delete", "x")]
    for before, after in updates:
        rows += [("update_preimage", before), ("update_postimage", after)]
    batch = pa.RecordBatch.from_pydict(
        {
            "id": pa.array(range(len(rows)), pa.int64()),
            "text": [text for _, text in rows],
            "_change_type": [kind for kind, _ in rows],
            "_sequence": pa.array(range(len(rows)), pa.int64()),
            "_commit_timestamp": pa.nulls(len(rows), pa.timestamp("us", "UTC")),
        }
    )
    rules = chain(
        spark, {"columns": {"number": "CAST(text AS INT)"}}, {"python": f"{__name__}:refuses_seven"}, key=()
    )
    found, letters = sifted(rules, batch)
    assert [(row["_change_type"], row["number"]) for row in found] == [
        ("insert", 1), ("update_preimage", 1), ("update_postimage", 2), ("insert", 3), ("insert", 5),
        ("update_preimage", 8), ("update_postimage", 9),
    ]  # fmt: skip
    listed = {(one["offset"], one["change"]): one["reason"] for one in letters}
    of_cast = {place for (place, _), reason in listed.items() if INVALID in reason}
    of_function = {place for (place, _), reason in listed.items() if "refuses_seven" in reason}
    assert {place for place, (_, text) in enumerate(rows) if text == "x"} == of_cast
    # A row before an update is not looked at any more if the row after it has failed.
    assert {place for place, (_, text) in enumerate(rows) if text == "7"} - {15} == of_function
    assert all(kind == rows[place][0] for place, kind in listed)
