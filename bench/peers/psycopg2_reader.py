"""A reader in Python over psycopg2, as the sources of dlt and ingestr are: psycopg2's replication cursor
gives one message at a time, a parser in Python takes it apart, and each row becomes a dict of Python values.
Arguments: folder-of-psycopg2 host port user password database slot publication tail-table.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import json
import sys
import time
from collections.abc import Callable
from io import BytesIO
from typing import Any

sys.path.insert(0, sys.argv[1])

import psycopg2  # type: ignore[import-untyped]
import psycopg2.extras  # type: ignore[import-untyped]

Read = Callable[[str], Any]
_OF_TYPE: dict[int, Read] = {
    16: lambda text: text == "t", 17: lambda text: bytes.fromhex(text[2:]), 20: int, 21: int, 23: int,
    700: float, 701: float, 1082: datetime.date.fromisoformat, 1114: datetime.datetime.fromisoformat,
    1184: lambda text: datetime.datetime.fromisoformat(text + ":00"), 1700: decimal.Decimal, 3802: json.loads,
}  # fmt: skip
"""By the number of a type: what makes a value of its text. Others stay text."""
_KINDS = {"I": "inserts", "U": "updates", "D": "deletes"}


class Reader:
    """Reads one message."""

    def __init__(self, payload: bytes) -> None:
        self._buffer = BytesIO(payload)

    def number(self, size: int) -> int:
        return int.from_bytes(self._buffer.read(size), "big", signed=True)

    def letter(self) -> str:
        return self._buffer.read(1).decode()

    def name(self) -> str:
        name = bytearray()
        while (byte := self._buffer.read(1)) != b"\0":
            name += byte
        return name.decode()

    def values(self) -> list[str | None]:
        found: list[str | None] = []
        for _ in range(self.number(2)):
            kind = self.letter()
            found.append(self._buffer.read(self.number(4)).decode() if kind == "t" else None)
        return found


class Consumer:
    def __init__(self, tail: str) -> None:
        self.counts = dict.fromkeys(_KINDS.values(), 0)
        self.began = self.cpu_began = 0.0
        self.rows: list[dict[str, Any]] = []
        self._tables: dict[int, tuple[str, list[tuple[str, Read]]]] = {}
        self._tail = tail

    def __call__(self, message: Any) -> None:
        reader = Reader(message.payload)
        kind = reader.letter()
        if kind == "R":
            number, _, table = reader.number(4), reader.name(), reader.name()
            reader.letter()
            columns: list[tuple[str, Read]] = []
            for _ in range(reader.number(2)):
                reader.number(1)
                columns.append((reader.name(), _OF_TYPE.get(reader.number(4), str)))
                reader.number(4)
            self._tables[number] = table, columns
        elif kind in _KINDS:
            if not self.began:
                self.began, self.cpu_began = time.monotonic(), time.process_time()
            table, columns = self._tables[reader.number(4)]
            if table == self._tail:
                raise psycopg2.extras.StopReplication
            self.counts[_KINDS[kind]] += 1
            if reader.letter() in "KO" and kind == "U":  # the key before
                reader.values()
                reader.letter()
            self.rows.append(
                {
                    name: None if text is None else read(text)
                    for (name, read), text in zip(columns, reader.values(), strict=True)
                }
            )
            if len(self.rows) >= 10_000:  # what a batch is written as is not measured
                self.rows.clear()


def main() -> None:
    host, port, user, password, database, slot, publication, tail = sys.argv[2:]
    connection = psycopg2.connect(
        host=host, port=port, user=user, password=password, dbname=database,
        connection_factory=psycopg2.extras.LogicalReplicationConnection,
        options="-c datestyle=ISO -c timezone=UTC",
    )  # fmt: skip
    cursor = connection.cursor()
    options = {"proto_version": "1", "publication_names": publication}
    cursor.start_replication(slot_name=slot, decode=False, options=options)
    consumer = Consumer(tail)
    with contextlib.suppress(psycopg2.extras.StopReplication):
        cursor.consume_stream(consumer)
    ended, cpu_ended = time.monotonic(), time.process_time()
    report = {
        "version": psycopg2.__version__.split()[0], "changes": sum(consumer.counts.values()),
        "began": consumer.began, "ended": ended, "wall_s": ended - consumer.began,
        "cpu_s": cpu_ended - consumer.cpu_began, "counts": consumer.counts,
    }  # fmt: skip
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
