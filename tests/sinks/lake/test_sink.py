"""What every merging sink promises: the same tests over Iceberg and Delta."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark import inheritable_thread_target
from tests.sinks.conftest import Place, both, column, iceberg_first

from penstock.errors import ConfigError, InternalError, TableError
from penstock.model.schema import Column, TableId, TableSchema
from penstock.sinks.base import Commit, Foreign, Missing, Ours

Make = Callable[..., Place]

also_in_conformance = pytest.mark.slow
"""A quick test of `tests/sinks/conformance` keeps the same promise."""


def state(place: Place) -> Ours:
    found = place.sink.open(place.table)
    assert isinstance(found, Ours), found
    return found


@also_in_conformance
@iceberg_first
def test_a_table_is_missing_until_created_then_ours_and_empty(place: Make, kind: str) -> None:
    it = place(kind)
    it.sink.check()
    assert it.sink.open(it.table) == Missing()
    it.create().create()
    assert state(it) == Ours(last_commit=None, columns=("id", "name"), empty=True)
    assert it.rows() == []


@pytest.mark.parametrize("kind", ["iceberg", "delta", "parquet"])
def test_a_table_whose_target_would_be_that_of_another_table_is_refused(place: Make, kind: str) -> None:
    it = place(kind, config={"namespace": f"one_for_all_{uuid.uuid4().hex[:8]}"})
    it.create().create()
    columns = tuple(Column(field.name, "int") for field in it.arrow)
    other = TableSchema(TableId("elsewhere", it.table.table), columns, it.key)
    with pytest.raises(TableError, match=f"is that of {it.table} already"):
        it.sink.create(other, it.arrow)
    if kind != "parquet":
        with pytest.raises(TableError, match=f"is that of {it.table} already"):
            it.sink.clear(other.table)
    assert isinstance(it.sink.open(it.table), Ours)


@also_in_conformance
@iceberg_first
def test_an_append_adds_live_rows_only_and_its_replay_changes_nothing(place: Make, kind: str) -> None:
    it = place(kind).create()
    frame = it.latest((1, "a", False, 10), (2, "b", False, 11), (3, None, True, 12))
    assert it.sink.append(it.table, frame, it.commit(1))
    assert not it.sink.append(it.table, frame, it.commit(1))
    assert it.rows() == [(1, "a", 10), (2, "b", 11)]
    assert state(it) == Ours(last_commit=it.commit(1), columns=("id", "name"), empty=False)


@also_in_conformance
@iceberg_first
def test_a_merge_inserts_updates_and_deletes_by_key(place: Make, kind: str) -> None:
    it = place(kind).create()
    it.sink.append(
        it.table, it.latest((1, "a", False, 10), (2, "b", False, 11), (3, "c", False, 12)), it.commit(1)
    )
    changes = it.latest((1, "A", False, 20), (2, None, True, 21), (4, "d", False, 22), (5, None, True, 23))
    assert it.sink.merge(it.table, changes, it.key, it.commit(2))
    assert it.rows() == [(1, "A", 20), (3, "c", 12), (4, "d", 22)]


@also_in_conformance
@iceberg_first
def test_an_older_or_equal_sequence_never_overwrites_nor_deletes(place: Make, kind: str) -> None:
    it = place(kind).create()
    it.sink.append(
        it.table, it.latest((1, "a", False, 10), (2, "b", False, 10), (3, "c", False, 10)), it.commit(1)
    )
    it.sink.merge(
        it.table,
        it.latest((1, "old", False, 9), (2, "b", True, 9), (3, "x", False, 10)),
        it.key,
        it.commit(2),
    )
    assert it.rows() == [(1, "a", 10), (2, "b", 10), (3, "c", 10)]
    assert state(it).last_commit == it.commit(2)


@also_in_conformance
@iceberg_first
def test_a_replayed_merge_changes_nothing_even_with_other_rows(place: Make, kind: str) -> None:
    it = place(kind).create()
    it.sink.append(it.table, it.latest((1, "a", False, 10)), it.commit(1))
    assert it.sink.merge(it.table, it.latest((1, "b", False, 20)), it.key, it.commit(2))
    assert not it.sink.merge(it.table, it.latest((1, "c", False, 30)), it.key, it.commit(2))
    assert not it.sink.append(it.table, it.latest((7, "c", False, 30)), it.commit(1))
    assert it.rows() == [(1, "b", 20)]


@also_in_conformance
@iceberg_first
def test_steps_of_one_epoch_are_commits_of_their_own_in_order(place: Make, kind: str) -> None:
    it = place(kind).create()
    assert it.sink.append(it.table, it.latest((1, "a", False, 10)), it.commit(5, 0))
    assert it.sink.truncate(it.table, it.commit(5, 1), sequence=15)
    assert it.sink.append(it.table, it.latest((2, "b", False, 20)), it.commit(5, 2))
    # killed here, before the epoch was noted: all of it runs again
    assert not it.sink.append(it.table, it.latest((1, "a", False, 10)), it.commit(5, 0))
    assert not it.sink.truncate(it.table, it.commit(5, 1), sequence=15)
    assert not it.sink.append(it.table, it.latest((2, "b", False, 20)), it.commit(5, 2))
    assert it.rows() == [(2, "b", 20)]
    assert state(it).last_commit == it.commit(5, 2)
    assert it.sink.merge(it.table, it.latest((2, "c", False, 30)), it.key, it.commit(6, 0))
    assert it.rows() == [(2, "c", 30)]


@also_in_conformance
@iceberg_first
def test_a_sink_opened_anew_finds_the_last_commit(place: Make, kind: str) -> None:
    it = place(kind).create()
    it.sink.append(it.table, it.latest((1, "a", False, 10)), it.commit(1))
    it.sink.merge(it.table, it.latest((1, "b", False, 20)), it.key, it.commit(2, 3))
    again = Place(it.spark, it.config, pipeline=it.pipeline)
    assert state(again).last_commit == it.commit(2, 3)
    assert not again.sink.merge(it.table, it.latest((1, "c", False, 30)), it.key, it.commit(2, 3))


@also_in_conformance
@iceberg_first
def test_writes_without_rows_are_recorded_too(place: Make, kind: str) -> None:
    it = place(kind).create()
    assert it.sink.append(it.table, it.latest(), it.commit(1))
    assert state(it).last_commit == it.commit(1)
    assert it.sink.merge(it.table, it.latest(), it.key, it.commit(2))
    assert state(it).last_commit == it.commit(2)
    assert it.sink.delete_older(it.table, 5, it.commit(3))
    assert it.sink.truncate(it.table, it.commit(4), sequence=9)
    assert state(it).last_commit == it.commit(4)
    assert state(it).empty


@also_in_conformance
@iceberg_first
def test_delete_older_removes_rows_below_the_sequence(place: Make, kind: str) -> None:
    it = place(kind).create()
    it.sink.append(it.table, it.latest(*[(n, "a", False, n) for n in range(10)]), it.commit(1))
    it.sink.append(it.table, it.latest((20, "a", False, 3)), it.commit(2))
    assert it.sink.delete_older(it.table, 7, it.commit(3))
    assert it.rows() == [(7, "a", 7), (8, "a", 8), (9, "a", 9)]
    assert not it.sink.delete_older(it.table, 9, it.commit(3))
    assert len(it.rows()) == 3


@also_in_conformance
@iceberg_first
def test_a_version_reads_as_it_was(place: Make, kind: str) -> None:
    it = place(kind).create()
    it.sink.append(it.table, it.latest((1, "a", False, 10)), it.commit(1))
    version = it.sink.version(it.table)
    assert version is not None
    it.sink.merge(it.table, it.latest((1, "b", False, 20)), it.key, it.commit(2))
    assert it.rows(version) == [(1, "a", 10)]
    assert it.rows() == [(1, "b", 20)]


KEYS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string(), ["", "a", "A", "ä", "a ", "'\"`\\", "日本", "a\x00b"]),
    (pa.binary(), [b"", b"\x00", b"\xff\xfe", b"a"]),
    (pa.decimal128(20, 0), [Decimal(0), Decimal(18446744073709551615), Decimal(-1)]),
    (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), None]),
    (pa.timestamp("us"), [datetime(1, 1, 1), datetime(2024, 1, 1, 0, 0, 0, 1), None]),
    (pa.float64(), [0.5, -1e300]),
    (pa.int16(), [-32768, 32767]),
]


@iceberg_first
def test_keys_of_each_type_are_told_apart(place: Make, kind: str) -> None:
    # All types in one key; each row differs from the first in one column only.
    arrow = pa.schema([*[pa.field(f"k{n}", kind_) for n, (kind_, _) in enumerate(KEYS)], ("v", pa.string())])
    it = place(kind, arrow=arrow, key=tuple(arrow.names[:-1])).create()
    first = tuple(values[0] for _, values in KEYS)
    keys = [first]
    for n, (_, values) in enumerate(KEYS):
        keys += [(*first[:n], value, *first[n + 1 :]) for value in values[1:]]
    it.sink.append(it.table, it.latest(*[(*key, "old", False, 1) for key in keys]), it.commit(1))
    changes = [(*key, f"new {n}", n == 0, 2) for n, key in enumerate(keys)]
    it.sink.merge(it.table, it.latest(*changes), it.key, it.commit(2))

    def plain(value: object) -> object:
        return bytes(value) if isinstance(value, bytearray) else value

    rows = it.sink.read(it.table).collect()
    found = {tuple(plain(value) for value in row[:-2]): row["v"] for row in rows}
    assert found == {key: f"new {n}" for n, key in enumerate(keys) if n > 0}
    assert len(rows) == len(found)


ODD_NAMES = [
    "a.b",
    "a b",
    "select",
    "it's",
    'dou"ble',
    "back`tick",
    "semi;colon,{}()=\n\t",
    "größe",
    "100%",
    "#1",
    "a:b",
    "x/y",
    "\\n",
]


@also_in_conformance
@iceberg_first
def test_columns_may_have_any_name(place: Make, kind: str) -> None:
    it = place(
        kind, arrow=pa.schema([(name, pa.string()) for name in ODD_NAMES]), key=("a.b", "back`tick")
    ).create()
    old, new = ["v"] * len(ODD_NAMES), ["v"] * len(ODD_NAMES)
    new[2] = "w"
    it.sink.append(it.table, it.latest((*old, False, 1)), it.commit(1))
    it.sink.merge(it.table, it.latest((*new, False, 2)), it.key, it.commit(2))
    kept = [column(name, pa.string(), name) for name in ODD_NAMES]
    it.evolve(3, *kept[:6], column("n.e w", pa.int32(), default="7"), *kept[6:])
    assert it.sink.read(it.table).columns == [*ODD_NAMES[:6], "n.e w", *ODD_NAMES[6:], "_sequence"]
    assert it.rows() == [(*new[:6], 7, *new[6:], 2)]


@also_in_conformance
@iceberg_first
@pytest.mark.parametrize(
    "name",
    [
        "it's `\\.b",
        *[pytest.param(one, marks=pytest.mark.slow) for one in ("x/y:z", "..", "日本 %20#1@0020=\n")],
    ],
)
def test_tables_and_databases_may_have_any_name(place: Make, kind: str, name: str) -> None:
    it = place(kind, table=TableId(name, name)).create()
    it.sink.append(it.table, it.latest((1, "a", False, 1)), it.commit(1))
    it.sink.merge(it.table, it.latest((1, "b", False, 2)), it.key, it.commit(2))
    assert state(it).last_commit == it.commit(2)
    assert it.rows() == [(1, "b", 2)]


@also_in_conformance
@iceberg_first
def test_a_column_with_a_name_of_ours_is_refused(place: Make, kind: str) -> None:
    with pytest.raises(TableError, match="_Sequence"):
        place(kind, arrow=pa.schema([("id", pa.int64()), ("_Sequence", pa.int64())])).create()


@both
def test_what_a_killed_process_began_to_make_is_made_anew(place: Make, kind: str) -> None:
    it = place(kind, table=TableId("half", "made")).create()
    assert it.config.path is not None
    if kind == "iceberg":
        [named] = it.config.path.glob("**/made/metadata/v1.metadata.json")
        (named.parent / "version-hint.text").unlink()
        named.rename(named.with_name(f"{uuid.uuid4()}.metadata.json"))
    else:
        [named] = it.config.path.glob("**/made/_delta_log/*0.json")
        named.rename(named.with_name(f".{named.name}.{uuid.uuid4()}.tmp"))
    for checksum in named.parent.glob(".*.crc"):
        checksum.unlink()
    assert isinstance(it.sink.open(it.table), Missing)
    it.create()
    it.sink.append(it.table, it.latest((1, "a", False, 1)), it.commit(1))
    assert it.rows() == [(1, "a", 1)]


@both
def test_a_target_that_cannot_be_opened_is_cleared_and_made_anew(place: Make, kind: str) -> None:
    it = place(kind, table=TableId("torn", "apart")).create()
    it.sink.append(it.table, it.latest((1, "a", False, 10)), it.commit(1))
    assert it.config.path is not None
    logs = [file for file in it.config.path.glob("**/apart/**/*.json*") if file.is_file()]
    assert logs
    for file in logs:
        file.write_bytes(b"{ torn")
    with pytest.raises(Exception):  # noqa: B017 (the file format's own)
        it.sink.open(it.table)
        it.rows()
    it.sink.clear(it.table)
    assert it.sink.open(it.table) == Missing()
    it.create()
    it.sink.append(it.table, it.latest((2, "b", False, 20)), it.commit(2))
    assert it.rows() == [(2, "b", 20)]
    it.sink.clear(it.table)
    it.sink.clear(it.table)
    assert it.sink.open(it.table) == Missing()


@also_in_conformance
@iceberg_first
def test_the_table_of_another_pipeline_is_not_cleared(place: Make, kind: str) -> None:
    it = place(kind).create()
    it.sink.append(it.table, it.latest((1, "a", False, 10)), it.commit(1))
    with pytest.raises(ConfigError, match="the table of pipeline"):
        Place(it.spark, it.config).sink.clear(it.table)
    assert it.rows() == [(1, "a", 10)]


@iceberg_first
def test_the_table_of_another_pipeline_is_foreign(place: Make, kind: str) -> None:
    it = place(kind).create()
    other = Place(it.spark, it.config)
    found = other.sink.open(it.table)
    assert isinstance(found, Foreign)
    with pytest.raises(ConfigError, match=it.pipeline) as raised:
        raise found.error(it.table)
    assert "sink.namespace" in raised.value.hint
    with pytest.raises(ConfigError, match="is taken"):
        Place(it.spark, it.config).create()


@also_in_conformance
@iceberg_first
def test_a_commit_of_another_pipeline_is_refused(place: Make, kind: str) -> None:
    it = place(kind).create()
    with pytest.raises(InternalError):
        it.sink.append(it.table, it.latest((1, "a", False, 1)), Commit("other", 1))
    assert it.rows() == []


@also_in_conformance
@iceberg_first
def test_several_tables_are_written_at_once_each_with_its_own_commits(place: Make, kind: str) -> None:
    it = place(kind)
    places = [
        Place(it.spark, it.config, table=TableId("shop", f"t{n}"), pipeline=it.pipeline) for n in range(6)
    ]

    def work(n: int) -> None:
        one = places[n]
        one.sink = it.sink
        one.create()
        one.sink.append(one.table, one.latest((n, "a", False, 1)), one.commit(1, n))
        for epoch in (2, 3):
            one.sink.merge(
                one.table, one.latest((n, f"e{epoch}", False, epoch)), one.key, one.commit(epoch, n)
            )

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(inheritable_thread_target(it.spark)(work), range(len(places))))
    for n, one in enumerate(places):
        assert one.rows() == [(n, "e3", 3)]
        assert state(one).last_commit == one.commit(3, n)


@iceberg_first
def test_the_key_may_have_several_columns(place: Make, kind: str) -> None:
    it = place(kind, key=("id", "name")).create()
    it.sink.append(it.table, it.latest((1, "a", False, 1), (1, "b", False, 1)), it.commit(1))
    it.sink.merge(it.table, it.latest((1, "b", True, 2), (2, "a", False, 2)), it.key, it.commit(2))
    assert it.rows() == [(1, "a", 1), (2, "a", 2)]


@iceberg_first
def test_schema_of_the_source_decides_nothing_the_arrow_schema_does(place: Make, kind: str) -> None:
    it = place(kind)
    layout = pa.schema([*it.arrow, ("_penstock_deleted", pa.bool_()), ("_sequence", pa.int64())])
    it.sink.create(TableSchema(it.table, (Column("id", "int"), Column("name", "text")), it.key), layout)
    assert it.sink.read(it.table).columns == ["id", "name", "_sequence"]


FILES = pa.schema(
    [
        ("id", pa.int64()),
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("int", pa.int32()),
        ("price", pa.decimal128(9, 2)),
        ("total", pa.decimal128(18, 4)),
        ("big", pa.decimal128(38, 10)),
        ("ratio", pa.float64()),
        ("part", pa.float32()),
        ("on", pa.bool_()),
        ("day", pa.date32()),
        ("local", pa.timestamp("us")),
        ("instant", pa.timestamp("us", "UTC")),
        ("text", pa.string()),
        ("bytes", pa.binary()),
    ]
)


def _row(number: int, sign: int) -> tuple[Any, ...]:
    return (
        number, sign * 127, sign * 32767, sign * 2147483647, Decimal("1234567.89") * sign,
        Decimal("99999999999999.9999") * sign,
        Decimal("9999999999999999999999999999.9999999999").copy_sign(Decimal(sign)),
        sign * 1.5e300, sign * 0.5, sign > 0, date(1970 + 50 * sign, 1, 2),
        datetime(2000 + 99 * sign, 2, 3, 4, 5, 6, 789012),
        datetime(2000 + 30 * sign, 2, 3, 4, 5, 6, 789012, tzinfo=timezone.utc),
        "zß水🦀" * 30 if sign > 0 else "", b"\x00\xff" * sign if sign > 0 else b"",
    )  # fmt: skip


@iceberg_first
def test_appended_values_come_back_as_they_were_and_are_found_by_every_column(place: Make, kind: str) -> None:
    it = place(kind, arrow=FILES).create()
    rows = [_row(1, 1), _row(2, -1), (3, *[None] * (len(FILES) - 1))]
    it.sink.append(it.table, it.latest(*[(*row, False, 7) for row in rows]), it.commit(1))
    it.spark.conf.set("spark.sql.session.timeZone", "UTC")
    expected = it.spark.createDataFrame(rows, it.sink.read(it.table).drop("_sequence").schema)
    stored = it.sink.read(it.table).drop("_sequence")
    assert stored.exceptAll(expected).count() == 0 and expected.exceptAll(stored).count() == 0
    lowest = expected.where("id = 2").collect()[0]
    for name in FILES.names if kind == "iceberg" else ():  # whose files have statistics of our making
        assert [row["id"] for row in stored.where(stored[name] == lowest[name]).collect()] == [2], name


@iceberg_first
def test_a_table_that_somebody_partitioned_is_still_appended_to(place: Make, kind: str) -> None:
    if kind == "delta":
        pytest.skip("Delta's partitions are set when a table is made")
    it = place(kind).create()
    name = it.sink.name(it.table)
    it.spark.sql(f"ALTER TABLE {name} ADD PARTITION FIELD bucket(4, id)")
    it.sink.append(it.table, it.latest(*[(n, "a", False, n) for n in range(20)]), it.commit(1))
    assert [row[0] for row in it.rows()] == list(range(20))
    assert not it.sink.append(it.table, it.latest((99, "b", False, 99)), it.commit(1))
