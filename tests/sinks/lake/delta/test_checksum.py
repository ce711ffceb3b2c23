"""What a Delta table's checksum files tell saves Spark jobs, and says what Delta itself finds in its log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.conftest import spark_jobs
from tests.sinks.conftest import Place
from tests.sinks.lake.iceberg.test_small_commit import few

from penstock.sinks.lake.delta.checksum import Checksums
from penstock.sinks.lake.delta.local import LocalDelta

Make = Callable[..., Place]

OTHERS = 100
"""Applications whose transactions a checksum holds at most."""


def delta(it: Place) -> LocalDelta:
    assert isinstance(it.sink.format, LocalDelta)
    return it.sink.format


def snapshot(it: Place) -> Any:
    return delta(it).load(it.table)


def asked(it: Place) -> Any:
    """The snapshot as it is to somebody who finds no checksum file."""
    for file in (delta(it).path(it.table) / "_delta_log").glob("*.crc"):
        file.unlink()
    delta(it)._forget_paths()
    found = snapshot(it)
    assert found.checksumOpt().isEmpty()
    return found


def grown(it: Place) -> Place:
    """With rows of three commits, of which the last two took some from the first."""
    it.sink.append(it.table, few(it, *[(n, f"a{n}", False, 1) for n in range(9)]), it.commit(1))
    for epoch in (2, 3):
        rows = few(it, (epoch, "b", False, epoch), (9 - epoch, None, True, epoch))
        it.sink.merge(it.table, rows, it.key, it.commit(epoch))
    return it


@contextmanager
def setting(it: Place, name: str, value: str) -> Iterator[None]:
    before = it.spark.conf.get(name, None)
    it.spark.conf.set(name, value)
    try:
        yield
    finally:
        it.spark.conf.unset(name) if before is None else it.spark.conf.set(name, before)


def told(files: Any) -> list[dict[str, Any]]:
    """`dataChange` is about the commit by which a file came, not about the file."""
    kept = [{name: value for name, value in file.items() if name != "dataChange"} for file in files]
    return sorted(kept, key=lambda file: str(file["path"]))


def test_small_epochs_of_a_new_table_take_no_spark_job(place: Make) -> None:
    it = place("delta").create()
    before = spark_jobs(it.spark)
    grown(it)
    assert it.sink.last_commit(it.table, "") == it.commit(3)
    assert spark_jobs(it.spark) == before
    assert it.rows() == [(n, "b" if n in (2, 3) else f"a{n}", 3 if n == 3 else 2 if n == 2 else 1)
                         for n in (0, 1, 2, 3, 4, 5, 8)]  # fmt: skip
    assert spark_jobs(it.spark) > before, "what counts jobs sees them"


def test_the_files_are_those_that_delta_finds_in_its_log(place: Make) -> None:
    it = grown(place("delta").create())
    checksums, seen = Checksums(it.spark), snapshot(it)
    by_checksum = told(checksums.files(seen))
    by_log = told(checksums.files(asked(it)))
    assert by_checksum == by_log
    assert [file["deletionVector"]["cardinality"] for file in by_log if "deletionVector" in file] == [4]
    assert not checksums.is_empty(seen) and not checksums.is_empty(snapshot(it))


def test_without_a_checksum_a_commit_is_still_known(place: Make) -> None:
    it = grown(place("delta").create())
    asked(it)
    assert it.sink.last_commit(it.table, "") == it.commit(3)
    again = few(it, (1, "again", False, 9))
    assert not it.sink.merge(it.table, again, it.key, it.commit(3))
    assert it.sink.merge(it.table, again, it.key, it.commit(4))
    assert (1, "again", 9) in it.rows()


def test_a_table_without_files_is_empty_with_and_without_a_checksum(place: Make) -> None:
    it = place("delta").create()
    checksums = Checksums(it.spark)
    assert checksums.is_empty(snapshot(it)) and checksums.is_empty(asked(it))


def test_transactions_that_a_checksum_does_not_hold_are_asked_for(place: Make) -> None:
    """It holds none where they are many, as of a target that many source tables have together."""
    it = grown(place("delta").create())
    form = delta(it)
    operation = form._commits._update(it.commit(4))
    others = [{"txn": {"appId": f"other-{n}", "version": n}} for n in range(OTHERS)]
    form._commits.end(form._commits.begin(snapshot(it)), None, operation, others)
    assert snapshot(it).checksumOpt().get().setTransactions().isEmpty()
    assert it.sink.last_commit(it.table, "") == it.commit(3)
    assert Checksums(it.spark).transaction(snapshot(it), "other-7") == 7
    assert Checksums(it.spark).transaction(snapshot(it), "nobody") is None


def test_transactions_that_may_be_forgotten_are_asked_for(place: Make) -> None:
    it = grown(place("delta").create())
    name = "delta.setTransactionRetentionDuration"
    delta(it).set_property(it.table, name, "interval 1 days")
    before = spark_jobs(it.spark)
    assert it.sink.last_commit(it.table, "") == it.commit(3)
    assert spark_jobs(it.spark) > before, "by Delta, which knows what is too old"


def test_a_thread_without_a_session_may_ask_for_them(place: Make) -> None:
    """As that of a pipeline's loop, when a table is unparked after a RESTORE."""
    it = grown(place("delta").create())
    newest = snapshot(it).version()
    for version in (newest - 1, newest):
        it.spark.sql(f"RESTORE TABLE {it.sink.name(it.table)} TO VERSION AS OF {version}")
    delta(it)._forget_paths()
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(replace(it).sink.open, it.table).result()
    assert found.last_commit == it.commit(3)


@pytest.mark.parametrize("most", ["1", pytest.param("500", marks=pytest.mark.slow)])
def test_a_table_of_more_files_than_its_checksum_lists_is_merged_all_the_same(place: Make, most: str) -> None:
    it = place("delta").create()
    with setting(it, "spark.databricks.delta.allFilesInCrc.thresholdNumFiles", most):
        grown(it)
        listed = snapshot(it).checksumOpt().get().allFiles().isDefined()
        assert listed == (most == "500")
    assert len(it.rows()) == 7
