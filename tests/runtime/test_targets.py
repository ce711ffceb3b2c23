"""Which targets may keep a pipeline from starting."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.phases import DROPPED, READ, READING

from penstock.config import PipelineConfig
from penstock.errors import ConfigError
from penstock.model.offset import Offset
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.table import TableState
from penstock.runtime import targets
from penstock.sinks.base import Commit, Foreign, Missing, Ours, TargetState
from penstock.sources.table_filter import TableFilter
from penstock.state import StateStore

T, OTHER = TableId("shop", "orders"), TableId("shop", "customers")
NEW = TableState(TableSchema(T, (Column("id", "int"),), ("id",)), Offset(4), READING)
WRITTEN = replace(NEW, phase=READ, written=True, last_epoch=1)
TAKEN = Foreign("lake.shop.orders", "a table that Penstock did not create", "Drop it.")


@dataclass
class Target:
    found: TargetState

    def open(self, table: TableId) -> TargetState:
        return self.found if table == T else Ours(None, ("id",), empty=False)


def start(
    folder: Path,
    table: TableState,
    found: TargetState,
    *captured: str,
    beside: bool = False,
    began_after: int = 0,
) -> TableState:
    config = PipelineConfig.model_validate(
        {
            "name": "shop",
            "source": {"host": "db", "user": "u", "password": "p"},
            "tables": list(captured),
            "sink": {"type": "iceberg", "path": str(folder / "lake")},
            "state": str(folder / "state"),
        }
    )
    state = StateStore(folder)
    if began_after:
        state.begin_after(began_after)
    state.put_table(table)
    state.advance(Offset(4))  # discovery does that before the targets are looked at
    if beside:
        state.put_table(replace(NEW, schema=replace(NEW.schema, table=OTHER)))
    sink: Any = Target(found)
    targets.check(sink, config, state)
    targets.check_new(sink, state, TableFilter(config.tables), types=config.types)
    after = state.table(T)
    assert after is not None
    return after


@pytest.mark.parametrize(
    ("table", "found", "words"),
    [(NEW, TAKEN, "is taken"), (WRITTEN, TAKEN, "is taken"), (WRITTEN, Missing(), "is gone")],
)
def test_the_target_of_a_table_counts_only_while_the_file_names_the_table(
    tmp_path: Path, table: TableState, found: TargetState, words: str
) -> None:
    """A user whose start was refused may leave the table out."""
    with pytest.raises(ConfigError, match=words):
        start(tmp_path, table, found, "shop.*")
    start(tmp_path, table, found, "shop.customers")


def test_a_table_that_differs_in_letter_case_alone_may_be_left_out(tmp_path: Path) -> None:
    """As where the catalog takes both names for the same."""
    start(tmp_path, NEW, TAKEN, "shop.ORDERS")


def test_a_taken_target_parks_its_table_at_each_start_and_the_others_go_on(tmp_path: Path) -> None:
    """Also at the first start, so that a supervisor that starts again finds nothing else."""
    for _ in range(2):
        parked = start(tmp_path, NEW, TAKEN, "shop.*", beside=True).parked
        assert parked is not None and "is taken" in parked.reason and parked.hint == TAKEN.cure


def test_a_start_is_refused_each_time_if_every_target_is_taken(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(ConfigError, match="is taken"):
            start(tmp_path, NEW, TAKEN, "shop.*")


def test_the_name_of_a_dropped_table_may_be_used_by_others(tmp_path: Path) -> None:
    start(tmp_path, replace(WRITTEN, phase=DROPPED), TAKEN, "shop.*")


def test_a_target_that_an_earlier_state_has_written_is_read_again_over_its_rows(tmp_path: Path) -> None:
    def started(name: str, found: TargetState, began_after: int) -> TableState:
        return start(tmp_path / name, NEW, found, "shop.orders", began_after=began_after)

    before, own = Ours(Commit("p", 7), ("id",), False), Ours(Commit("p", 101), ("id",), False)
    found = started("a", before, 100)
    assert found.target_reset == "truncate" and found.replaces == NEW.start  # the stub keeps no tables
    assert started("b", Missing(), 100) == NEW
    assert started("c", Ours(None, ("id",), empty=True), 100) == NEW
    with pytest.raises(ConfigError, match="is ahead of this pipeline's state"):
        started("d", own, 100)
    with pytest.raises(ConfigError, match="is ahead of this pipeline's state"):
        started("e", before, 0)  # an older state was restored: it did not begin anew
    kept = NEW.takes_over(append_only=False)
    assert kept.target_reset == "evolve" and kept.written and kept.replaces == NEW.start
