"""Small commits to Delta tables find the rows that they replace in the key index, whatever others do to the
table. Spark's own reading judges."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from tests.sinks.conftest import Place, column
from tests.sinks.lake.delta.test_files import delta, live_files, sql
from tests.sinks.lake.iceberg.test_small_commit import KEYS, few
from tests.sinks.lake.test_file_merge import by_files, files_of, newer

from penstock.errors import TableError
from penstock.sinks.base import Commit, Ours
from penstock.sinks.lake.delta import merge
from penstock.sinks.lake.delta.live import File, LiveFiles
from penstock.sinks.lake.index import replaced as replaced_rows
from penstock.sinks.lake.index import tables
from penstock.sinks.lake.index.tables import Indexes, TableKeys
from penstock.sinks.rows import ShardOf

Make = Callable[..., Place]
Model = dict[int, tuple[str, int]]


@pytest.fixture
def only_by_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is looked up by reading keys."""

    def never(*_: Any) -> Any:
        raise AssertionError("keys were read")

    monkeypatch.setattr(merge, "replaced", never)


def small(it: Place, epoch: int, *rows: tuple[Any, ...]) -> None:
    assert it.sink.merge(it.table, few(it, *rows), it.key, it.commit(epoch))
    assert by_files(it)


def filled(place: Make) -> tuple[Place, Model]:
    it = place("delta").create()
    it.sink.append(it.table, it.latest(*[(n, "a", False, 1) for n in range(20)]), it.commit(1))
    small(it, 2, *[(n, "b", False, 2) for n in range(0, 20, 3)])
    small(it, 3, *[(n, "c", False, 3) for n in range(0, 20, 4)])
    return it, {n: ("c", 3) if n % 4 == 0 else ("b", 2) if n % 3 == 0 else ("a", 1) for n in range(20)}


def assert_rows(it: Place, model: Model) -> None:
    assert it.rows() == sorted((n, *value) for n, value in model.items())


def compact(it: Place, model: Model) -> None:
    sql(it, "OPTIMIZE {}")


def purge(it: Place, model: Model) -> None:
    sql(it, "REORG TABLE {} APPLY (PURGE)")


def delete(it: Place, model: Model) -> None:
    sql(it, "DELETE FROM {} WHERE id IN (3, 5)")
    del model[3], model[5]


def delete_all(it: Place, model: Model) -> None:
    sql(it, "DELETE FROM {} WHERE true")
    model.clear()


def update(it: Place, model: Model) -> None:
    sql(it, "UPDATE {} SET name = 'theirs' WHERE id = 4")
    model[4] = ("theirs", model[4][1])


def insert(it: Place, model: Model) -> None:
    sql(it, "INSERT INTO {} VALUES (100, 'theirs', 3)")
    model[100] = ("theirs", 3)


def restore(it: Place, model: Model) -> None:
    version = int(it.sink.version(it.table)) - 1
    sql(it, f"RESTORE TABLE {{}} TO VERSION AS OF {version}")
    model.update({n: ("b", 2) if n % 3 == 0 else ("a", 1) for n in range(20)})


def vacuum(it: Place, model: Model) -> None:
    it.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        sql(it, "VACUUM {} RETAIN 0 HOURS")
    finally:
        it.spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")


Stranger = Callable[[Place, Model], None]
STRANGERS = [compact, purge, delete, delete_all, update, insert, vacuum]


def params(acts: Sequence[Any], *quick: Any) -> pytest.MarkDecorator:
    marked = [
        pytest.param(one, marks=() if one in quick else pytest.mark.slow, id=one.__name__) for one in acts
    ]
    return pytest.mark.parametrize("stranger", marked)


def restored_and_seen(it: Place, model: Model) -> None:
    restore(it, model)
    with pytest.raises(TableError, match="rolled back or replaced by somebody else"):
        it.sink.merge(it.table, few(it, *CHANGED), it.key, it.commit(4))


strangers = params([*STRANGERS, restored_and_seen], compact, restored_and_seen)
during = params(STRANGERS[:-1], insert)
"""A VACUUM that keeps nothing would remove the files of any commit that is under way."""

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


@strangers
def test_what_others_do_between_two_commits_is_noticed(
    place: Make, stranger: Stranger, only_by_index: None
) -> None:
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


def test_a_commit_during_which_the_table_is_restored_fails(
    place: Make, monkeypatch: pytest.MonkeyPatch, only_by_index: None
) -> None:
    it, model = filled(place)
    before_the_commit(monkeypatch, lambda: restore(it, model))
    with pytest.raises(Py4JJavaError, match="Concurrent"):
        it.sink.merge(it.table, few(it, *CHANGED), it.key, it.commit(4))
    assert_rows(it, model)
    with pytest.raises(TableError, match="rolled back"):
        it.sink.merge(it.table, few(it, *CHANGED), it.key, it.commit(4))


