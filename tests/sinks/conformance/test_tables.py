"""What every sink that keeps tables promises, whatever it is made of. A new one is done when it passes."""

from __future__ import annotations

import datetime
import uuid
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark import inheritable_thread_target
from tests.lake_catalogs import HIVE
from tests.sinks.conformance.case import Case, column, new_table

from penstock.errors import ConfigError, InternalError, TableError
from penstock.model.plan import Move
from penstock.model.schema import TableId
from penstock.sinks.base import EvolvedColumn, Foreign, Missing, Ours, Readable, Scannable
from penstock.sinks.refusals import check_directory
from penstock.sinks.rows import Incomplete

INT, TEXT = pa.int32(), pa.string()

TAKE_EITHER = {"clickhouse"}
"""Sinks that keep either of two rows with one `_sequence`. In a pipeline, these are equal."""

over_delta = pytest.mark.slow_for("delta")
"""Tests of what Delta's format shares with Iceberg's, or has a quick test of its own for. Each takes Delta
several seconds."""


@over_delta
def test_a_target_is_missing_until_it_is_created_and_then_ours_and_empty(tables: Case) -> None:
    assert tables.sink.open(tables.table) == Missing()
    tables.create().create()
    assert tables.state() == Ours(last_commit=None, columns=("id", "name"), empty=True)
    assert tables.rows() == []


def test_a_table_lives_through_every_kind_of_write(tables: Case) -> None:
    it = tables.create()
    assert it.append(1, (1, "a", False, 10), (2, "b", False, 11))
    assert it.merge(2, (1, "A", False, 20), (2, None, True, 21), (3, "c", False, 22))
    assert it.rows() == [(1, "A", 20), (3, "c", 22)]
    changed = [column("id", pa.int64(), "id"), column("more", INT, default="7"), column("name", TEXT, "name")]
    assert it.evolve(3, *changed)
    it = it.with_columns(*changed)
    assert it.merge(4, (4, 8, "d", False, 40))
    assert it.rows() == [(1, 7, "A", 20), (3, 7, "c", 22), (4, 8, "d", 40)]
    assert it.truncate(5, 50)
    assert it.rows() == [] and it.state().last_commit == it.commit(5)


def test_present_rows_can_be_scanned_and_what_does_not_fit_is_refused(tables: Case) -> None:
    if not isinstance(tables.sink, Scannable):
        pytest.skip("it has older versions, or cannot be read back")
    it = tables.create()
    it.append(1, (1, "a", False, 10), (2, "b", False, 11), (3, "", False, 12))
    it.merge(2, (1, None, False, 20), (2, None, True, 21))
    sink = it.again().sink
    assert isinstance(sink, Scannable)
    with sink.scan() as scan:
        for _ in range(2):
            found = pa.Table.from_batches(scan.batches(it.table, it.arrow), it.arrow)
            assert sorted(found.to_pylist(), key=lambda row: int(row["id"])) == [
                {"id": 1, "name": None},
                {"id": 3, "name": ""},
            ]
        with pytest.raises(TableError, match="column name"):
            list(scan.batches(it.table, pa.schema([("name", INT)])))
        with pytest.raises(TableError, match="lacks the columns other"):
            list(scan.batches(it.table, pa.schema([("id", INT), ("other", INT)])))
        assert sum(batch.num_rows for batch in scan.batches(it.table, pa.schema([("id", INT)]))) == 2
        if scan.isolated:
            assert it.merge(3, (4, "d", False, 40))
            assert sum(batch.num_rows for batch in scan.batches(it.table, it.arrow)) == 2
    stranger = it.again(pipeline=str(uuid.uuid4())).sink
    assert isinstance(stranger, Scannable)
    with stranger.scan() as scan, pytest.raises(TableError):
        list(scan.batches(it.table, it.arrow))


# epochs -----------------------------------------------------------------------------------------------------


def test_epochs_that_are_done_again_change_nothing_even_with_other_rows(tables: Case) -> None:
    it = tables.create()
    assert it.append(1, (1, "a", False, 10), (2, "b", False, 11))
    assert it.merge(2, (1, "A", False, 20), (2, None, True, 21), (3, "c", False, 22))
    assert it.merge(3, (4, "d", False, 30))
    again = it.again()
    assert again.state().last_commit == it.commit(3)
    assert not again.append(1, (1, "a", False, 10), (2, "b", False, 11))
    assert not again.merge(2, (1, "x", False, 90), (7, "y", False, 91))
    assert not again.merge(3, (4, None, True, 95))
    assert again.rows() == [(1, "A", 20), (3, "c", 22), (4, "d", 30)]


