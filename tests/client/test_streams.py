"""What a stream makes of the server's messages, without a server."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from penstock.client import silence
from penstock.client.streams import TableStream
from penstock.errors import TransientError

SCHEMA = pa.schema([("id", pa.int64())])


class Scripted:
    """A connection whose messages are given. `during`: runs when a message's rows are looked at."""

    address = "scripted"
    schema = SCHEMA

    def __init__(self, *messages: tuple[int, int, bool]) -> None:
        """`messages`: batch, id of the row, whether more of the batch follows."""
        self._messages = iter(messages)
        self.given = 0
        self.during: dict[int, Any] = {}

    def ask(self, action: str, **fields: Any) -> Any:
        return {"given": self.given}

    def open(self, ticket: dict[str, Any]) -> Any:
        return self

    def read_chunk(self) -> Any:
        number, row, more = next(self._messages)
        said = {"batch": number, "position": "0", "more": more}
        self.given = number
        rows = pa.record_batch({"id": [row]}, schema=SCHEMA)
        return SimpleNamespace(
            data=rows if row not in self.during else Watched(rows, self.during[row]),
            app_metadata=pa.py_buffer(json.dumps(said).encode()),
        )


class Watched:
    """Rows that run a function when their number is asked for."""

    def __init__(self, rows: pa.RecordBatch, run: Any) -> None:
        self._rows = rows
        self._run = run

    @property
    def num_rows(self) -> int:
        self._run()
        return int(self._rows.num_rows)


def test_a_batch_that_another_thread_rolls_back_leaves_nothing_to_the_next_one() -> None:
    connection = Scripted((1, 10, True), (1, 11, False), (2, 10, True), (2, 11, False))
    stream = TableStream(connection, "shop", "reader", "shop.orders")

    def roll_back() -> None:
        connection.during.clear()
        stream._note("roll_back", 0)

    connection.during[10] = roll_back
    batch = next(stream)
    assert batch.id == 2
    assert batch.rows.column("id").to_pylist() == [10, 11]


class Silent(Scripted):
    """A connection that says nothing until it is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self._cancelled = threading.Event()

    def read_chunk(self) -> Any:
        assert self._cancelled.wait(60)
        raise flight.FlightCancelledError("cancelled")

    def cancel(self) -> None:
        self._cancelled.set()


def test_a_read_ends_when_the_server_says_nothing_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "SILENT_S", 0.2)
    monkeypatch.setattr(silence, "LOOK_S", 0.05)
    stream = TableStream(Silent(), "shop", "reader", "shop.orders")
    with pytest.raises(TransientError, match=r"has said nothing for 0\.2 s"):
        next(stream)
