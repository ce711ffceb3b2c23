"""Runs of a key index find what Arrow's own join finds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64
from tests.core.test_key_index import TYPES

from penstock._core import KeyRun, KeyRunWriter, merge_key_runs

SEED = 2**64 - 5

Rows = list[tuple[int, int]]


@st.composite
def cases(draw: st.DrawFn) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    chosen = [TYPES[name] for name in draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=3))]
    names = [f"c{number}" for number in range(len(chosen))]
    row = st.tuples(*[st.none() | values for _, values in chosen])

    def batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
        arrays = [pa.array([one[at] for one in rows], kind) for at, (kind, _) in enumerate(chosen)]
        return pa.RecordBatch.from_arrays(arrays, names)

    return batch(draw(st.lists(row, max_size=12))), batch(draw(st.lists(row, max_size=12)))


def write(path: Path, keys: pa.RecordBatch, file: int = 0, first_row: int = 0) -> str:
    writer = KeyRunWriter(str(path), SEED)
    writer.add(keys, file, first_row)
    writer.finish()
    return str(path)


def ids(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(numbers, pa.int64())})


def found(run: str, keys: pa.RecordBatch) -> list[tuple[int, int, int]]:
    return sorted(zip(*(column.to_pylist() for column in KeyRun(run).find(keys)), strict=True))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cases())
def test_it_finds_the_rows_that_a_join_finds(
    tmp_path: Path, case: tuple[pa.RecordBatch, pa.RecordBatch]
) -> None:
    rows, keys = case
    run = write(tmp_path / "run", rows, file=3)
    left = pa.table([*keys.columns, pa.array(range(len(keys)), pa.int64())], [*keys.schema.names, "key"])
    right = pa.table([*rows.columns, pa.array(range(len(rows)), pa.int64())], [*rows.schema.names, "row"])
    joined = left.join(right, rows.schema.names, join_type="inner")
    expected = sorted(zip(joined["key"].to_pylist(), joined["row"].to_pylist(), strict=True))
    assert found(run, keys) == [(key, 3, row) for key, row in expected]


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (pa.int8(), pa.int64()),
        (pa.int16(), pa.int32()),
        (pa.int32(), pa.int64()),
        (pa.float32(), pa.float64()),
        (pa.decimal128(5, 2), pa.decimal128(20, 2)),
        (pa.string(), pa.large_string()),
        (pa.binary(), pa.large_binary()),
    ],
    ids=str,
)
def test_a_key_is_found_after_its_column_was_widened(
    tmp_path: Path, narrow: pa.DataType, wide: pa.DataType
) -> None:
    values = pa.array(["1", "-3", "0", None]).cast(narrow)
    run = write(tmp_path / "run", pa.record_batch({"id": values}))
    again = pa.record_batch({"id": values.cast(wide)})
    assert found(run, again) == [(0, 0, 0), (1, 0, 1), (2, 0, 2)]


def test_a_merge_renumbers_files_and_drops_files_and_rows(tmp_path: Path) -> None:
    first = write(tmp_path / "first", ids(1, 2, 3), file=1)
    second = write(tmp_path / "second", ids(1, 2, 3), file=1)
    third = write(tmp_path / "third", ids(1, 4), file=2, first_row=2**32 - 2)
    merged = str(tmp_path / "merged")
    drop = {7: BitMap64([1]).serialize(), 2: BitMap64([2**32 - 1, 2**40]).serialize()}
    assert merge_key_runs([first, second, third], merged, [{1: 7}, {}, None], drop) == 3
    assert found(merged, ids(1, 2, 3, 4)) == [(0, 2, 2**32 - 2), (0, 7, 0), (2, 7, 2)]
    assert merge_key_runs([first, second], merged) == 6


def test_bitmaps_of_every_kind_are_understood(tmp_path: Path) -> None:
    """Roaring bitmaps store rows as arrays, bits or ranges."""
    rows = 300_000
    run = write(tmp_path / "run", ids(*range(rows)))
    dropped = BitMap64([5, 70_000]) | BitMap64(range(100_000, 140_000, 2)) | BitMap64(range(200_000, rows))
    for optimized in (False, True):
        if optimized:
            dropped.run_optimize()
        merged = str(tmp_path / "merged")
        assert merge_key_runs([run], merged, drop={0: dropped.serialize()}) == rows - len(dropped)
        kept = KeyRun(merged).find(ids(*range(rows)))[2]
        assert kept.to_pylist() == [row for row in range(rows) if row not in dropped]


def test_a_damaged_run_is_refused_by_name(tmp_path: Path) -> None:
    run = tmp_path / "a-run"
    write(run, ids(*range(1000)))
    whole = run.read_bytes()
    run.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match="a-run is not an intact key run"):
        KeyRun(str(run))
    run.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    opened = KeyRun(str(run))
    for read in (opened.verify, lambda: opened.find(ids(*range(1000)))):
        with pytest.raises(ValueError, match="a-run is not an intact key run: the checksum"):
            read()
    with pytest.raises(ValueError, match="a-run"):
        merge_key_runs([str(run)], str(tmp_path / "merged"))


def test_errors_of_the_disk_are_those_of_python(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        KeyRun(str(tmp_path / "missing"))
    writer = KeyRunWriter(str(tmp_path / "no folder" / "run"), SEED)
    writer.add(ids(1), 0, 0)
    with pytest.raises(FileNotFoundError, match="no folder"):
        writer.finish()
    with pytest.raises(ValueError, match="finished, or has failed"):
        writer.add(ids(1), 0, 0)


def test_what_cannot_be_indexed_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "run")
    with pytest.raises(ValueError, match="Struct"):
        KeyRunWriter(path, SEED).add(pa.record_batch({"s": pa.array([{"a": 1}])}), 0, 0)
    with pytest.raises(ValueError, match="int64"):
        KeyRunWriter(path, SEED).add_rows(ids(1), 0, pa.array(["x"]))
    with pytest.raises(ValueError, match="bitmap"):
        merge_key_runs([write(tmp_path / "run", ids(1))], path + "2", drop={0: b"\1\0\0\0\0\0\0\0x"})
    with pytest.raises(ValueError, match="one item for each run"):
        merge_key_runs([path], path + "2", [])


def test_threads_may_search_at_once(tmp_path: Path) -> None:
    run = KeyRun(write(tmp_path / "run", ids(*range(0, 100_000, 2))))
    keys = ids(*range(100_000))
    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(lambda _: len(run.find(keys)[0]), range(20)))
    assert counts == [50_000] * 20 and len(run) == 50_000 and run.seed == SEED


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "run", ids(1))
    run = KeyRun(path)
    (tmp_path / "run").unlink()
    for use in (lambda: run.find(ids(1)), run.verify):
        with pytest.raises(FileNotFoundError) as error:
            use()
        assert error.value.filename == path
