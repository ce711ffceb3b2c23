"""Data files that tasks write by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.sinks import files
from penstock.sinks.files import FileWriter
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
