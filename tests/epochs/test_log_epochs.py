"""The messages of an epoch, in their order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from penstock._core import KeySet, RowEncoder
from penstock.encode.truncation import At
from penstock.epochs.log_epochs import LogEpochs, Messages, _Attempt
from penstock.model.offset import LogRange, Offset
from penstock.model.plan import ApplyEvents, EpochPlan, PlaceChunks, Step, TablePlan, TruncateTarget
from penstock.model.schema import DEFAULT_TYPES, Column, TableId, TableSchema
from penstock.snapshot.placement import place_named
from penstock.state.dead_letters import Letters

T = TableSchema(TableId("shop", "t"), (Column("id", "int", nullable=False),), key=("id",))
ROWS = ApplyEvents((), "merge", 0)


class Epochs(LogEpochs):
    """Its log has one row, at offset 150; a position is ten times the offset."""

    def _at(self, offset: Offset) -> At:
        return At(int(offset), int(offset), f"binlog.000001:{offset * 10}", "mysql-binlog")

    def _opened(self, until: Offset) -> Any:
        return None

    def _events(self, *_: Any) -> Iterator[Messages]:
        yield [(T.table, None, b'{"op":"c","sequence":150,"pos":1500}', 150)]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ((TruncateTarget(), ROWS), [("t", 120, 1200), ("c", 150, 1500)]),
        ((ROWS, TruncateTarget()), [("c", 150, 1500), ("t", 200, 2000)]),
        ((TruncateTarget(),), [("t", 200, 2000)]),
    ],
)
def test_a_table_that_is_emptied_before_its_rows_is_emptied_at_a_place_before_them(
    steps: tuple[Step, ...], expected: list[Any]
) -> None:
    """Consumers of several partitions compare places, as docs/kafka.md says."""
    sink = SimpleNamespace(format="json", format_options="{}")
    epochs = Epochs(*cast(Any, [sink, None, None, None, None, DEFAULT_TYPES]))
    plan = EpochPlan(1, LogRange(Offset(100), Offset(200)), (TablePlan(T, steps, Offset(120)),))
    found = epochs._messages(_Attempt(plan, plan.tables, (), Letters()), cast(Any, None))
    messages = [json.loads(value) for part in found for _, _, value, _ in cast(Any, part)]
    assert [(one["op"], one["sequence"], one["pos"]) for one in messages] == expected


def test_with_schemas_the_message_of_an_emptied_table_has_the_schema_of_its_rows() -> None:
    options = '{"topic_prefix":"p","schemas":true}'
    sink = SimpleNamespace(format="debezium", format_options=options, route_of=lambda table: None)
    epochs = Epochs(*cast(Any, [sink, None, None, None, None, DEFAULT_TYPES]))
    plan = EpochPlan(1, LogRange(Offset(100), Offset(200)), (TablePlan(T, (TruncateTarget(),)),))
    attempt = _Attempt(plan, plan.tables, (), Letters())
    [[(_, key, value, _)]] = cast(Any, epochs._messages(attempt, cast(Any, None)))
    row = pa.RecordBatch.from_pydict({"id": pa.array([1], pa.int32())})
    encoded = RowEncoder(T.to_json(), "debezium", options=options).encode(row, at_us=1)
    message = json.loads(value)
    assert key is None and message["payload"]["op"] == "t"
    assert message["schema"] == json.loads(encoded.lines(False))["schema"]


def test_a_key_that_a_partial_snapshot_has_not_found_has_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = KeySet(T.to_json(), types=DEFAULT_TYPES.to_json())
    fields = pa.schema([pa.field("id", pa.int32(), nullable=False)])
    read = pa.RecordBatch.from_pydict({"id": [1]}, fields)
    monkeypatch.setattr(
        "penstock.epochs.tasks.place",
        lambda task: place_named([read], [(1,), (2,)], keys, task.sequence, T, layout=task.layout),
    )
    sink = SimpleNamespace(format="json", format_options="{}", route_of=lambda table: None)
    epochs = Epochs(*cast(Any, [sink, None, None, None, None, DEFAULT_TYPES]))
    table = TablePlan(T, (PlaceChunks((), (), "merge"),))
    plan = EpochPlan(1, LogRange(Offset(100), Offset(200)), (table,))
    found = epochs._messages(_Attempt(plan, plan.tables, (), Letters()), cast(Any, None))
    lines = [line for batch in found for line in cast(Any, batch).encoded.lines(False).splitlines()]
    assert [(one["op"], one["after"]) for one in map(json.loads, lines)] == [("r", {"id": 1})]