@over_delta
def test_steps_of_an_epoch_count_one_by_one_and_in_their_order(tables: Case) -> None:
    it = tables.create()
    assert it.append(5, (1, "a", False, 10), step=0)
    assert it.truncate(5, 15, step=1)
    assert it.append(5, (2, "b", False, 20), step=2)
    assert not it.append(5, (1, "a", False, 10), step=0)
    assert not it.truncate(5, 15, step=1)
    assert not it.append(5, (2, "b", False, 20), step=2)
    assert not it.append(4, (9, "z", False, 20), step=7), "an epoch before those that are recorded"
    assert it.rows() == [(2, "b", 20)]
    assert it.state().last_commit == it.commit(5, 2)
    assert it.merge(6, (2, "c", False, 30))


@over_delta
def test_writes_that_change_no_row_are_recorded_too(tables: Case) -> None:
    it = tables.create()
    assert it.append(1)
    assert it.merge(2)
    assert it.tables.delete_older(it.table, 5, it.commit(3))
    assert it.truncate(4, 9)
    assert it.state().last_commit == it.commit(4) and it.state().empty
    assert not it.again().truncate(4, 9)


@over_delta
def test_tables_that_are_written_at_once_have_commits_of_their_own(tables: Case) -> None:
    cases = [tables.beside(new_table(f"t{number}")).create() for number in range(3)]

    def write(case: Case) -> None:
        case.append(1, (1, case.table.table, False, 1))
        case.merge(2, (1, case.table.table.upper(), False, 2))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(inheritable_thread_target(tables.spark)(write), cases))
    for case in cases:
        assert case.rows() == [(1, case.table.table.upper(), 2)]
        assert case.state().last_commit == case.commit(2)


# rows -------------------------------------------------------------------------------------------------------


def test_what_is_older_never_overwrites_nor_deletes(tables: Case) -> None:
    it = tables.create()
    it.append(1, (1, "a", False, 10), (2, "b", False, 10))
    it.merge(2, (1, "old", False, 9), (2, None, True, 9))
    assert it.rows() == [(1, "a", 10), (2, "b", 10)]


@over_delta
def test_what_has_the_same_sequence_is_the_same_change(tables: Case) -> None:
    it = tables.create()
    it.append(1, (1, "a", False, 10))
    it.merge(2, (1, "a" if it.kind.name in TAKE_EITHER else "other", False, 10))
    assert it.rows() == [(1, "a", 10)]


@over_delta
def test_deletes_remove_what_is_there_and_a_key_may_come_back(tables: Case) -> None:
    it = tables.create()
    it.append(1, (1, "a", False, 10), (2, "b", False, 11), (3, None, True, 12))
    assert it.rows() == [(1, "a", 10), (2, "b", 11)], "deleted rows are not appended"
    it.merge(2, (1, None, True, 20), (9, None, True, 21))
    assert it.rows() == [(2, "b", 11)]
    it.merge(3, (1, "again", False, 30))
    assert it.rows() == [(1, "again", 30), (2, "b", 11)]


@over_delta
def test_a_changed_key_is_a_delete_and_an_insert_of_one_write(tables: Case) -> None:
    it = tables.again(arrow=pa.schema([("a", INT), ("b", TEXT), ("v", TEXT)]), key=("a", "b")).create()
    it.append(1, (1, "x", "one", False, 10), (1, "y", "two", False, 11))
    it.merge(2, (1, "x", None, True, 20), (2, "x", "one", False, 21), (1, "Y", "three", False, 22))
    assert it.rows() == [(1, "Y", "three", 22), (1, "y", "two", 11), (2, "x", "one", 21)]