@pytest.mark.slow  # a stranger's `restored_and_seen` is quick
def test_a_restore_counts_if_it_undoes_commits_of_the_pipeline(place: Make) -> None:
    it, model = filled(place)
    delete(it, model)
    restored = int(it.sink.version(it.table)) - 1
    sql(it, f"RESTORE TABLE {{}} TO VERSION AS OF {restored}")
    found = it.sink.open(it.table)
    assert isinstance(found, Ours) and found.last_commit == it.commit(3), "it undoes what somebody else did"
    sql(it, f"RESTORE TABLE {{}} TO VERSION AS OF {restored - 1}")
    found = replace(it).sink.open(it.table)
    assert isinstance(found, Ours) and found.last_commit == it.commit(2), "also to the next process"
    sql(it, f"RESTORE TABLE {{}} TO VERSION AS OF {restored}")
    assert replace(it).sink.open(it.table).last_commit == it.commit(3), "it was brought back"
    sql(it, f"RESTORE TABLE {{}} TO VERSION AS OF {restored + 3}")
    assert replace(it).sink.open(it.table).last_commit == it.commit(2)
    small(it, 4, *[(n, "c", False, 4) for n in range(0, 20, 4)])
    assert it.sink.open(it.table).last_commit == it.commit(4)


@during
def test_what_others_do_during_a_commit_is_noticed(
    place: Make,
    stranger: Stranger,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    only_by_index: None,
) -> None:
    it, model = filled(place)
    before_the_commit(monkeypatch, lambda: stranger(it, model))
    with caplog.at_level(logging.INFO, "penstock"):
        assert it.sink.merge(it.table, few(it, *CHANGED), it.key, it.commit(4))
    change(model)
    assert_rows(it, model)
    assert "somebody else has changed it" in caplog.text
    small(it, 5, (3, "e", False, 10), (4, None, True, 10))
    model[3] = ("e", 10)
    del model[4]
    assert_rows(it, model)


