"""A target has rows of one form: the start of a run refuses another `types` for it, or another `history`.

The state store and the mapping of types are the real ones. `transforms`: tests/scenarios/test_transforms.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from tests.phases import READ

from penstock.config import PipelineConfig
from penstock.errors import ConfigError
from penstock.model.offset import Offset
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.table import Reading, ResnapshotPending, TableState
from penstock.runtime import shape_changes
from penstock.sinks.base import Sink
from penstock.state import StateStore

T = TableId("shop", "orders")
SCHEMA = TableSchema(
    T,
    (
        Column("id", "bigint", unsigned=True, nullable=False),
        Column("paid", "tinyint", column_type="tinyint(1)"),
        Column("bytes", "blob"),
        Column("at", "date"),
    ),
    ("id",),
)
WRITTEN = TableState(SCHEMA, Offset(4), READ, written=True, last_epoch=7)


class Run:
    """Runs of one pipeline, up to this check."""

    def __init__(self, folder: Path, table: TableState) -> None:
        self.folder, self.state = folder, StateStore(folder)
        self.state.put_table(table)

    def start(self, **sections: Any) -> TableState:
        config = PipelineConfig.model_validate(
            {
                "name": "shop",
                "source": {"user": "u"},
                "tables": ["shop.*"],
                "sink": {"type": "iceberg", "path": str(self.folder / "lake")},
                "state": str(self.folder),
                **sections,
            }
        )
        shape_changes.check(cast(Sink, None), config, self.state, (), (), types=config.types)
        found = self.state.table(T)
        assert found is not None
        return found


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({}, {"tinyint1": "boolean"}),
        ({"zero_dates": "text"}, {}),
        ({"binary": "hex"}, {"binary": "base64"}),
        ({"bigint_unsigned": "long"}, {"bigint_unsigned": "string"}),
    ],
)
def test_other_types_for_a_target_are_refused_until_they_are_given_back(
    tmp_path: Path, before: dict[str, str], now: dict[str, str]
) -> None:
    run = Run(tmp_path, WRITTEN)
    run.start(types=before)
    with pytest.raises(ConfigError, match=r"`types` says something else for shop\.orders") as refused:
        run.start(types=now)
    assert "penstock resnapshot FILE shop.orders --recreate" in str(refused.value.hint)
    run.start(types=before)


def test_types_that_change_nothing_of_a_table_are_not_refused(tmp_path: Path) -> None:
    run = Run(tmp_path, WRITTEN)
    run.start()
    # The key stays as it is, and other columns of these types are not there.
    run.start(types={"decimal": "double", "time": "micros", "zero_dates": "error"})


def test_a_target_of_an_earlier_version_has_the_types_of_now(tmp_path: Path) -> None:
    run = Run(tmp_path, WRITTEN)
    run.state.set_meta(shape_changes.RULES, json.dumps({"transforms": [], "history": {}}))
    run.start(types={"tinyint1": "boolean"})
    with pytest.raises(ConfigError, match="`types`"):
        run.start()


def test_a_table_whose_chunks_were_read_with_other_types_is_read_again(tmp_path: Path) -> None:
    run = Run(tmp_path, TableState(SCHEMA, Offset(4), Reading(splitting=False)))
    assert isinstance(run.start().phase, Reading)
    assert isinstance(run.start(types={"tinyint1": "boolean"}).phase, ResnapshotPending)


def test_another_history_for_a_target_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path, WRITTEN)
    run.start()
    with pytest.raises(ConfigError, match="`history`"):
        run.start(history="scd2")