@over_delta
def test_null_is_a_value_of_every_type(tables: Case) -> None:
    kinds = [
        pa.bool_(),
        pa.int16(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.decimal128(30, 5),
        pa.string(),
    ]
    kinds += [pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")]
    fields = [pa.field("id", pa.int64()), *[pa.field(f"c{n}", kind) for n, kind in enumerate(kinds)]]
    it = tables.again(arrow=pa.schema(fields)).create()
    nulls = (None,) * len(kinds)
    it.append(1, (1, *nulls, False, 10))
    it.merge(2, (2, *nulls, False, 20), (1, *nulls, False, 21))
    assert it.rows() == [(1, *nulls, 21), (2, *nulls, 20)]


@over_delta
def test_rows_that_lack_columns_are_completed_by_the_target_or_left_out(tables: Case) -> None:
    it = tables.again(arrow=pa.schema([("id", pa.int64()), ("a", TEXT), ("b", TEXT)])).create()
    it.append(1, (1, "a", "b", False, 10), (2, "a", "b", False, 10))
    incomplete = Incomplete({"id": 0, "a": 1, "b": 2}, target_is_complete=False)
    rows = it.latest((1, "A", None, False, 20, "110"), (2, None, None, False, 21, None),
                     (3, "A", None, False, 22, "110"), incomplete=incomplete)  # fmt: skip
    try:
        assert it.tables.merge(it.table, rows, it.key, it.commit(2))
    except TableError as refused:  # a sink that cannot complete rows says what to do
        assert "whole rows" in refused.hint and it.state().last_commit == it.commit(1)
        return
    assert it.rows() == [(1, "A", "b", 20), (2, None, None, 21)]


@over_delta
def test_truncate_removes_every_row_once(tables: Case) -> None:
    it = tables.create()
    it.append(1, (1, "a", False, 10))
    assert it.truncate(2, 15)
    it.append(3, (2, "b", False, 20))
    assert not it.truncate(2, 15)
    assert it.rows() == [(2, "b", 20)]


@over_delta
def test_rows_that_a_new_snapshot_did_not_bring_go(tables: Case) -> None:
    it = tables.create()
    it.append(1, *[(number, "a", False, number) for number in range(10)])
    assert it.tables.delete_older(it.table, 7, it.commit(2))
    assert not it.tables.delete_older(it.table, 9, it.commit(2))
    assert it.rows() == [(7, "a", 7), (8, "a", 8), (9, "a", 9)]


@pytest.mark.slow
def test_a_value_may_have_16_mb(tables: Case) -> None:
    it = tables.again(arrow=pa.schema([("id", pa.int64()), ("value", pa.binary())])).create()
    large = bytes(range(256)) * (16 * 1024**2 // 256)
    it.append(1, (1, large, False, 10))
    it.merge(2, (2, large[::-1], False, 20))
    it.merge(3, (1, large[1:], False, 30))
    [(_, first, _), (_, second, _)] = sorted(it.rows())
    assert first == large[1:] and second == large[::-1]


@pytest.mark.slow
def test_a_table_may_have_1000_columns(tables: Case) -> None:
    fields = [pa.field("id", pa.int64()), *[pa.field(f"column_{n}", pa.int32()) for n in range(999)]]
    it = tables.again(arrow=pa.schema(fields)).create()
    it.append(1, (1, *range(999), False, 10))
    it.merge(2, (1, *range(1, 1000), False, 20), (2, *range(999), False, 21))
    assert it.rows() == [(1, *range(1, 1000), 20), (2, *range(999), 21)]


# names ------------------------------------------------------------------------------------------------------

NAMES = ["a.b", "`", "'\"", "日本 %20=#?*", "${env:HOME}", "\\", "-- ;", "é\u0301"]


@over_delta
def test_columns_may_have_any_name(tables: Case) -> None:
    it = tables.again(arrow=pa.schema([("id", pa.int64()), *[(name, TEXT) for name in NAMES]])).create()
    it.append(1, (1, *NAMES, False, 10))
    it.merge(2, (1, *reversed(NAMES), False, 20), (2, *NAMES, False, 21))
    assert it.rows() == [(1, *reversed(NAMES), 20), (2, *NAMES, 21)]
    assert it.state().columns == ("id", *NAMES)


@pytest.mark.parametrize("name", ["日本 %20=#?*", "a.b", "..", *[pytest.param(n, marks=pytest.mark.slow)
                                  for n in ("_x", "a/b", "\\", "`", "x" * 64, "metadata")]])  # fmt: skip
@over_delta
def test_tables_and_databases_may_have_any_name(tables: Case, name: str) -> None:
    table = TableId(f"{new_table().database}{name}", name)
    it = tables.again(table=table).create()
    it.append(1, (1, "a", False, 10))
    it.merge(2, (1, "b", False, 20))
    assert it.rows() == [(1, "b", 20)]
    assert it.sink.open(TableId(table.database + "x", name)) == Missing()


@over_delta
def test_tables_whose_names_differ_only_in_case_or_accents_share_no_target(
    tables: Case, pytestconfig: pytest.Config
) -> None:
    it = tables.again(table=TableId(tables.table.database, "orders")).create()
    it.append(1, (1, "a", False, 10))
    has_accents = pytestconfig.getoption("--lake-in") != HIVE  # its metastore refuses such names
    for name in ("Orders", "órders") if has_accents else ("Orders",):
        other = it.again(table=TableId(it.table.database, name))
        found = other.sink.open(other.table)
        if found == Missing():
            other.create()
            assert other.append(9, (2, "b", False, 20)) and other.rows() == [(2, "b", 20)]
            continue
        with pytest.raises(TableError, match=f"is that of {it.table} already") as refused:
            other.create()  # the product knows one table of these names
        assert "`to` of `transforms`" in refused.value.hint
        other.tables.drop(other.table)
    assert it.rows() == [(1, "a", 10)] and it.state().last_commit == it.commit(1)
    assert it.merge(2, (1, "c", False, 30)) and it.rows() == [(1, "c", 30)]


@pytest.mark.parametrize("name", ["_sequence", "_Penstock_x", "NAME"])
def test_columns_that_no_target_can_have_stop_the_table(tables: Case, name: str) -> None:
    with pytest.raises(TableError):
        tables.again(arrow=pa.schema([("id", pa.int64()), ("name", TEXT), (name, TEXT)])).create()


# definitions ------------------------------------------------------------------------------------------------


def test_columns_are_added_with_defaults_dropped_renamed_and_exchanged_in_one_step(tables: Case) -> None:
    it = tables.again(arrow=pa.schema([("id", pa.int64()), ("a", TEXT), ("b", TEXT), ("c", TEXT)])).create()
    it.append(1, (1, "a", "b", "c", False, 10))
    columns = [
        column("n", INT, default="7"),
        column("id", pa.int64(), "id"),
        column("a", TEXT, "b"),
        column("b", TEXT, "a"),
        column("m", TEXT),
    ]
    assert it.evolve(2, *columns)
    now = it.with_columns(*columns)
    assert now.rows() == [(7, 1, "b", "a", None, 10)]
    assert now.state().columns == ("n", "id", "a", "b", "m")
    assert not now.evolve(2, *columns), "it is recorded"
    now.merge(3, (8, 1, "B", "A", "m", False, 30))
    assert now.rows() == [(8, 1, "B", "A", "m", 30)]


@over_delta
def test_a_wider_type_holds_what_was_there_and_what_comes(tables: Case) -> None:
    it = tables.again(arrow=pa.schema([("id", pa.int64()), ("n", INT)])).create()
    it.append(1, (1, 5, False, 10))
    columns = [column("id", pa.int64(), "id"), column("n", pa.int64(), "n")]
    it.evolve(2, *columns)
    now = it.with_columns(*columns)
    now.merge(3, (2, 2**40, False, 20))
    assert now.rows() == [(1, 5, 10), (2, 2**40, 20)]


@over_delta
def test_what_the_source_converts_without_loss_has_its_value_in_the_new_type(tables: Case) -> None:
    """`sources/mysql/ddl/conversion.py` says that no value changes, so the rows are not read again."""
    day = datetime.date(2024, 2, 29)
    made = [
        ("date", pa.date32(), day, pa.timestamp("us"), datetime.datetime(2024, 2, 29)),
        ("bit", pa.bool_(), True, pa.int64(), 1),
        ("wide", pa.int64(), 2**40, pa.decimal128(20, 0), Decimal(2**40)),
        ("number", INT, -7, pa.decimal128(12, 2), Decimal("-7.00")),
        ("double", INT, 3, pa.float64(), 3.0),
        ("float", pa.float32(), 0.5, pa.float64(), 0.5),
    ]
    before = pa.schema([("id", pa.int64()), *[(name, kind) for name, kind, *_ in made]])
    it = tables.again(arrow=before).create()
    it.append(1, (1, *[value for _, _, value, *_ in made], False, 10), (2, *[None] * len(made), False, 10))
    new = [column("id", pa.int64(), "id"), *[column(name, kind, name) for name, _, _, kind, _ in made]]
    assert it.evolve(2, *new)
    wanted = [(1, *[value for *_, value in made], 10), (2, *[None] * len(made), 10)]
    assert it.with_columns(*new).rows() == wanted


def test_another_type_converts_the_rows_that_are_there(tables: Case) -> None:
    it = tables.again(arrow=pa.schema([("id", pa.int64()), ("v", TEXT)])).create()
    it.append(1, (1, "12", False, 10), (2, "no number", False, 11))
    it.evolve(2, column("id", pa.int64(), "id"), column("v", INT, "v"))
    assert it.rows() == [(1, 12, 10), (2, None, 11)]


def test_a_changed_key_finds_the_rows_that_are_there_or_has_the_table_read_again(tables: Case) -> None:
    fields = [pa.field("a", INT), pa.field("b", TEXT), pa.field("v", TEXT)]
    it = tables.again(arrow=pa.schema(fields), key=("b", "a")).create()
    it.append(1, (1, "x", "old", False, 10), (2, "y", "old", False, 11))

    def columns(*key: str) -> list[EvolvedColumn]:
        return [
            EvolvedColumn(one, one.name, key=key.index(one.name) + 1 if one.name in key else 0)
            for one in fields
        ]

    it.evolve(2, *columns("b", "a"), column("n", INT))
    now = it.again(arrow=pa.schema([*fields, pa.field("n", INT)]))
    now.merge(3, (1, "x", "new", 5, False, 20))
    expected = [(1, "x", "new", 5, 20), (2, "y", "old", None, 11)]
    assert now.rows() == expected, "its key is what it was, in its own order"
    fields.append(pa.field("n", INT))
    try:
        now.evolve(4, *columns("a"))
    except TableError as error:
        assert error.details["read_again"] and now.rows() == expected
        return
    now.again(key=("a",)).merge(5, (2, "z", "new", 6, False, 30))
    assert now.rows() == [expected[0], (2, "z", "new", 6, 30)]


# targets ----------------------------------------------------------------------------------------------------


def test_the_target_of_another_pipeline_is_not_touched(tables: Case) -> None:
    it = tables.create()
    it.append(1, (1, "a", False, 10))
    other = it.again(pipeline=str(uuid.uuid4()))
    found = other.sink.open(it.table)
    assert isinstance(found, Foreign) and it.pipeline in found.reason, "it names the pipeline that owns it"
    assert found.owner == it.pipeline and "penstock adopt" in found.cure
    for touch in (other.create, lambda: other.tables.clear(it.table)):
        with pytest.raises(ConfigError, match="is taken"):
            touch()
    other.tables.drop(it.table)
    with pytest.raises(InternalError, match="A commit of pipeline"):
        other.tables.append(it.table, it.latest((2, "b", False, 20)), it.commit(2))
    assert it.rows() == [(1, "a", 10)]


@over_delta
def test_the_next_run_takes_the_directory_as_the_sink_has_left_it(tables: Case) -> None:
    directory = tables.kind.example(tables.folder).directory
    if directory is None:
        pytest.skip("it has no directory of its own")
    it = tables.create()
    it.append(1, (1, "a", False, 10))
    it.merge(2, (1, "b", False, 20))
    it.tables.compact(it.table)
    it.sink.close()
    check_directory(directory)


@over_delta
def test_a_dropped_target_is_missing_and_can_be_made_anew(tables: Case) -> None:
    it = tables.create()
    it.append(1, (1, "a", False, 10))
    for remove in (it.tables.drop, it.tables.clear):
        remove(it.table)
        remove(it.table)
        assert it.sink.open(it.table) == Missing()
        it.create()
        assert it.state().last_commit is None and it.rows() == []
        assert it.append(2, (2, "b", False, 20))


@over_delta  # tests/sinks/lake/test_move.py is quick
def test_targets_that_can_be_moved_exchange_their_names(tables: Case) -> None:
    one = tables.create()
    identity = one.tables.identity(one.table)
    if identity is None:
        return  # then nobody asks for it
    two = one.again(table=new_table()).create()
    other = two.tables.identity(two.table)
    assert other is not None and other != identity
    one.append(1, (1, "one", False, 10))
    two.append(1, (2, "two", False, 11))
    moves = [Move(one.table, two.table, identity), Move(two.table, one.table, other)]
    for _ in range(2):
        assert one.tables.move(moves) == []
        assert (one.rows(), two.rows()) == ([(2, "two", 11)], [(1, "one", 10)])
    assert one.again().state().last_commit == one.commit(1)


@over_delta
def test_a_version_reads_as_it_was_and_one_that_is_held_stays(tables: Case) -> None:
    it = tables.create()
    it.append(1, (1, "a", False, 10))
    if not isinstance(it.sink, Readable):
        return  # then nobody asks it for a version
    version, held = it.sink.version(it.table), it.sink.hold(it.table)
    assert version is not None and held is not None
    it.merge(2, (1, "b", False, 20))
    it.tables.compact(it.table)
    for past in (version, held):
        assert it.rows(it.sink.read(it.table, past)) == [(1, "a", 10)]
    assert it.rows() == [(1, "b", 20)]


def test_compacting_changes_no_row_and_no_commit(tables: Case) -> None:
    it = tables.create()
    for epoch in range(1, 4):
        it.merge(epoch, (epoch, "a", False, epoch), (0, f"{epoch}", False, epoch * 10))
    before = it.rows()
    compacted = it.tables.compact(it.table)
    assert compacted.after <= compacted.before
    assert it.rows() == before and it.again().state().last_commit == it.commit(3)