def test_a_commit_that_somebody_else_has_made_meanwhile_is_refused(
    place: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    it, model = filled(place)
    other = replace(it)
    before_the_commit(monkeypatch, lambda: small(other, 4, *CHANGED))
    with pytest.raises(Py4JJavaError, match=r"(?i)concurrent"):
        it.sink.merge(it.table, few(it, *CHANGED), it.key, it.commit(4))
    change(model)
    assert_rows(it, model)
    assert not it.sink.merge(it.table, few(it, *CHANGED), it.key, it.commit(4)), "it is recorded"


def test_a_driver_that_was_replaced_meanwhile_adds_nothing(
    place: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    it, model = filled(place)
    present: list[set[str]] = []

    def fenced() -> None:
        other = replace(it)
        other.sink.begin(2)
        other.sink.fence(it.table)
        present.append(files_of(it))

    before_the_commit(monkeypatch, fenced)
    with pytest.raises(Exception, match=r"(?i)metadata|replaced|driver"):
        it.sink.merge(it.table, few(it, *CHANGED), it.key, it.commit(4))
    assert_rows(it, model)


def test_our_own_commits_are_known_without_asking_delta(
    place: Make, monkeypatch: pytest.MonkeyPatch, only_by_index: None
) -> None:
    it, model = filled(place)
    checksums = delta(it)._commits.checksums

    def never(snapshot: Any) -> Any:
        raise AssertionError("the table's files were read")

    with monkeypatch.context() as patch:
        patch.setattr(checksums, "files", never)
        for epoch in range(4, 8):
            small(it, epoch, (epoch, "z", False, epoch), (epoch + 1, None, True, epoch))
            model[epoch] = ("z", epoch)
            model.pop(epoch + 1, None)
    assert_rows(it, model)
    known = delta(it)._indexes.known(it.table)
    assert known is not None and known.live.newest is not None
    entries = {file["path"]: file.get("deletionVector") for file in live_files(it)}
    assert {
        one.location: one.entry.get("deletionVector") for one in known.live.newest.files.values()
    } == entries


def test_a_table_that_was_made_again_is_not_taken_for_the_old_one(place: Make, only_by_index: None) -> None:
    it, _ = filled(place)
    sql(it, "DROP TABLE {}")
    it.sink.format.remove(it.table)
    it.create()
    for epoch in range(1, 4):
        small(it, epoch, (1, f"{epoch}", False, epoch), (9, f"{epoch}", False, epoch))
    assert_rows(it, {1: ("3", 3), 9: ("3", 3)})


def test_an_index_is_used_again_by_the_next_process(
    place: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only_by_index: None
) -> None:
    it, model = filled(place)
    form = delta(it)

    def indexes() -> Indexes[LiveFiles]:
        return Indexes(
            tmp_path, lambda _: LiveFiles(form._commits.checksums), spark=it.spark, memory_max=2**20
        )

    first = form._small._indexes = indexes()
    small(it, 4, (1, "d", False, 4))
    first.close()
    read: list[str] = []
    cover = TableKeys.cover

    def covers(self: TableKeys[Any], files: list[File], *known: Any) -> None:
        read.extend(file.location for file in files)
        cover(self, files, *known)

    monkeypatch.setattr(TableKeys, "cover", covers)
    form._small._indexes = indexes()
    small(it, 5, (1, "e", False, 5))
    assert len(read) == 1, "only its own file"
    assert_rows(it, model | {1: ("e", 5)})
    form._small._indexes.close()


def test_while_a_large_index_is_built_keys_are_read(place: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    it = place("delta").create()
    for epoch in (1, 2, 3):
        rows = [(n, "a", False, 1) for n in range(10 * epoch - 10, 10 * epoch)]
        it.sink.append(it.table, it.latest(*rows), it.commit(epoch))
    monkeypatch.setattr(tables, "LOCAL_ROWS_MAX", 20)
    monkeypatch.setattr(tables, "BUILD_ROWS", 5)
    small(it, 4, (1, "b", False, 2))
    found = delta(it)._indexes.known(it.table)
    assert found is not None and found._building is not None
    found._building.result()
    assert len(found.index._runs) >= 3, "several threads have built it"
    small(it, 5, (1, "c", False, 3), (22, "c", False, 3))
    assert_rows(it, {n: ("c", 3) if n in (1, 22) else ("a", 1) for n in range(30)})


def test_turned_off_no_index_is_made(place: Make) -> None:
    it = place("delta", config={"key_index": False}).create()
    for epoch in (1, 2):
        small(it, epoch, (1, f"{epoch}", False, epoch))
    known = delta(it)._indexes.known(it.table)
    assert known is None or not known.index._files
    assert_rows(it, {1: ("2", 2)})


@pytest.mark.slow_for(*[one for one in KEYS if one not in ("decimal", "text")])
@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_type_are_found(place: Make, kind: str, only_by_index: None) -> None:
    arrow, values = KEYS[kind]
    it = place("delta", arrow=pa.schema([("id", arrow), ("name", pa.string())])).create()
    it.sink.append(it.table, it.latest(*[(value, "old", False, 1) for value in values]), it.commit(1))
    small(it, 2, *[(v, "new", n == 0, 5) for n, v in enumerate(values)])
    assert [row[1:] for row in it.rows()] == [("new", 5)] * 3


def test_a_key_that_was_widened_is_found_in_older_files(place: Make, only_by_index: None) -> None:
    it = place("delta", arrow=pa.schema([("id", pa.int32()), ("name", pa.string())])).create()
    it.sink.append(it.table, it.latest(*[(n, "a", False, 1) for n in (1, 2, 3)]), it.commit(1))
    small(it, 2, (3, "d", False, 2))
    it.evolve(3, column("id", pa.int64(), "id"), column("label", pa.string(), "name"))
    small(it, 4, (1, "b", False, 5), (2**40, "c", False, 6))
    assert it.rows() == [(1, "b", 5), (2, "a", 1), (3, "d", 2), (2**40, "c", 6)]


def test_rows_of_another_shard_with_the_same_key_stay(place: Make, only_by_index: None) -> None:
    it = place("delta", arrow=pa.schema([("id", pa.int64()), ("shard", pa.string())])).create()
    it.sink.append(it.table, it.latest(*[(n, one, False, 1) for n in (1, 2) for one in "ab"]), it.commit(1))
    for shard, at in (("a", 5), ("b", 6)):
        rows = few(it, (1, shard, True, at), (2, shard, False, at))
        commit = Commit(it.pipeline, 2, 0, shard)
        assert it.sink.merge(it.table, replace(rows, shard=ShardOf("shard", shard)), it.key, commit)
    assert it.rows() == [(2, "a", 5), (2, "b", 6)] and by_files(it)


def test_partitions_do_not_matter(place: Make, only_by_index: None) -> None:
    shapes = [{"match": "*.*", "partition_by": ["day"]}]
    it = place("delta", arrow=pa.schema([("id", pa.int64()), ("day", pa.int32())]), config={"tables": shapes})
    it.create()
    it.sink.append(it.table, it.latest(*[(n, n % 3, False, 1) for n in range(9)]), it.commit(1))
    small(it, 2, (1, 2, False, 5), (2, 0, False, 5), (3, None, True, 5))
    assert it.rows() == sorted(
        [(n, n % 3, 1) for n in range(9) if n not in (1, 2, 3)] + [(1, 2, 5), (2, 0, 5)]
    )


def test_rows_that_a_large_epoch_replaces_are_found_by_the_index(
    place: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaced_rows, "is_worth_it", lambda *_, **__: True)
    monkeypatch.setattr(replaced_rows, "BATCH_KEYS", 1)
    monkeypatch.setattr(replaced_rows, "deleted_rows", None)
    it, model = filled(place)
    for epoch in range(4, 10, 2):
        it.sink.merge(it.table, newer(it, (epoch, "l", False, epoch), (15, "l", False, epoch)), it.key,
                      it.commit(epoch))  # fmt: skip
        assert by_files(it)
        small(it, epoch + 1, (epoch + 1, "s", False, epoch))
        model |= {epoch: ("l", epoch), 15: ("l", epoch), epoch + 1: ("s", epoch)}
    assert_rows(it, model)
