"""Small commits find the rows that they replace in the key index, whatever others do to the table. Spark's
own reading judges."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.sinks.conftest import Place
from tests.sinks.lake.iceberg.test_small_commit import few, iceberg, replaced_by_keys, summary, target
from tests.sinks.lake.test_file_merge import newer

from penstock.errors import TableError
from penstock.sinks.lake.iceberg.format import IcebergFormat
from penstock.sinks.lake.iceberg.live import LiveFiles
from penstock.sinks.lake.iceberg.maintenance import rewrite
from penstock.sinks.lake.iceberg.manifests import Content
from penstock.sinks.lake.iceberg.small_commit import SMALL
from penstock.sinks.lake.index import tables
from penstock.sinks.lake.index.tables import Indexes, TableKeys

Make = Callable[..., Place]
Model = dict[int, tuple[str, int]]


def name(it: Place) -> str:
    return iceberg(it).name(it.table)


def small(it: Place, epoch: int, *rows: tuple[Any, ...]) -> None:
    assert it.sink.merge(it.table, few(it, *rows), it.key, it.commit(epoch))
    assert summary(it)[SMALL] == "true"


def indexes(directory: Path, form: IcebergFormat) -> Indexes[LiveFiles]:
    live = partial(LiveFiles, form._classes)
    return Indexes(directory, live, spark=form._spark, memory_max=2**20)


def filled(place: Make) -> tuple[Place, Model]:
    it = place("iceberg").create()
    it.sink.append(it.table, it.latest(*[(n, "a", False, 1) for n in range(20)]), it.commit(1))
    small(it, 2, *[(n, "b", False, 2) for n in range(0, 20, 3)])
    small(it, 3, *[(n, "c", False, 3) for n in range(0, 20, 4)])
    return it, {n: ("c", 3) if n % 4 == 0 else ("b", 2) if n % 3 == 0 else ("a", 1) for n in range(20)}


def assert_rows(it: Place, model: Model) -> None:
    it.spark.catalog.refreshTable(name(it))
    assert it.rows() == sorted((n, *value) for n, value in model.items())


def compact(it: Place, model: Model) -> None:
    rewrite(it.spark, target(it), {"rewrite-all": "true"})


def delete(it: Place, model: Model) -> None:
    it.spark.sql(f"DELETE FROM {name(it)} WHERE id IN (3, 5)")
    del model[3], model[5]


def delete_files(it: Place, model: Model) -> None:
    it.spark.sql(f"DELETE FROM {name(it)} WHERE true")
    model.clear()


def update(it: Place, model: Model) -> None:
    it.spark.sql(f"UPDATE {name(it)} SET name = 'theirs' WHERE id = 4")
    model[4] = ("theirs", model[4][1])


def insert(it: Place, model: Model) -> None:
    it.spark.sql(f"INSERT INTO {name(it)} VALUES (100, 'theirs', 3)")
    model[100] = ("theirs", 3)


def replace_by_keys(it: Place, model: Model) -> None:
    replaced_by_keys(it, (4, "theirs", False, 3), (6, None, True, 3))
    model[4] = ("theirs", 3)
    del model[6]


def roll_back(it: Place, model: Model) -> None:
    found = target(it).currentSnapshot()
    it.spark.sql(
        f"CALL lake.system.rollback_to_snapshot('{name(it).removeprefix('`lake`.')}', {found.parentId()})"
    )
    model.update({n: ("b", 2) if n % 3 == 0 else ("a", 1) for n in range(20)})


def expire(it: Place, model: Model) -> None:
    target(it).expireSnapshots().expireOlderThan(2**52).retainLast(1).commit()


Stranger = Callable[[Place, Model], None]
STRANGERS = [compact, delete, delete_files, update, insert, replace_by_keys, roll_back, expire]

CHANGED = [
    (3, "d", False, 9),
    (4, "d", False, 9),
    (5, None, True, 9),
    (12, "d", False, 9),
    (100, "d", False, 9),
]


def change(model: Model) -> None:
    for number, text, deleted, sequence in CHANGED:
        model.pop(number, None)
        if not deleted:
            assert text is not None
            model[number] = (text, sequence)


def rolled_back_and_seen(it: Place, model: Model) -> None:
    roll_back(it, model)
    with pytest.raises(TableError, match="lacks some of what this pipeline has written up to epoch 3"):
        it.sink.merge(it.table, few(it, *CHANGED), it.key, it.commit(4))


BETWEEN = [rolled_back_and_seen if one is roll_back else one for one in STRANGERS]


@pytest.mark.parametrize("stranger", BETWEEN, ids=lambda one: one.__name__)
def test_what_others_do_between_two_commits_is_noticed(place: Make, stranger: Stranger) -> None:
    it, model = filled(place)
    stranger(it, model)
    assert_rows(it, model)
    small(it, 4, *CHANGED)
    change(model)
    assert_rows(it, model)
    small(it, 5, (3, "e", False, 10), (4, None, True, 10))
    model[3] = ("e", 10)
    del model[4]
    assert_rows(it, model)


def before_the_commit(patch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Does something once, after rows were looked up and before they are committed."""
    looked_up, left = TableKeys.rows_of, [act]

    def rows_of(self: TableKeys[Any], *args: Any) -> Any:
        found = looked_up(self, *args)
        if left:
            left.pop()()
        return found

    patch.setattr(TableKeys, "rows_of", rows_of)


