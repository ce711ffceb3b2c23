"""NaN and infinities in JSON that Penstock writes from Arrow: texts, because JSON has no such numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.datasource.envelope import objects
from penstock.model.change import CHANGE_TYPE, COMMIT_TIMESTAMP, SEQUENCE
from penstock.model.schema import TableId
from penstock.sinks.base import Commit
from penstock.sinks.calls.lines import lines_of
from penstock.sinks.documents import as_json, plain, texts
from penstock.sinks.opensearch.values import as_line, documents
from penstock.sinks.texts import Unfit, document_batch
from penstock.state.dead_letters import listing
from penstock.transforms.lineage import for_message

VALUES = [math.nan, math.inf, -math.inf, 1.5, None]
NAMES = ["NaN", "Infinity", "-Infinity", 1.5, None]
BATCH = pa.record_batch({
    "much": pa.array(VALUES, pa.float64()), "small": pa.array(VALUES, pa.float32()),
    CHANGE_TYPE: ["insert"] * 5, SEQUENCE: pa.array(range(5), pa.int64()),
    COMMIT_TIMESTAMP: pa.array([0] * 5, pa.timestamp("us", "UTC")),
})  # fmt: skip


def strict(text: str | bytes) -> Any:
    """JSON as the standard has it, without Python's NaN and Infinity."""

    def refuse(word: str) -> Any:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def of_calls(folder: Path) -> list[Any]:
    return [strict(line)["row"] for line in lines_of("d.t", BATCH)]


def of_queries(folder: Path) -> list[Any]:
    columns = {name: BATCH.column(name) for name in ("much", "small")}
    return [strict(one) for one in objects(columns).to_pylist()]


def of_redis(folder: Path) -> list[Any]:
    columns = [plain(BATCH.column(name)) for name in ("much", "small")]
    return [
        strict(as_json(dict(zip(("much", "small"), row, strict=True)))) for row in zip(*columns, strict=True)
    ]


def of_opensearch(folder: Path) -> list[Any]:
    found = [strict(as_line(one)) for one in documents(BATCH, ("much", "small"))]
    return [{name: one.get(name) for name in ("much", "small")} for one in found]


def of_rules(folder: Path) -> list[Any]:
    nested = pa.array([{"much": one, "small": [one]} for one in VALUES])
    return [{**one, "small": one["small"][0]} for one in map(strict, for_message(nested).to_pylist())]


def of_dead_letters(folder: Path) -> list[Any]:
    with listing(folder, TableId("d", "t"), Commit("p", 1)) as add:
        for one in VALUES:
            add({"row": {"much": one, "small": one}})
    (written,) = folder.rglob("*.jsonl")
    return [strict(line)["row"] for line in written.read_text().splitlines()]


WRITERS = [of_calls, of_queries, of_redis, of_opensearch, of_rules, of_dead_letters]


@pytest.mark.parametrize("rows_of", WRITERS, ids=lambda one: one.__name__)
def test_readers_of_json_see_names(rows_of: Callable[[Path], list[Any]], tmp_path: Path) -> None:
    assert rows_of(tmp_path) == [{"much": one, "small": one} for one in NAMES]


def test_texts_have_the_names_that_java_reads() -> None:
    found = ["NaN", "Infinity", "-Infinity", "1.5", None]
    assert texts(BATCH.column("much")) == texts(BATCH.column("small")) == found
    assert texts(pa.array([None, 2.5])) == [None, "2.5"] and texts(pa.array([], pa.float64())) == []


def test_documents_are_read_back() -> None:
    fields = pa.schema([("much", pa.float64()), ("small", pa.float32())])
    rows = [{"much": one, "small": one} for one in NAMES]
    found = document_batch(rows, fields)
    assert repr(found.column("much").to_pylist()) == repr(VALUES) == repr(found.column("small").to_pylist())
    with pytest.raises(Unfit):
        document_batch([{"much": 0.1, "small": 0.1}], fields)  # no value of FLOAT
    with pytest.raises(Unfit):
        document_batch([{"much": "nonsense", "small": 1.0}], fields)
