"""A table that cannot be followed is read again by itself, but not for ever."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.epochs.table_outcome import resnapshot_reason
from penstock.errors import TableError
from penstock.model.offset import Offset
from penstock.model.schema import TableId
from penstock.model.table import Change
from penstock.state import StateStore

ORDERS, OTHERS = TableId("shop", "orders"), TableId("shop", "others")
ERROR = TableError("What a statement did is not known.", table=str(ORDERS), read_again=True)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateStore]:
    with closing(StateStore(tmp_path / "state")) as state:
        yield state


def read_again(state: StateStore, table: TableId, why: str = ERROR.message) -> None:
    state.add_change(Change(table, 1, Offset(4), why, "read again"))


@pytest.mark.parametrize("rereads_max", [1, 3])
def test_it_is_read_again_for_one_reason_as_often_as_the_option_says(
    state: StateStore, rereads_max: int
) -> None:
    for _ in range(rereads_max):
        assert resnapshot_reason(state, ERROR, rereads_max) == ERROR.message
        read_again(state, ORDERS)
    assert resnapshot_reason(state, ERROR, rereads_max) == ""


def test_other_reasons_other_tables_and_what_was_long_ago_do_not_count(
    state: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_again(state, ORDERS, "It was asked for.")
    read_again(state, OTHERS)
    monkeypatch.setattr("penstock.state.tables.now_us", lambda: int((time.time() - 25 * 3600) * 1e6))
    read_again(state, ORDERS)
    assert resnapshot_reason(state, ERROR, 1) == ERROR.message
