"""Directories of staged chunks: those of ended snapshots go, once nothing uses them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.model.offset import Offset
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.table import TableState, new_table
from penstock.snapshot.staged_folders import StagedFolders
from penstock.snapshot.staging import table_directory
from penstock.state import StateStore

TABLE = TableId("shop", "orders")
SCHEMA = TableSchema(TABLE, (Column("id", "int", nullable=False),), ("id",))


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateStore]:
    store = StateStore(tmp_path / "state")
    yield store
    store.close()


def reading_from(start: int) -> TableState:
    return new_table(SCHEMA, Offset(start), reads=True, append_only=False)


def test_only_the_directory_of_the_current_snapshot_stays(state: StateStore, tmp_path: Path) -> None:
    state.put_table(reading_from(9))
    folders = StagedFolders(tmp_path / "chunks", state)
    current = folders.of(reading_from(9), 0)
    for folder in (current, folders.of(reading_from(7), 0), folders.of(reading_from(9), 3)):
        folder.mkdir(parents=True)
    assert folders.remove_outdated(())
    assert list((tmp_path / "chunks").iterdir()) == [current]


def test_a_directory_into_which_a_task_may_still_write_stays(state: StateStore, tmp_path: Path) -> None:
    folders = StagedFolders(tmp_path / "chunks", state)
    ended = folders.of(reading_from(7), 0)
    table_directory(ended, TABLE).mkdir(parents=True)
    assert not folders.remove_outdated({TABLE})
    assert ended.exists()
    assert folders.remove_outdated(())
    assert not ended.exists()
