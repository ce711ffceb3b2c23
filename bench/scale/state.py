"""How large the state of a pipeline with many wide tables becomes, and how long others take to open it.

`python -m bench.scale.state [--tables 1000] [--columns 200] [--epochs 1000] [--touched 20]` makes one with as
many tables, plans it as many epochs of so many tables each, and prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from penstock.config import PipelineConfig
from penstock.model.offset import LogRange, Offset, Split
from penstock.model.plan import ApplyEvents, EpochPlan, TablePlan
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.table import Change, Streaming, TableState
from penstock.runtime.progress import TableDocuments
from penstock.state import StateStore


def schema_of(number: int, columns: int) -> TableSchema:
    table = TableId("shop", f"table_{number:04d}")
    kinds = ("bigint", "varchar", "decimal", "datetime")
    return TableSchema(
        table,
        tuple(
            Column(f"column_number_{n:03d}", kinds[n % 4], nullable=n > 0, length=40, charset="utf8mb4",
                   collation="utf8mb4_0900_ai_ci", column_type=f"{kinds[n % 4]}(40)")
            for n in range(columns)
        ),
        ("column_number_000",),
    )  # fmt: skip


def plan_of(epoch: int, tables: list[TableState]) -> EpochPlan:
    reach = LogRange(Offset(epoch * 1000), Offset(epoch * 1000 + 1000))
    split = Split("/data/relay/00000000000000000000-000001.binlog", Offset(0), reach.start, reach.end)
    steps = (ApplyEvents((split,), "merge", 1000, newer=True),)
    return EpochPlan(epoch, reach, tuple(TablePlan(one.schema, steps, one.start) for one in tables))


def timed_ms(what: Any) -> tuple[float, Any]:
    begun = time.perf_counter()
    found = what()
    return round((time.perf_counter() - begun) * 1000, 1), found


def fill(folder: Path, *, tables: int, columns: int, epochs: int, touched: int) -> float:
    """Milliseconds of one epoch in the end: its plan, and the record that it was applied."""
    state = StateStore(folder)
    with state.transaction():
        for number in range(tables):
            schema = schema_of(number, columns)
            state.put_table(TableState(schema, Offset(4), Streaming(snapshot_done=True), written=True))
            state.add_change(Change(schema.table, 1, Offset(4), "found", "captured"))
    every = list(state.tables().values())
    spent = []
    for epoch in range(1, epochs + 1):
        chosen = [every[(epoch * touched + n) % tables] for n in range(touched)]
        plan = plan_of(epoch, chosen)
        begun = time.perf_counter()
        state.plan(plan)
        state.pending()
        with state.transaction():
            for one in chosen:
                now = state.table(one.table)
                assert now is not None
                state.put_table(now.__class__(**{**now.__dict__, "last_epoch": epoch}))
            state.applied(plan)
        spent.append((time.perf_counter() - begun) * 1000)
    state.close()
    last = sorted(spent[-100:])
    return round(last[len(last) // 2], 2)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in (("tables", 1000), ("columns", 200), ("epochs", 1000), ("touched", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = vars(parser.parse_args())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        epoch_ms = fill(folder, **options)
        config = PipelineConfig.model_validate(
            {"name": "shop", "source": {"user": "u"}, "tables": ["shop.*"], "state": name,
             "sink": {"type": "console"}}
        )  # fmt: skip
        size = sum(path.stat().st_size for path in folder.glob("state.sqlite*"))
        opened_ms, state = timed_ms(lambda: StateStore(folder, read_only=True))
        told_ms, _ = timed_ms(lambda: TableDocuments(config, state).refresh())
        rest_ms, _ = timed_ms(lambda: (state.last_epoch(), state.applied_offset(), state.uuid))
        history_ms, _ = timed_ms(state.history)
        state.close()
        owner_ms, state = timed_ms(lambda: StateStore(folder, owner=True))
        state.close()
    print(json.dumps({
        **options, "bytes": size, "epoch_ms": epoch_ms, "open_to_read_ms": opened_ms,
        "tables_told_ms": told_ms, "rest_ms": rest_ms, "history_ms": history_ms,
        "open_to_run_ms": owner_ms,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
