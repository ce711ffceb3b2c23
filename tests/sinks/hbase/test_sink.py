"""What the sink does with tables of a real HBase, beside what the conformance suite asks of all sinks."""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.sinks.conformance import registered, with_servers
from tests.sinks.conformance.case import Case, column, new_table

from penstock.errors import ConfigError, DriverReplaced, TableError, TransientError
from penstock.model.schema import TableId
from penstock.sinks.base import Fencing, Foreign, Missing
from penstock.sinks.hbase.cluster import Cluster
from penstock.sinks.hbase.probe import probe
from penstock.sinks.hbase.registration import HBASE
from penstock.sinks.hbase.sink import HBaseSink
from penstock.sinks.rows import Newer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TEXT = pa.string()
THREE = pa.schema([("id", pa.int64()), ("a", TEXT), ("b", TEXT)])

Make = Callable[..., Case]


@pytest.fixture
def case(spark: SparkSession, tmp_path: Path) -> Any:
    options = with_servers.options("hbase")
    with_servers.add_jars(spark, options)

    def make(**changes: Any) -> Case:
        own = options.model_copy(update=changes)
        kind = replace(HBASE, example=lambda folder: own)
        return Case(spark, kind, tmp_path, THREE)

    with registered.with_example():
        yield make


def sink_of(it: Case) -> HBaseSink:
    assert isinstance(it.sink, HBaseSink)
    return it.sink


def admin(it: Case, act: Callable[[Cluster, Any, Any], Any]) -> Any:
    """Does something with the table as its administrator would."""
    sink = sink_of(it)
    with sink._cluster._admin() as found:
        return act(sink._cluster, found, sink._name(it.table))


def compact(it: Case) -> None:
    """Writes all cells to files, and removes markers and what they hide."""

    def act(cluster: Cluster, found: Any, name: Any) -> None:
        begun = int(time.time() * 1000)
        found.flush(name)
        found.majorCompact(name)
        state = cluster._hbase.client.CompactionState
        deadline = time.monotonic() + 60
        while (
            found.getLastMajorCompactionTimestamp(name) < begun
            or found.getCompactionState(name) != state.NONE
        ):
            assert time.monotonic() < deadline
            time.sleep(0.05)

    admin(it, act)


def cells(it: Case, *, raw: bool = False) -> int:
    """How many cells the table has. `raw`: also those that are hidden, and the markers."""
    sink = sink_of(it)
    with sink._cluster.table(sink._name(it.table)) as table:
        rows = table.getScanner(sink._cluster.client.Scan().setRaw(raw).readAllVersions())
        try:
            return sum(int(row.size()) for row in iter(rows.next, None))
        finally:
            rows.close()


def newer(it: Case, epoch: int, *rows: Any) -> bool:
    """A merge of rows that are known to be newer."""
    made = it.latest(*rows)
    table = pa.Table.from_batches(list(made.frame.toArrow().to_batches()))
    kind = Newer(lambda: iter(table.to_batches()))
    return it.tables.merge(it.table, replace(made, kind=kind), it.key, it.commit(epoch))


def test_a_column_that_becomes_null_is_gone_and_stays_so_when_its_marker_is(case: Make) -> None:
    it = case().create()
    it.append(1, (1, "a", "b", False, 10), (2, "a", "b", False, 10))
    newer(it, 2, (1, "A", None, False, 20))
    assert it.rows() == [(1, "A", None, 20), (2, "a", "b", 10)]
    compact(it)
    it.merge(3, (1, "old", "old", False, 15))
    assert it.rows() == [(1, "A", None, 20), (2, "a", "b", 10)]


def test_a_row_without_nulls_is_replaced_without_a_marker(case: Make) -> None:
    it = case().create()
    it.append(1, (1, "a", "b", False, 10))
    newer(it, 2, (1, "A", "B", False, 20))
    assert cells(it, raw=True) - 2 * cells(it) == 0


def test_what_was_sent_before_a_later_change_and_comes_after_it_changes_nothing(case: Make) -> None:
    it = case().create()
    it.append(1, (1, "a", "b", False, 10), (2, "a", "b", False, 11), (3, "a", "b", False, 12))
    newer(it, 2, (1, "A", None, False, 20), (2, None, None, True, 21), (3, "A", "B", False, 22))
    late = it.again()
    newer(late, 3, (1, "late", "late", False, 15), (2, "late", "late", False, 16), (3, None, None, True, 17))
    assert it.rows() == [(1, "A", None, 20), (3, "A", "B", 22)]


def test_markers_that_the_table_keeps_hide_late_writes_after_a_compaction(case: Make) -> None:
    it = case(settings={"hbase.hstore.time.to.purge.deletes": "1"}).create()
    it.append(1, (1, "a", "b", False, 10))
    newer(it, 2, (1, None, None, True, 20))
    compact(it)
    newer(it.again(), 3, (1, "late", "late", False, 15))
    assert it.rows() == []


