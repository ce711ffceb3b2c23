"""Many rows as bytes, as `java/RowFrames.java` reads and writes them. Pure.

A frame has, in little-endian order: the number of rows and of columns (4 bytes each), for each row its time
(8) and its act (1), and the rows' keys. Then comes each column: the length of its qualifier (4), the
qualifier, for each row a state (1), and the values. Keys and values are the places where they end, with a 0
before the first (4 bytes each), and then their bytes.

A row's `time` is the time stamp of its cells (`times.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

# What is done with a row. Those that replace it hide its older cells behind a marker, if it has any NULL.
SKIP = 0
ADD = 1
"""The row's values become cells. There was no such row."""
REPLACE = 2
"""The row's values become its only cells."""
DELETE = 3
"""The row is deleted, except what is newer than this change."""
CHANGE = 4
"""The row's values and NULLs replace its cells of these columns. Its other cells stay."""
RENEW = 5
"""Like `REPLACE`, but always with a marker that hides older cells."""
CLEAR = 6
"""Cells that are older than the row's time are deleted."""

NULL = 0
VALUE = 1
ABSENT = 2
"""States of a column in a row. `ABSENT`: the row lacks the column."""

_HEAD = struct.Struct("<ii")
_LENGTH = struct.Struct("<i")


@dataclass(frozen=True)
class Column:
    """A column of cells. `values`: of type binary. `states`: the state in each row. None: a value or NULL, as
    `values` has it."""

    qualifier: bytes
    values: pa.Array
    states: np.ndarray[Any, Any] | None = None

    def sliced(self, start: int, count: int) -> Column:
        states = None if self.states is None else self.states[start : start + count]
        return Column(self.qualifier, self.values.slice(start, count), states)


@dataclass(frozen=True)
class Frame:
    """Rows on their way to Java. `times`: 64-bit integers. `acts`: 8-bit integers, one of `ADD` to `CLEAR`
    for each row."""

    keys: pa.Array
    times: np.ndarray[Any, Any]
    acts: np.ndarray[Any, Any]
    columns: Sequence[Column] = ()

    def __len__(self) -> int:
        return len(self.keys)

    def sliced(self, start: int, count: int) -> Frame:
        columns = [one.sliced(start, count) for one in self.columns]
        end = start + count
        return Frame(self.keys.slice(start, count), self.times[start:end], self.acts[start:end], columns)

    def portions(self, bytes_max: int, rows_max: int) -> Iterator[Frame]:
        """Divides the rows into frames of about this size in bytes. A row is never divided."""
        sizes = np.zeros(len(self), np.int64)
        for values in (self.keys, *(one.values for one in self.columns)):
            sizes += np.diff(_ends(values))
        ends = np.cumsum(sizes)
        start = 0
        while start < len(self):
            before = ends[start - 1] if start else 0
            fitting = int(np.searchsorted(ends, before + bytes_max, "right")) - start
            count = max(1, min(fitting, rows_max, len(self) - start))
            yield self.sliced(start, count)
            start += count

    def packed(self) -> bytes:
        parts: list[Any] = [_HEAD.pack(len(self), len(self.columns))]
        parts += [self.times.astype("<i8").tobytes(), self.acts.astype(np.uint8).tobytes()]
        parts += _values(self.keys)
        for one in self.columns:
            states = one.states
            if states is None:
                states = one.values.is_valid().to_numpy(zero_copy_only=False)
            parts += [_LENGTH.pack(len(one.qualifier)), one.qualifier, states.astype(np.uint8).tobytes()]
            parts += _values(one.values)
        return b"".join(parts)


def unpacked(data: bytes) -> Frame:
    """The frame that Java has made."""
    rows, columns = _HEAD.unpack_from(data)
    place = _HEAD.size
    times = np.frombuffer(data, "<i8", rows, place)
    place += 8 * rows
    acts = np.frombuffer(data, np.uint8, rows, place)
    keys, place = _taken(data, place + rows, rows, None)
    found = []
    for _ in range(columns):
        [length] = _LENGTH.unpack_from(data, place)
        place += _LENGTH.size
        qualifier = data[place : place + length]
        states = np.frombuffer(data, np.uint8, rows, place + length)
        values, place = _taken(data, place + length + rows, rows, states)
        found.append(Column(qualifier, values))
    return Frame(keys, times, acts, found)


def head(qualifiers: Sequence[bytes]) -> bytes:
    """A frame without rows. Its columns are those that are to be read."""
    none, empty = np.zeros(0, np.int64), pa.array([], pa.binary())
    return Frame(empty, none, none, [Column(one, empty) for one in qualifiers]).packed()


def _ends(values: pa.Array) -> np.ndarray[Any, Any]:
    buffer = values.buffers()[1]
    if buffer is None:
        return np.zeros(len(values) + 1, np.int32)
    return np.frombuffer(buffer, np.int32)[values.offset : values.offset + len(values) + 1]


def _values(values: pa.Array) -> list[Any]:
    ends, data = _ends(values), values.buffers()[2]
    used = b"" if data is None else memoryview(data)[int(ends[0]) : int(ends[-1])]
    return [(ends - ends[0]).astype("<i4").tobytes(), used]


def _taken(data: bytes, place: int, rows: int, states: Any) -> tuple[pa.Array, int]:
    ends = np.frombuffer(data, "<i4", rows + 1, place)
    start = place + 4 * (rows + 1)
    end = start + int(ends[-1])
    known = None if states is None else pa.array(states == VALUE).buffers()[1]
    whole = pa.py_buffer(data)
    buffers = [known, pa.py_buffer(ends.tobytes()), whole.slice(start, end - start)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers), end
