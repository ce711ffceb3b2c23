"""Folders of staged chunks: those of ended snapshots go, once nothing uses them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.snapshot.test_staging import CHUNK, ScriptedReader
from tests.snapshot.test_staging import SCHEMA as STAGED

from penstock.model.offset import Offset
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.table import TableState, new_table
from penstock.snapshot.staged_folders import StagedFolders
from penstock.snapshot.staging import Staging
from penstock.state import StateStore
from penstock.store.opening import open_store

TABLE = TableId("shop", "orders")
SCHEMA = TableSchema(TABLE, (Column("id", "int", nullable=False),), ("id",))


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateStore]:
    store = StateStore(tmp_path / "state")
    yield store
    store.close()


def reading_from(start: int) -> TableState:
    return new_table(SCHEMA, Offset(start), reads=True, append_only=False)


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    return Staging(open_store(tmp_path.as_uri()))


def test_only_the_folder_of_the_current_snapshot_stays(state: StateStore, staging: Staging) -> None:
    state.put_table(reading_from(9))
    folders = StagedFolders(staging, state)
    current = folders.of(reading_from(9), 0)
    for folder in (current, folders.of(reading_from(7), 0), folders.of(reading_from(9), 3)):
        staging.stage(ScriptedReader([1]), STAGED, CHUNK, folder)
    assert folders.remove_outdated(())
    assert staging.snapshots() == {current}


def test_a_folder_into_which_a_task_may_still_write_stays(state: StateStore, staging: Staging) -> None:
    folders = StagedFolders(staging, state)
    ended = folders.of(reading_from(7), 0)
    staging.stage(ScriptedReader([1]), STAGED, CHUNK, ended)
    assert not folders.remove_outdated({CHUNK.table})
    assert staging.snapshots() == {ended}
    assert folders.remove_outdated(())
    assert not staging.snapshots()


def test_what_a_task_writes_after_its_folder_was_removed_is_removed_too(
    state: StateStore, staging: Staging
) -> None:
    folders = StagedFolders(staging, state)
    ended = folders.of(reading_from(7), 0)
    assert folders.remove_outdated({CHUNK.table}), "the task has written nothing yet"
    staging.stage(ScriptedReader([1]), STAGED, CHUNK, ended)
    assert folders.remove_outdated(())
    assert not staging.snapshots()


def test_what_an_earlier_run_left_is_taken_over_or_removed(state: StateStore, staging: Staging) -> None:
    state.put_table(reading_from(9))
    for folder in ("7", "9"):
        staging.stage(ScriptedReader([1]), STAGED, CHUNK, folder)
    StagedFolders(staging, state).take_over()
    assert staging.snapshots() == {"9"}