@pytest.mark.parametrize(
    "stranger", [one for one in STRANGERS if one is not roll_back], ids=lambda one: one.__name__
)
def test_what_others_do_during_a_commit_is_noticed(
    place: Make, stranger: Stranger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    it, model = filled(place)
    before_the_commit(monkeypatch, lambda: stranger(it, model))
    with caplog.at_level(logging.INFO, "penstock"):
        assert it.sink.merge(it.table, few(it, *CHANGED), it.key, it.commit(4))
    change(model)
    assert_rows(it, model)
    if stranger is not expire:
        assert "somebody else has changed it" in caplog.text
    small(it, 5, (3, "e", False, 10), (4, None, True, 10))
    model[3] = ("e", 10)
    del model[4]
    assert_rows(it, model)


def test_a_commit_during_which_the_table_is_rolled_back_fails(
    place: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    it, model = filled(place)
    before_the_commit(monkeypatch, lambda: roll_back(it, model))
    with pytest.raises(Exception, match="not an ancestor"):
        it.sink.merge(it.table, few(it, *CHANGED), it.key, it.commit(4))
    assert_rows(it, model)
    it.sink.open(it.table)  # what it has counts from here on
    small(it, 4, *CHANGED)
    change(model)
    assert_rows(it, model)


def test_a_file_that_the_index_forgets_during_a_look_up_is_looked_at_again(
    place: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have become live after the index was tidied for an earlier version of the table."""
    it, model = filled(place)
    is_ready, left = TableKeys.is_ready, [()]

    def forgetful(self: TableKeys[Any], live: Any) -> bool:
        found = is_ready(self, live)
        if found and left:
            self.index.tidy(left.pop())
        return found

    monkeypatch.setattr(TableKeys, "is_ready", forgetful)
    small(it, 4, *CHANGED)
    assert not left
    change(model)
    assert_rows(it, model)


def test_an_index_is_used_again_by_the_next_process(
    place: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it, model = filled(place)
    form = iceberg(it)
    first = form._small._indexes = indexes(tmp_path, form)
    small(it, 4, (1, "d", False, 4))
    assert indexes(tmp_path, form)._place() != tmp_path, "it is in use"
    first.close()
    read: list[str] = []
    cover = TableKeys.cover

    def covers(self: TableKeys[Any], files: list[Content], *known: Any) -> None:
        read.extend(file.location for file in files)
        cover(self, files, *known)

    monkeypatch.setattr(TableKeys, "cover", covers)
    form._small._indexes = indexes(tmp_path, form)
    small(it, 5, (1, "e", False, 5))
    assert len(read) == 1, "only its own file"
    assert_rows(it, model | {1: ("e", 5)})
    form._small._indexes.close()


def test_a_damaged_run_is_read_again(place: Make, tmp_path: Path) -> None:
    it, model = filled(place)
    form = iceberg(it)
    form._small._indexes = indexes(tmp_path, form)
    small(it, 4, (1, "d", False, 4))
    small(it, 5, (2, "d", False, 5))
    runs = list(tmp_path.rglob("*.run"))
    for run in runs:
        content = bytearray(run.read_bytes())
        content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
        with run.open("r+b") as file:
            file.write(content)
    small(it, 6, (1, "e", False, 6), (2, "e", False, 6))
    assert_rows(it, model | {1: ("e", 6), 2: ("e", 6)})
    form._small._indexes.close()


def test_while_a_large_index_is_built_rows_are_merged_by_files(
    place: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = place("iceberg").create()
    it.sink.append(it.table, it.latest(*[(n, "a", False, 1) for n in range(20)]), it.commit(1))
    monkeypatch.setattr(tables, "LOCAL_ROWS_MAX", 10)
    rows = replace(newer(it, (1, "b", False, 2)), kind=few(it, (1, "b", False, 2)).kind)
    assert it.sink.merge(it.table, rows, it.key, it.commit(2))
    assert SMALL not in summary(it)
    found = iceberg(it)._indexes.known(it.table)
    assert found is not None and found._building is not None
    found._building.result()
    small(it, 3, (1, "c", False, 3), (2, "c", False, 3))
    assert_rows(it, {n: ("c", 3) if n in (1, 2) else ("a", 1) for n in range(20)})


def test_where_the_disk_of_the_index_is_full_rows_are_merged_by_files(
    place: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    it = place("iceberg").create()

    def full(self: TableKeys[Any], files: list[Content]) -> None:
        raise OSError(28, "No space left on device")

    it.sink.append(it.table, it.latest((1, "a", False, 1), (2, "a", False, 1)), it.commit(1))
    monkeypatch.setattr(TableKeys, "cover", full)
    rows = replace(newer(it, (1, "b", False, 2)), kind=few(it, (1, "b", False, 2)).kind)
    with caplog.at_level(logging.INFO, "penstock"):
        assert it.sink.merge(it.table, rows, it.key, it.commit(2))
    assert_rows(it, {1: ("b", 2), 2: ("a", 1)})
    assert "it has no key index now" in caplog.text


def test_no_commit_of_a_live_table_has_equality_deletes(place: Make) -> None:
    it, model = filled(place)
    choose = random.Random(1)
    for epoch in range(4, 24):
        way = choose.choice(["small", "small", "files", "maintain", "truncate"])
        rows = [(n, f"{epoch}", choose.random() < 0.3, epoch) for n in choose.sample(range(25), 6)]
        if way == "maintain":
            iceberg(it)._maintenance.maintain(it.table)
            continue
        if way == "truncate":
            it.sink.truncate(it.table, it.commit(epoch), sequence=epoch)
            model.clear()
            continue
        it.sink.merge(it.table, (few if way == "small" else newer)(it, *rows), it.key, it.commit(epoch))
        for number, text, deleted, at in rows:
            model.pop(number, None)
            if not deleted:
                model[number] = (text, at)
    assert_rows(it, model)
    summaries = [one.summary() for one in target(it).snapshots()]
    assert {str(one.get("total-equality-deletes")) for one in summaries} == {"0"}
