"""A catalog takes a commit, and its answer is lost: the library tries again and is refused, because of what
it has just done itself. Spark's own reading judges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from tests.sinks.conftest import Place
from tests.sinks.lake.iceberg.test_pack_files import commits, packed
from tests.sinks.lake.iceberg.test_small_commit import files, iceberg, target
from tests.sinks.lake.test_fence import WRITES, small

from penstock.sinks.lake.iceberg import pack_files
from penstock.sinks.lake.iceberg.commits import Commits

Make = Callable[..., Place]


def refuse(it: Place) -> None:
    """Raises a refusal of Iceberg."""
    target(it).manageSnapshots().setCurrentSnapshot(1).commit()


@pytest.mark.parametrize("name", WRITES)
def test_files_that_the_table_has_are_not_removed(
    place: Make, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = place("iceberg").create()
    it.sink.append(it.table, small(it, (1, "a", False, 1), (2, "a", False, 1)), it.commit(1))
    rows, write = WRITES[name]
    with monkeypatch.context() as patch:
        record = Commits.record

        def lost(updater: Any, *args: Any) -> None:
            record(updater, *args)
            updater.commitTransaction()
            refuse(it)

        patch.setattr(Commits, "record", staticmethod(lost))
        with pytest.raises(Py4JJavaError, match="unknown snapshot"):
            write(it, rows(it, (2, "b", False, 5), (3, "b", False, 5)))
    new = [(2, "b", 5), (3, "b", 5)]
    expected = sorted([(1, "a", 1), *new, *([(2, "a", 1)] if name.startswith("append") else [])])
    assert it.rows() == expected
    assert not write(it, rows(it, (2, "b", False, 5), (3, "b", False, 5))), "it is recorded"
    assert it.rows() == expected


def test_files_that_were_put_together_are_not_removed(place: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    it = place("iceberg").create()
    commits(it, range(1, 5))
    expected = it.rows()
    commit = pack_files._commit

    def lost(*args: Any) -> None:
        commit(*args)
        refuse(it)

    monkeypatch.setattr(pack_files, "_commit", lost)
    with pytest.raises(Py4JJavaError):
        packed(it)
    it.spark.catalog.refreshTable(iceberg(it).name(it.table))
    assert it.rows() == expected


def test_files_of_a_refused_commit_are_removed(place: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    it = place("iceberg").create()
    it.sink.append(it.table, small(it, (1, "a", False, 1)), it.commit(1))
    before = files(it)
    monkeypatch.setattr(Commits, "record", staticmethod(lambda *args: refuse(it)))
    with pytest.raises(Py4JJavaError, match="unknown snapshot"):
        it.sink.append(it.table, small(it, (2, "b", False, 5)), it.commit(2))
    assert files(it) == before and it.rows() == [(1, "a", 1)]