def test_a_definition_that_goes_back_and_forth_shows_the_values_of_now(case: Make) -> None:
    it = case().create()
    it.append(1, (1, "a", "b", False, 10))
    both = [column("id", pa.int64(), "id"), column("a", TEXT, "a")]
    for epoch in range(2, 12, 2):
        it.evolve(epoch, *both)
        it.evolve(epoch + 1, *both, column("b", TEXT, default=f"'{epoch}'"))
        assert it.rows() == [(1, "a", str(epoch), 10)]
    compact(it)
    assert it.rows() == [(1, "a", "10", 10)] and cells(it) == 4


def test_a_key_whose_text_changes_moves_its_row(case: Make) -> None:
    it = case().create()
    it.append(1, (7, "a", None, False, 10))
    decimals = [column("id", pa.decimal128(12, 2), "id"), column("a", TEXT, "a"), column("b", TEXT, "b")]
    it.evolve(2, *decimals)
    it = it.with_columns(*decimals)
    [(number, *others)] = it.rows()
    assert str(number) == "7.00" and others == ["a", None, 10]
    it.merge(3, (number, None, None, True, 20))
    assert it.rows() == []


def test_a_driver_that_was_replaced_is_refused(case: Make) -> None:
    it = case().create()
    first, second = it.sink, it.again().sink
    assert isinstance(first, Fencing) and isinstance(second, Fencing)
    first.begin(1)
    first.fence(it.table)
    it.append(1, (1, "a", "b", False, 10))
    second.begin(2)
    second.fence(it.table)
    for write in (lambda: it.merge(2, (1, "x", "x", False, 20)), lambda: it.truncate(2, 20)):
        with pytest.raises(DriverReplaced):
            write()
    with pytest.raises(DriverReplaced):
        first.fence(it.table)
    assert it.rows() == [(1, "a", "b", 10)]


def test_a_server_that_dies_is_waited_for(case: Make) -> None:
    it = case().create()
    it.append(1, (1, "a", "b", False, 10))
    with_servers.server("hbase").replace_region_server()
    deadline = time.monotonic() + 120
    while True:
        with contextlib.suppress(TransientError):  # as a pipeline does
            assert it.merge(2, (1, "A", "B", False, 20), (2, "a", "b", False, 21))
            break
        assert time.monotonic() < deadline
    assert it.rows() == [(1, "A", "B", 20), (2, "a", "b", 21)]


# forms ------------------------------------------------------------------------------------------------------


