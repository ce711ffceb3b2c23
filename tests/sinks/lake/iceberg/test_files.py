"""What Iceberg is told of the files that Penstock writes itself, beside what Iceberg reads from them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.conftest import Place

from penstock.sinks.files import WrittenFile
from penstock.sinks.lake.access import Access
from penstock.sinks.lake.iceberg.files import Classes, described, file_writer

Make = Callable[..., Place]

EVERY = pa.schema([
    ("b", pa.bool_()), ("i", pa.int32()), ("l", pa.int64()), ("f", pa.float32()), ("d", pa.float64()),
    ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("plain", pa.timestamp("us")),
    ("t", pa.string()), ("raw", pa.binary()),
    ("short", pa.decimal128(9, 2)), ("middle", pa.decimal128(18, 3)), ("wide", pa.decimal128(38, 4)),
])  # fmt: skip
NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone.utc)
ROWS = [
    (True, -7, -(10**14), -0.0, 1 / 3, date(1, 1, 1), NOW, NOW.replace(tzinfo=None), "b", b"\xff",
     Decimal("-1.28"), Decimal("0.127"), Decimal(-(10**30))),
    (False, 2**31 - 1, 2**63 - 1, 1.5, -1e300, date(9999, 12, 31), NOW.replace(year=1000),
     datetime(2026, 1, 1), "é" * 40, b"", Decimal("1.28"), Decimal("-0.129"), Decimal(2**90)),
    (None,) * 13,
]  # fmt: skip


def described_by_iceberg(classes: Classes, target: Any, file: WrittenFile) -> dict[str, Any]:
    jvm = classes._jvm.org.apache.iceberg
    found = target.io().newInputFile(file.location)
    metrics = jvm.parquet.ParquetUtil.fileMetrics(found, jvm.MetricsConfig.forTable(target))
    builder = jvm.DataFiles.builder(target.spec()).withInputFile(found).withFormat("parquet")
    return read(classes, target, builder.withMetrics(metrics).build())


def read(classes: Classes, target: Any, file: Any) -> dict[str, Any]:
    to_json = classes._jvm.org.apache.iceberg.ContentFileParser.toJson
    form: dict[str, Any] = json.loads(to_json(file, target.spec()))
    for name, value in form.items():
        if isinstance(value, dict) and "keys" in value:
            form[name] = dict(zip(value["keys"], value["values"], strict=True))
    return form


@pytest.mark.parametrize("rows", [ROWS, ROWS[:1], ROWS[2:]])
def test_iceberg_would_say_the_same_of_a_file(place: Make, rows: list[tuple[Any, ...]]) -> None:
    it = place("iceberg", arrow=EVERY, key=("l",)).create()
    target = it.sink.format.load(it.table)
    target.updateProperties().set("write.metadata.metrics.default", "full").commit()
    classes = Classes(it.spark._jvm, Access(it.spark))
    writer = file_writer(classes, target)
    assert writer is not None
    own = {"_sequence": 1}
    kinds = pa.schema([*EVERY, ("_sequence", pa.int64())])
    made = [{**dict(zip(EVERY.names, row, strict=True)), **own} for row in rows]
    (file,) = writer.files([pa.RecordBatch.from_pylist(made, kinds)])
    ours = read(classes, target, described(classes, target.spec(), file, writer.fields))
    theirs = described_by_iceberg(classes, target, file)
    assert theirs.pop("file-path").removeprefix("file:") == ours.pop("file-path") == file.location
    offsets = ours.pop("split-offsets")
    assert offsets == [4], "after the magic number"
    assert offsets[0] < Path(file.location).stat().st_size
    booleans = {ids for ids, field in enumerate(writer.fields, 1) if field.type == pa.bool_()}
    for name in ("lower-bounds", "upper-bounds"):
        for number in booleans:
            theirs.get(name, {}).pop(number, None)
    assert ours == {name: value for name, value in theirs.items() if value or name in ours}


def test_the_files_of_an_encrypted_table_are_left_to_iceberg(place: Make) -> None:
    it = place("iceberg").create()
    form = it.sink.format
    target = form.load(it.table)
    assert file_writer(form._classes, target) is not None
    target.updateProperties().set("encryption.key-id", "k1").commit()
    assert file_writer(form._classes, target) is None
