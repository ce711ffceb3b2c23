"""Data files that tasks write by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.sinks import files
from penstock.sinks.files import FileWriter, MergeWriter, WrittenFile, side_by_side, with_keys
from penstock.store.files import Folder

SCHEMA = pa.schema([("id", pa.int64())])


def test_a_task_that_fails_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ROW_GROUP_BYTES", 1)
    monkeypatch.setattr(files, "FILE_BYTES_MAX", 100)
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2])], schema=SCHEMA)

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch
        yield batch
        assert len(list(tmp_path.iterdir())) >= 1
        raise OSError("the log cannot be read")

    writer = FileWriter(Folder.local(tmp_path), SCHEMA)
    with pytest.raises(OSError, match="cannot be read"):
        list(writer.files(batches()))
    assert list(tmp_path.iterdir()) == []
    assert len(list(writer.files([batch, batch]))) == len(list(tmp_path.iterdir())) == 2


class FullFile:
    """A file whose store fails at its first row group."""

    closed = False

    def __init__(self) -> None:
        self._written = 0

    def write(self, data: bytes) -> int:
        self._written += len(data)
        if self._written > 4:  # the head of a Parquet file
            raise OSError("the store does not answer")
        return len(data)

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        pass


def test_the_error_of_the_store_is_the_error_of_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder.local(tmp_path)
    monkeypatch.setattr(type(folder.files), "create", lambda files, location: nullcontext(FullFile()))
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2])], schema=SCHEMA)
    with pytest.raises(OSError, match="does not answer"):
        list(FileWriter(folder, SCHEMA).files([batch]))


EVERY = pa.schema([
    ("b", pa.bool_()), ("i", pa.int32()), ("l", pa.int64()), ("f", pa.float32()), ("d", pa.float64()),
    ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("t", pa.string()), ("raw", pa.binary()),
    ("short", pa.decimal128(9, 2)), ("middle", pa.decimal128(18, 3)), ("wide", pa.decimal128(38, 4)),
])  # fmt: skip
NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone.utc)


def every(number: int, text: str) -> tuple[object, ...]:
    money = Decimal(number) * Decimal("1.01")
    return (number % 2 == 0, number, number * 10**12, number / 2, number / 3, date(2026, 1, 1 + abs(number)),
            NOW, text, text.encode(), round(money, 2), round(money, 3), money * 10**20)  # fmt: skip


def batch_of(*rows: tuple[object, ...] | None) -> pa.RecordBatch:
    values = [
        dict.fromkeys(EVERY.names) if row is None else dict(zip(EVERY.names, row, strict=True))
        for row in rows
    ]
    return pa.RecordBatch.from_pylist(values, EVERY)


def test_a_file_is_known_without_reading_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ROW_GROUP_BYTES", 1)
    writer = FileWriter(Folder.local(tmp_path), EVERY)
    (file,) = writer.files(
        [batch_of(every(-7, "b"), None), batch_of(None, None), batch_of(every(3, "é" * 200))]
    )
    footer = pq.read_metadata(file.location)
    assert (file.size, file.rows) == (Path(file.location).stat().st_size, 5)
    assert file.row_groups == tuple(
        footer.row_group(place).column(0).dictionary_page_offset
        or footer.row_group(place).column(0).data_page_offset
        for place in range(3)
    )
    stats = dict(zip(EVERY.names, file.columns, strict=True))
    assert {(one.nulls, one.values) for one in file.columns} == {(3, 5)}
    assert sum(one.bytes for one in file.columns) == sum(
        footer.row_group(group).column(column).total_compressed_size
        for group in range(3) for column in range(len(EVERY))
    )  # fmt: skip
    assert (stats["i"].least, stats["i"].greatest) == (-7, 3)
    assert (stats["short"].least, stats["short"].greatest) == (-707, 303)
    assert (stats["middle"].least, stats["middle"].greatest) == (-7070, 3030)
    assert (stats["wide"].least, stats["wide"].greatest) == (-707 * 10**22, 303 * 10**22)
    assert (stats["t"].least, stats["t"].greatest) == (b"b", None), "too long to be remembered"
    assert stats["b"].least is None
    assert WrittenFile.from_row(*file.to_row()) == file, "as a task sends it"


def test_a_column_of_nulls_has_no_bounds(tmp_path: Path) -> None:
    (file,) = FileWriter(Folder.local(tmp_path), EVERY).files([batch_of(None, None)])
    assert {(one.nulls, one.least, one.greatest) for one in file.columns} == {(2, None, None)}


def test_a_key_with_null_leaves_no_files(tmp_path: Path) -> None:
    rows = FileWriter(Folder.local(tmp_path), EVERY)
    keys = FileWriter(Folder.local(tmp_path), pa.schema([EVERY.field("l")]))
    writer = MergeWriter(rows, keys)
    assert writer.files([batch_of(every(1, "a")), batch_of(None)]) is None
    assert list(tmp_path.iterdir()) == []
    (answer,) = writer([batch_of(None)])
    assert answer.to_pylist() == [{"location": "", "size": 0, "stats": "", "holds": "null"}]
    found = writer.files([batch_of(every(1, "a"), every(2, "b"))])
    assert found is not None and [len(found.rows), len(found.keys)] == [1, 1]
    assert pq.read_table(found.keys[0].location)["l"].to_pylist() == [10**12, 2 * 10**12]
    writer.remove(found)
    assert list(tmp_path.iterdir()) == []


def test_of_files_written_side_by_side_none_is_left_if_one_fails(tmp_path: Path) -> None:
    writer = FileWriter(Folder.local(tmp_path), SCHEMA)
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2])], schema=SCHEMA)

    def failing() -> list[WrittenFile]:
        raise OSError("the disk is full")

    def good() -> list[WrittenFile]:
        return list(writer.files([batch]))

    for writes in ([good, failing], [failing, good], [good, failing, good]):
        with pytest.raises(OSError, match="disk is full"):
            side_by_side(writer.folder.files, writes, threads=2)
        assert list(tmp_path.iterdir()) == []
    found = side_by_side(writer.folder.files, [good, list, good], threads=2)
    assert [len(files) for files in found] == [1, 0, 1] and len(list(tmp_path.iterdir())) == 2


def test_only_columns_with_few_values_get_a_dictionary(tmp_path: Path) -> None:
    """Elsewhere it is larger than the values, and costs a hash for each of them."""
    rows = 20_000
    fields = pa.schema([("id", pa.int64()), ("state", pa.string())])
    columns = [pa.array(range(rows)), pa.array([f"state {number % 5}" for number in range(rows)])]
    [file] = FileWriter(Folder.local(tmp_path), fields).files([pa.record_batch(columns, fields)])
    group = pq.read_metadata(file.location).row_group(0)
    numbers, states = (group.column(place) for place in range(2))
    assert numbers.total_uncompressed_size < 1.1 * 8 * rows
    assert states.total_uncompressed_size < 0.5 * rows


def test_keys_of_each_file_are_known_without_reading_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are in several files, some of them are deleted, and the key has another type in the files."""
    monkeypatch.setattr(files, "ROW_GROUP_BYTES", 2000)
    monkeypatch.setattr(files, "FILE_BYTES_MAX", 3000)
    fields = pa.schema([pa.field("a", pa.string()), pa.field("b", pa.int64())])
    rows = FileWriter(Folder.local(tmp_path), fields, sources=("text", "number"), compression="none")
    keys = FileWriter(Folder.local(tmp_path), pa.schema([fields.field("b")]), sources=("number",))
    batches = []
    for start in range(0, 1000, 100):
        numbers = range(start, start + 100)
        columns = [
            pa.array([f"text {number}" for number in numbers]), pa.array(numbers, pa.int32()),
            pa.array([number % 3 == 0 or 400 <= number < 500 for number in numbers]),
        ]  # fmt: skip
        batches.append(pa.RecordBatch.from_arrays(columns, ["text", "number", "_penstock_deleted"]))
    found = with_keys(rows, keys, batches)
    assert found is not None and len(found.files) > 2
    known = found.by_file(keys)
    assert list(known) == [file.location for file in found.files]
    for location, some in known.items():
        assert pa.Table.from_batches(some, keys.fields) == pq.read_table(location, columns=["b"])
    everything = [number for batch in found.all_keys(keys) for number in batch["number"].to_pylist()]
    assert everything == list(range(1000)), "also those of deleted rows"
    none_left = with_keys(rows, keys, [batches[4]])
    assert none_left is not None and none_left.by_file(keys) == {} and none_left.files == []
