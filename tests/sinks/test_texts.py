"""What databases give is read as it is, or refused."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.sinks import texts
from penstock.sinks.texts import Unfit, batch_of, csv_batches, row_batch

UTC = datetime.timezone.utc
FIELDS = pa.schema(
    [
        ("a", pa.int32()),
        ("b", pa.string()),
        ("c", pa.binary()),
        ("d", pa.decimal128(10, 2)),
        ("e", pa.timestamp("us", "UTC")),
        ("f", pa.bool_()),
        ("g", pa.float64()),
    ]
)
ROWS: list[tuple[Any, ...]] = [
    (1, 'x\n""y', b"\x00\xff", decimal.Decimal("1.50"), datetime.datetime(2024, 1, 1, tzinfo=UTC), True, 0.1),
    (2, "", None, None, None, None, None),
    (3, "\\N", b"", decimal.Decimal("-7.00"), datetime.datetime(1, 1, 1, tzinfo=UTC), False, 1e-30),
]
CSV = (
    b'1,"x\n""""y",\\x00ff,1.5,2024-01-01 00:00:00+00,t,0.1\n2,"",,,,,\n'
    b'3,\\N,"\\x",-7,0001-01-01 00:00:00+00,f,1e-30\n'
)


@pytest.mark.parametrize("size", [1, 2, 7, 40, 1000])
@pytest.mark.parametrize("block", [1, texts.BLOCK_BYTES])
def test_rows_are_whole_wherever_the_bytes_are_cut(
    size: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "BLOCK_BYTES", block)
    parts = [CSV[start : start + size] for start in range(0, len(CSV), size)]
    found = [
        tuple(row.values()) for batch in csv_batches(parts, FIELDS, null="") for row in batch.to_pylist()
    ]
    assert found == ROWS


def test_no_rows_are_no_batches() -> None:
    assert list(csv_batches([], FIELDS, null="")) == []


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (300, pa.int8()),
        ("x", pa.int32()),
        (1.5, pa.int32()),
        ("1.005", pa.decimal128(10, 2)),
        (2, pa.bool_()),
        (0.1, pa.float32()),
        (5, pa.string()),
        ("2024-13-01", pa.date32()),
        ("no digits", pa.binary()),
    ],
)
def test_a_value_that_does_not_fit_is_refused_and_never_becomes_another_one(
    value: Any, kind: pa.DataType
) -> None:
    with pytest.raises(Unfit) as error:
        row_batch([(value,)], pa.schema([("v", kind)]))
    assert error.value.column == "v" and str(value) not in str(error.value)


def test_wider_types_and_larger_offsets_hold_the_same_values() -> None:
    fields = pa.schema([("n", pa.int8()), ("b", pa.binary()), ("t", pa.timestamp("us"))])
    moment = datetime.datetime(2024, 2, 29, 12)
    columns = [
        pa.array([7, None], pa.int64()),
        pa.array([b"x", None], pa.large_binary()),
        pa.array([moment, None], pa.timestamp("ns")),
    ]
    assert batch_of(columns, fields).to_pylist() == [
        {"n": 7, "b": b"x", "t": moment},
        {"n": None, "b": None, "t": None},
    ]
