"""What becomes of rows before they reach HBase: frames, row keys, time stamps, and which of them count."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from penstock.errors import TableError
from penstock.model.change import DELETED, PRESENT, SEQUENCE
from penstock.model.schema import TableId
from penstock.sinks.hbase import frames
from penstock.sinks.hbase.frames import Column, Frame, unpacked
from penstock.sinks.hbase.names import namespace_name, table_name
from penstock.sinks.hbase.options import HBaseOptions
from penstock.sinks.hbase.rows import compared, deletions, frame_of, without_deleted
from penstock.sinks.hbase.times import FIRST, NONE, SEQUENCE_MAX, revisions_of, sequences_of, time_of
from penstock.sinks.hbase.values import Form, row_keys
from penstock.sinks.rows import Incomplete

TABLE = TableId("shop", "orders")
TEXT, NATIVE = Form(), Form(native=True)


def batch(*rows: tuple[object, ...], present: bool = False) -> pa.RecordBatch:
    names = ["id", "a", "b", DELETED, SEQUENCE, *([PRESENT] if present else [])]
    kinds = [pa.int64(), pa.string(), pa.string(), pa.bool_(), pa.int64(), pa.string()]
    columns = list(zip(*rows, strict=True))
    arrays = [pa.array(one, kind) for one, kind in zip(columns, kinds, strict=False)]
    return pa.RecordBatch.from_arrays(arrays, names)


def acts(frame: Frame) -> list[int]:
    return [int(one) for one in frame.acts]


values = st.lists(st.one_of(st.none(), st.binary(max_size=40)), min_size=1, max_size=30)


@given(values, st.integers(1, 100), st.integers(0, 5))
def test_a_frame_that_is_cut_into_portions_and_packed_has_the_same_rows(
    held: list[bytes | None], bytes_max: int, start: int
) -> None:
    held = [*[b"before"] * start, *held]  # so that slices do not begin at 0
    column = Column(b"q", pa.array(held, pa.binary()).slice(start))
    keys = pa.array([b"k%d" % n for n in range(len(held))], pa.binary()).slice(start)
    times = np.arange(start, len(held), dtype=np.int64)
    whole = Frame(keys, times, np.full(len(times), frames.ADD, np.uint8), [column])
    found = [unpacked(part.packed()) for part in whole.portions(bytes_max, 7)]
    assert [one for part in found for one in part.keys.to_pylist()] == keys.to_pylist()
    assert [one for part in found for one in part.columns[0].values.to_pylist()] == held[start:]
    assert [int(one) for part in found for one in part.times] == times.tolist()
    assert all(part.columns[0].qualifier == b"q" and len(part) <= 7 for part in found)


def test_a_frame_has_the_layout_that_java_reads() -> None:
    column = Column(b"qq", pa.array([b"v", None], pa.binary()))
    frame = Frame(pa.array([b"k", b"key"], pa.binary()), np.array([5, 6]), np.array([1, 2]), [column])
    wanted = struct.pack("<iiqqbb", 2, 1, 5, 6, 1, 2) + struct.pack("<iii", 0, 1, 4) + b"kkey"
    wanted += struct.pack("<i", 2) + b"qq" + b"\1\0" + struct.pack("<iii", 0, 1, 1) + b"v"
    assert frame.packed() == wanted


def test_row_keys_are_texts_that_no_other_key_has() -> None:
    texts = pa.array(["a", "a|b", "a%7Cb", "", None, "%-"])
    numbers = pa.array([1, -2, 3, 4, 5, None], pa.int32())
    assert row_keys([numbers]).to_pylist() == [b"1", b"-2", b"3", b"4", b"5", b"%-"]
    one = row_keys([texts]).to_pylist()
    assert one == [b"a", b"a%7Cb", b"a%257Cb", b"%.", b"%-", b"%25-"]
    two = row_keys([texts, texts]).to_pylist()
    assert two[1] == b"a%7Cb|a%7Cb" and two[3] == b"|" and len({*one, *two}) == 12
    assert row_keys([pa.array([b"\x00|"]), pa.array([b""])]).to_pylist() == [b"007c|"]


def test_cells_are_texts_and_bytes_stay() -> None:
    day = pa.array([0], pa.timestamp("us", "UTC"))
    assert TEXT.cells(pa.array([True, None, False])).to_pylist() == [b"1", None, b"0"]
    assert TEXT.cells(pa.array([Decimal("1E-10")], pa.decimal128(20, 10))).to_pylist() == [b"0.0000000001"]
    assert TEXT.cells(day).to_pylist() == [b"1970-01-01 00:00:00.000000"]
    assert TEXT.cells(pa.array([b"\xff\x00"])).to_pylist() == [b"\xff\x00"]


def test_cells_in_capital_letters_are_refused_if_two_columns_have_the_same() -> None:
    form = Form(upper=True)
    assert [form.qualifier(one) for one in ("id", "é", SEQUENCE)] == [b"ID", "É".encode(), b"_sequence"]
    form.refuse_same(TABLE, ["a", "b"])
    TEXT.refuse_same(TABLE, ["straße", "STRASSE"])
    with pytest.raises(TableError, match="`straße` and `STRASSE`"):
        form.refuse_same(TABLE, ["straße", "STRASSE"])


def test_native_cells_are_numbers_as_java_writes_them_and_come_back() -> None:
    for kind, value, wanted in (
        (pa.bool_(), True, b"\xff"),
        (pa.int16(), -2, b"\xff\xfe"),
        (pa.int32(), 258, b"\0\0\1\2"),
        (pa.int64(), -(2**63), b"\x80" + bytes(7)),
        (pa.float32(), 1.5, struct.pack(">f", 1.5)),
        (pa.float64(), -0.1, struct.pack(">d", -0.1)),
        (pa.string(), "é", "é".encode()),
        (pa.decimal128(5, 2), Decimal("1.50"), b"1.50"),
        (pa.binary(), b"\0", b"\0"),
    ):
        column = pa.array([None, value, None], kind).slice(1)
        found = NATIVE.cells(column)
        assert found.to_pylist() == [wanted, None]
        assert NATIVE.values(found, kind).cast(kind).to_pylist() == [value, None]
    with pytest.raises(ValueError, match="number of bytes"):
        NATIVE.values(pa.array([b"17"]), pa.int32())


KEYS = st.tuples(
    st.one_of(st.none(), st.integers(-(2**62), 2**62)),
    st.text(st.characters(min_codepoint=0, max_codepoint=4), max_size=3),
    st.decimals(-(10**8), 10**8, places=2),
    st.floats(allow_nan=False),
    st.binary(max_size=3),
)


@given(st.lists(KEYS, min_size=2, max_size=20))
def test_ordered_keys_sort_as_their_values_and_no_two_are_the_same(keys: list[tuple[Any, ...]]) -> None:
    kinds = [pa.int64(), pa.string(), pa.decimal128(38, 2), pa.float64(), pa.binary()]
    columns = [pa.array(list(one), kind) for one, kind in zip(zip(*keys, strict=True), kinds, strict=True)]
    made = Form(ordered=True).row_keys(columns).to_pylist()

    def place(number: int) -> tuple[Any, ...]:
        first, second, third, fourth, fifth = keys[number]
        return (-(2**63) if first is None else first, second.encode(), third, fourth, fifth)

    numbers = range(len(keys))
    assert [place(n) for n in sorted(numbers, key=lambda n: made[n])] == sorted(place(n) for n in numbers)
    assert len(set(made)) == len({place(n) for n in numbers})


def test_ordered_keys_of_one_column_and_of_times_are_ordered_too() -> None:
    form = Form(ordered=True)
    texts = ["", "\0", "\0\0", "\1", "a", "a\0", "b"]
    found = form.row_keys([pa.array(texts)]).to_pylist()
    assert found == sorted(found) and len(set(found)) == len(texts) and all(found)
    times = pa.array([None, -5, 0, 7], pa.timestamp("us"))
    for column in (times, times.cast(pa.int64()).cast(pa.int32()).cast(pa.date32())):
        found = form.row_keys([column]).to_pylist()
        assert found == sorted(found) and found[0] == bytes(8)


def test_times_grow_with_sequences_and_then_with_revisions_and_no_clock_has_them() -> None:
    places = [(0, 0), (1, 0), (1, 1), (1, 1023), (2, 0), (SEQUENCE_MAX, 1023)]
    times = np.array([time_of(*one) for one in places])
    assert times.tolist() == sorted(times.tolist()) and times[0] > 2**61 and int(times[-1]) < 2**63 - 1
    assert sequences_of(times).tolist() == [one for one, _ in places]
    assert revisions_of(times).tolist() == [one for _, one in places]
    assert sequences_of(np.array([-1, 1_764_000_000_000, FIRST - 1])).tolist() == [NONE] * 3
    with pytest.raises(TableError, match="too long"):
        frame_of(TABLE, batch((1, "a", "b", False, SEQUENCE_MAX + 1)), ["id"], 0, None, TEXT)


def test_an_append_leaves_out_what_is_deleted() -> None:
    rows = batch((1, "a", None, False, 10), (2, None, None, True, 11))
    assert acts(without_deleted(frame_of(TABLE, rows, ["id"], 0, None, TEXT))) == [frames.ADD, frames.SKIP]


def test_only_rows_that_are_newer_count_and_one_that_is_there_gets_its_marker_again() -> None:
    rows = [(n, "a", None, deleted, 10) for n, deleted in enumerate([False, False, False, False, True, True])]
    frame = frame_of(TABLE, batch(*rows), ["id"], 3, None, TEXT)
    there = np.array([-1, time_of(9, 3), time_of(10, 2), time_of(11, 0), time_of(9, 0), time_of(11, 0)])
    found = compared(TABLE, frame, there, None)
    assert acts(found) == [
        frames.REPLACE, frames.REPLACE, frames.CLEAR, frames.SKIP, frames.DELETE, frames.SKIP,
    ]  # fmt: skip
    assert int(found.times[2]) == int(time_of(10, 2)), "the marker is below the cells that are there"


def test_a_row_that_lacks_columns_changes_one_that_is_there() -> None:
    rows = [
        (1, "A", None, False, 20, "111"),
        (2, "A", None, False, 20, "110"),
        (3, "A", "B", False, 20, None),
    ]
    incomplete = Incomplete({"id": 0, "a": 1, "b": 2}, target_is_complete=False)
    frame = frame_of(TABLE, batch(*rows, present=True), ["id"], 0, incomplete, TEXT)
    assert acts(frame) == [frames.CHANGE, frames.CHANGE, frames.REPLACE]
    states = frame.columns[2].states
    assert states is not None and states.tolist() == [frames.NULL, frames.ABSENT, frames.VALUE]
    there = np.array([-1, time_of(20, 0), -1])
    again = acts(compared(TABLE, frame, there, incomplete))
    assert again == [frames.SKIP, frames.CHANGE, frames.REPLACE], "what was interrupted is done again"
    with pytest.raises(TableError, match="at offset 20 has only some"):
        compared(TABLE, frame, there, Incomplete(incomplete.places, target_is_complete=True))


def test_older_rows_and_those_of_others_are_deleted_below_the_sequence() -> None:
    times = np.array([time_of(6, 9), time_of(7, 0), -1])
    frame = Frame(pa.array([b"a", b"b", b"c"]), times, np.zeros(3, np.uint8))
    found = deletions(frame, 7)
    assert found is not None and acts(found) == [frames.DELETE, frames.SKIP, frames.DELETE]
    assert time_of(6, 1023) == found.times[0] < time_of(7, 0)
    assert deletions(frame.sliced(0, 2), 6) is None


def test_names_that_hbase_does_not_allow_end_in_a_digest() -> None:
    assert namespace_name("shop_2") == "shop_2" and table_name("orders.x-1") == "orders.x-1"
    strange = ["a.b", "a b", "hbase", "日本", "", "x" * 65, "HBase"]
    assert len({namespace_name(one) for one in strange}) == len(strange)
    assert all(
        set(namespace_name(one)) <= set("abcdefghijklmnopqrstuvwxyzABHs_0123456789") for one in strange
    )
    assert len(table_name("é" * 64)) < 100 and not table_name(".").startswith(".")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"quorum": ""}, "`quorum` or by `site`"),
        ({"table": "{table}:x"}, "{table}"),
        ({"table": "a:b:{table}"}, "one colon"),
        ({"settings": {"ttl": 5}}, "no effect"),
        ({"tables": [{"match": "a.b", "settings": {"VERSIONS": 2}}]}, "`versions`"),
    ],
)
def test_options_that_cannot_work_are_refused(change: dict[str, object], named: str) -> None:
    with pytest.raises(ValidationError, match=named.replace("{", r"\{")):
        HBaseOptions.model_validate({"type": "hbase", "quorum": "zk", **change})


def test_a_name_without_a_namespace_is_in_the_default_one() -> None:
    def named(pattern: str) -> tuple[str, ...] | None:
        return HBaseOptions(type="hbase", quorum="zk", table=pattern).place(TABLE)

    assert named("{database}:{table}") == ("shop", "orders")
    assert named("{database}.{table}") == ("default", "shop.orders")