def test_native_cells_and_ordered_keys_keep_every_value_over_changed_definitions(case: Make) -> None:
    kinds = [pa.bool_(), pa.int16(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(30, 5)]
    kinds += [TEXT, pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")]
    fields = [pa.field("id", pa.int32()), *[pa.field(f"c{n}", kind) for n, kind in enumerate(kinds)]]
    made = case(values="native", key="ordered", uppercase=True)
    it = replace(made, arrow=pa.schema(fields)).create()
    assert isinstance(replace(case(), table=it.table, pipeline=it.pipeline).sink.open(it.table), Foreign)
    day, now = datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 1, 2, 3, 4)
    utc = now.replace(tzinfo=datetime.timezone.utc)
    some = (True, -2, 2**40, 0.5, -0.1, Decimal("1.50000"), "é", b"\0", day, now, utc)
    none = (None,) * len(kinds)
    it.append(1, (-1, *some, False, 10), (300, *none, False, 11), (7, *some, False, 12))
    it.merge(2, (7, *none, False, 20))
    with sink_of(it).scan() as scan:
        found = pa.Table.from_batches(scan.batches(it.table, it.arrow), it.arrow).to_pylist()
    wanted = [(-1, *some), (7, *none), (300, *none)]
    assert [tuple(row.values()) for row in found] == wanted, "in the order of the key"
    new = [column("id", pa.int64(), "id"), column("n", pa.decimal128(12, 1), "c1"), column("c2", TEXT, "c2")]
    it.evolve(3, *new)
    it = it.with_columns(*new)
    assert it.rows() == [(-1, Decimal("-2.0"), str(2**40), 10), (300, None, None, 11), (7, None, None, 20)]
    it.merge(4, (300, None, None, True, 40), (-1, None, "x", False, 41))
    assert it.rows() == [(-1, None, "x", 41), (7, None, None, 20)]


# tables -----------------------------------------------------------------------------------------------------


def test_an_empty_table_of_others_is_taken_if_that_is_wanted_and_keeps_its_settings(case: Make) -> None:
    table = new_table()
    it = replace(case(use_empty_tables=True), table=table)

    def make(cluster: Cluster, found: Any, name: Any) -> None:
        cluster.make_namespace(table.database)
        cluster.make_table(name, {}, b"d", {"BLOOMFILTER": "NONE"}, versions=4, splits=[b"3", b"6"])

    admin(it, make)
    assert isinstance(replace(case(), table=table).sink.open(table), Foreign)
    assert it.sink.open(table) == Missing()
    it.create()
    assert it.append(1, (1, "a", "b", False, 10), (5, "a", "b", False, 10)) and len(it.rows()) == 2
    it.truncate(2, 20)
    it.append(3, (1, "a", "b", False, 30))
    it.tables.clear(table)
    assert it.sink.open(table) == Missing()
    assert it.create().append(4, (2, "a", "b", False, 40)) and it.rows() == [(2, "a", "b", 40)]
    assert admin(it, lambda cluster, found, name: len(found.getRegions(name))) == 3
    family = admin(it, lambda cluster, found, name: found.getDescriptor(name).getColumnFamily(b"d"))
    assert family.getMaxVersions() == 4


def test_a_table_that_appears_while_it_is_made_again_is_the_same_one(
    case: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HBase goes on to make a table after its caller was killed."""
    it = case().create()
    again = it.again()
    monkeypatch.setattr(again.sink, "open", lambda table: Missing())
    again.create()
    monkeypatch.undo()
    assert it.append(1, (1, "a", "b", False, 10)) and again.rows() == [(1, "a", "b", 10)]
    assert again.state().last_commit == it.commit(1)


def test_a_table_of_others_with_rows_is_not_touched(case: Make) -> None:
    it = replace(case(use_empty_tables=True), table=new_table())
    stranger = it.other().create()
    stranger.append(1, (1, "a", "b", False, 10))
    name = sink_of(stranger)._options.full_name(stranger.table)

    def strip(cluster: Cluster, found: Any, own: Any) -> None:
        builder = cluster.client.TableDescriptorBuilder.newBuilder(found.getDescriptor(own))
        found.modifyTable(builder.removeValue("penstock.pipeline").build())

    admin(stranger, strip)
    found = it.sink.open(TableId(*name))
    assert isinstance(found, Foreign) and "with rows" in found.reason
    with pytest.raises(ConfigError, match="is taken"):
        replace(it, table=TableId(*name)).create()


def test_what_others_write_or_delete_with_the_present_time_changes_no_cell(case: Make) -> None:
    it = case().create()
    it.append(1, (1, "a", "b", False, 10), (2, "a", None, False, 11))
    sink = sink_of(it)
    with sink._cluster.table(sink._name(it.table)) as table:
        client = sink._cluster.client
        table.put(client.Put(b"1").addColumn(b"d", b"a", b"other"))
        table.delete(client.Delete(b"2"))
        table.put(client.Put(b"2").addColumn(b"d", b"b", b"other"))
        table.put(client.Put(b"9").addColumn(b"d", b"a", b"other"))
    it.merge(2, (2, "a", None, False, 20))
    it.tables.delete_older(it.table, 10, it.commit(3))
    assert it.rows() == [(1, "a", "b", 10), (2, "a", None, 20)]


def test_new_tables_have_the_splits_versions_and_settings_that_are_wanted(case: Make) -> None:
    entry = {"match": "*.*", "splits": ["2"], "versions": 3, "settings": {"BLOOMFILTER": "NONE"}}
    options = with_servers.options("hbase")
    made = type(options).model_validate({**options.model_dump(), "tables": [entry]})
    it = case(tables=made.tables).create()
    assert admin(it, lambda cluster, found, name: len(found.getRegions(name))) == 2
    family = admin(it, lambda cluster, found, name: found.getDescriptor(name).getColumnFamily(b"d"))
    assert (family.getMaxVersions(), str(family.getBloomFilterType())) == (3, "NONE")


def test_a_table_that_is_gone_or_was_made_by_somebody_else_parks_its_source(case: Make) -> None:
    it = case().create()
    it.append(1, (1, "a", "b", False, 10))
    admin(it, lambda cluster, found, name: cluster.remove(name))
    with pytest.raises(TableError, match="has lost what was written"):
        it.merge(2, (1, "A", "B", False, 20))
    assert it.again().sink.open(it.table) == Missing()


def test_a_cell_that_is_too_large_parks_its_table_and_the_error_has_no_value(case: Make) -> None:
    it = case().create()

    def limit(cluster: Cluster, found: Any, name: Any) -> None:
        cluster.mark(found.getDescriptor(name), {"hbase.server.keyvalue.maxsize": "1000"})

    admin(it, limit)
    with pytest.raises(TableError, match=r"DoNotRetry") as caught:
        it.append(1, (1, "secret" * 1000, None, False, 10))
    assert "secret" not in str(caught.value) and "hbase.server.keyvalue.maxsize" in caught.value.hint


def test_a_row_key_that_is_too_long_parks_its_table(case: Make) -> None:
    it = replace(case(), key=("a",)).create()
    with pytest.raises(TableError, match="IllegalArgumentException") as caught:
        it.append(1, (1, "secret" * 10_000, None, False, 10))
    assert "secret" not in str(caught.value)


def test_a_cluster_that_is_not_there_is_named_in_time(case: Make) -> None:
    [good] = probe(with_servers.options("hbase"))(case().spark, [])
    assert good.ok
    it = case(quorum="127.0.0.1:1", timeout=2000)
    [bad] = probe(it.kind.example(it.folder))(it.spark, [])
    assert not bad.ok and "sink.quorum" in bad.message
    with pytest.raises(ConfigError, match="cannot be used") as caught:
        it.sink.check()
    assert "sink.quorum" in caught.value.hint
