"""What foreign keys did in earlier epochs is kept as long as somebody will ask for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.phases import behind

from penstock.config import EpochConfig
from penstock.model.change import DELETED, SEQUENCE
from penstock.model.offset import LogRange, Offset
from penstock.model.plan import ApplyCascades, EpochPlan, TablePlan
from penstock.model.schema import DEFAULT_TYPES, CascadingKey, Column, TableId, TableSchema
from penstock.model.table import TableState
from penstock.spark.cascades import FOLDER, MANIFEST, Cascades, Consequences
from penstock.spark.row_versions import ParentChanges
from penstock.spark.scratch import save
from penstock.state import StateStore
from penstock.store.base import Store
from penstock.store.credentials import GivenKeys, Keys
from penstock.store.folder import StoreFolder
from penstock.store.opening import open_store
from penstock.store.options import StoreOptions
from penstock.testing.servers.s3 import KEY_ID, SECRET, Moto

CHILD, PARENT = TableId("shop", "child"), TableId("shop", "parent")
KEY = CascadingKey("fk", ("parent_id",), PARENT, ("id",), on_delete="CASCADE")
COLUMNS = (Column("id", "int", nullable=False), Column("parent_id", "int"))
SCHEMA = TableSchema(CHILD, COLUMNS, ("id",), foreign_keys=(KEY,))
NOTHING: Any = None


def staged(store: Store, epoch: int) -> Consequences:
    """What foreign keys did in an epoch, with its files, and without a manifest yet."""
    folder = StoreFolder(store, FOLDER) / f"{epoch:012d}"
    changes = pa.table({"o0": [1, 2], "gone": [True, False], "p": [7, 8]})
    found = Consequences(folder, Offset(100))
    found.changes[PARENT] = [ParentChanges({"id": 0}, save(changes, folder / "changes"))]
    found.rows[CHILD] = save(pa.table({"c0": [5], DELETED: [True], SEQUENCE: [7]}), folder / "rows")
    return found


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "local":
        yield open_store(tmp_path.as_uri())
        return
    with Moto() as server:
        server.make_bucket("lake")
        yield open_store("s3://lake/x", StoreOptions(GivenKeys(Keys(KEY_ID, SECRET)), server.url))


def test_only_files_that_the_manifest_names_count(store: Store) -> None:
    """Tasks of a killed driver may run on for a while on a cluster."""
    written = staged(store, 3)
    written.write()
    save(pa.table({"c0": [9], DELETED: [True], SEQUENCE: [9]}), written.folder / "rows")
    found = Consequences.read(written.folder)
    assert found is not None and (found.end, found.rows) == (written.end, written.rows)
    assert found.rows[CHILD].table().to_pylist() == [{"c0": 5, DELETED: True, SEQUENCE: 7}]
    assert found.changes[PARENT][0].files.rows == 2


def test_what_a_killed_run_did_not_finish_does_not_count_and_is_removed(store: Store, tmp_path: Path) -> None:
    staged(store, 3)
    staged(store, 4).write()
    cascades = Cascades(NOTHING, NOTHING, store, DEFAULT_TYPES, NOTHING, NOTHING, EpochConfig())
    state = StateStore(tmp_path / "state")
    state.put_table(TableState(SCHEMA, Offset(4), behind(50), written=True))
    cascades.sweep(state)
    assert {key.key.split("/")[1] for key in store.objects(FOLDER)} == {"000000000004"}
    state.close()


def test_manifests_of_older_versions_are_read(tmp_path: Path) -> None:
    """They named folders, in which every file counts."""
    store = open_store(tmp_path.as_uri())
    written = staged(store, 3)
    document = {
        "format": 1, "end": 100, "unclear": [], "failed": {}, "chunks": {}, "rows": {str(CHILD): "rows"},
        "changes": {str(PARENT): [{"places": {"id": 0}, "files": [
            one.key.removeprefix(f"{written.folder.path}/") for one in written.changes[PARENT][0].files.files
        ]}]},
    }  # fmt: skip
    store.put(written.folder.key(MANIFEST), json.dumps(document).encode())
    assert Consequences.read(written.folder) == written


def test_what_the_next_plan_of_a_table_that_catches_up_needs_outlives_the_epoch_before(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path.as_uri())
    kept = tmp_path / FOLDER / "000000000003"
    Consequences(StoreFolder(store, f"{FOLDER}/{kept.name}"), Offset(100)).write()
    cascades = Cascades(NOTHING, NOTHING, store, DEFAULT_TYPES, NOTHING, NOTHING, EpochConfig())
    state = StateStore(tmp_path / "state")
    state.advance(Offset(300))
    # The plan is durable, so the table stands at its end already.
    state.put_table(TableState(SCHEMA, Offset(4), behind(200), written=True))
    steps = (ApplyCascades(Offset(0), rows=True, reading=False, alone=True),)
    plan = EpochPlan(9, LogRange(Offset(50), Offset(200)), (TablePlan(SCHEMA, steps),))
    state.plan(plan, alone=True)
    cascades.sweep(state)
    assert (kept / MANIFEST).exists()
    state.applied(plan)
    cascades.sweep(state)
    assert not kept.exists()
