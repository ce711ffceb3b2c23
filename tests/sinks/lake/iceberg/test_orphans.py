"""Files that no snapshot names are removed by `compact`, and no others."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.sinks.conftest import Place

from penstock.model.schema import TableId
from penstock.sinks.lake.iceberg.orphans import AGE_MS

Make = Callable[..., Place]
OLD_S = time.time() - AGE_MS / 1000 - 60


@pytest.mark.parametrize("name", ["orders", "x%2Fy z"])
def test_old_files_without_a_snapshot_go_and_nothing_else(place: Make, name: str) -> None:
    it = place("iceberg", table=TableId("shop", name)).create()
    it.sink.append(it.table, it.latest((1, "a", False, 10), (2, "b", False, 11)), it.commit(1))
    version = it.sink.version(it.table)
    it.sink.merge(it.table, it.latest((1, "A", False, 20)), it.key, it.commit(2))
    data = it.sink.format._path(it.table) / "data"
    for path in data.rglob("*.*"):
        os.utime(path, (OLD_S, OLD_S))
    ours = [stray(data, ".parquet"), stray(data, "-deletes.puffin"), stray(data / "region=x", ".parquet")]
    young, others = data / f"{uuid.uuid4()}.parquet", data / "notes.parquet"
    young.write_bytes(b"x")
    others.write_bytes(b"x")
    os.utime(others, (OLD_S, OLD_S))

    assert it.sink.compact(it.table).orphans == len(ours)
    assert not any(path.exists() for path in ours)
    assert young.exists() and others.exists()
    assert it.rows() == [(1, "A", 20), (2, "b", 11)]
    assert it.rows(version) == [(1, "a", 10), (2, "b", 11)], "an older version is whole, too"
    assert it.sink.compact(it.table).orphans == 0


def test_where_the_catalog_has_snapshots_of_its_own_nothing_is_removed(place: Make) -> None:
    """Nessie says so by this property: files that the table does not name may be those of another branch."""
    it = place("iceberg").create()
    it.sink.append(it.table, it.latest((1, "a", False, 10)), it.commit(1))
    it.sink.format.load(it.table).updateProperties().set("gc.enabled", "false").commit()
    path = stray(it.sink.format._path(it.table) / "data", ".parquet")
    assert it.sink.compact(it.table).orphans == 0
    assert path.exists()


def test_in_a_place_that_other_tables_may_share_nothing_is_removed(place: Make, tmp_path: Path) -> None:
    """`write.data.path` may be the same for several tables: a file may be that of another one."""
    config = {"tables": [{"match": "shop.*", "properties": {"write.data.path": str(tmp_path)}}]}
    it = place("iceberg", config=config).create()
    it.sink.append(it.table, it.latest((1, "a", False, 10)), it.commit(1))
    path = stray(tmp_path, ".parquet")
    assert len(list(tmp_path.iterdir())) == 2, "the table's own file is there, too"
    assert it.sink.compact(it.table).orphans == 0
    assert path.exists() and it.rows() == [(1, "a", 10)]


def stray(folder: Path, suffix: str) -> Path:
    path = folder / f"{uuid.uuid4()}{suffix}"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"x")
    os.utime(path, (OLD_S, OLD_S))
    return path
