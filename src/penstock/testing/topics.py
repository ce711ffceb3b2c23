"""Rebuilds tables from topics alone, as an independent consumer does: for tests and the demo.

It reads messages of the format `json` with `isolation.level=read_committed`. Of a row's messages, the one
with the greatest `sequence` counts, so it makes no difference in which order partitions are read.
"""

from __future__ import annotations

import base64
import json
import struct
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.errors import PenstockError
from penstock.testing import oracle
from penstock.testing.oracle import OracleColumn, Row

READ_SECONDS_MAX = 600.0
"""How long all topics may take to be read: minutes for the largest demo on two cores."""
SILENT_SECONDS = 20.0
"""A client that got nothing for so long, not even the end of a partition, gives way to a new one. Seen once:
a client of a topic that had just been made stayed silent for ten minutes, while the broker was well."""
BATCH_MESSAGES = 5000
"""Messages that are read at once: few calls, and little memory."""
LOOK_SECONDS = 0.1
"""Longest wait for messages. Whether all have come is looked at after it."""


@dataclass(frozen=True)
class Record:
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def topics(bootstrap: str) -> dict[str, int]:
    """All topics but those of brokers and pipelines themselves, with their numbers of partitions."""
    found = AdminClient({"bootstrap.servers": bootstrap, "log_level": "2"}).list_topics(timeout=30).topics
    return {
        name: len(topic.partitions)
        for name, topic in found.items()
        if not name.startswith(("__", "penstock-commits-"))
    }


def create(bootstrap: str, name: str, *, partitions: int = 1) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": "2"})
    client.create_topics([NewTopic(name, partitions)], operation_timeout=30)[name].result()


def records(bootstrap: str, names: Iterable[str], *, committed: bool = True) -> Iterator[Record]:
    """All records of topics, in the order of each partition. `committed`: without those of transactions that
    are open or were aborted."""
    wanted = set(names)
    starts = {
        (name, number): 0
        for name, count in topics(bootstrap).items()
        if name in wanted
        for number in range(count)
    }
    deadline = time.monotonic() + READ_SECONDS_MAX
    while starts:
        yield from _read(bootstrap, starts, committed, deadline)


def _read(
    bootstrap: str, starts: dict[tuple[str, int], int], committed: bool, deadline: float
) -> Iterator[Record]:
    """Reads partitions from their `starts` on, which it moves, and takes away where a partition ends. Returns
    when all have ended, or when nothing has come for a while."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap,
        "log_level": "2",
        "group.id": "rebuild",
        "enable.auto.commit": False,
        "isolation.level": "read_committed" if committed else "read_uncommitted",
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
    })  # fmt: skip
    heard = time.monotonic()
    try:
        consumer.assign([TopicPartition(*place, at) for place, at in starts.items()])
        while starts and time.monotonic() - heard < SILENT_SECONDS:
            if time.monotonic() > deadline:
                raise PenstockError(f"The topics were not read within {READ_SECONDS_MAX:.0f} s.")
            for message in consumer.consume(BATCH_MESSAGES, LOOK_SECONDS):
                heard = time.monotonic()
                error, place = message.error(), (message.topic() or "", message.partition() or 0)
                offset = message.offset() or 0
                if error is None:
                    starts[place] = offset + 1
                    yield Record(*place, offset, message.key(), message.value())
                elif error.code() == KafkaError._PARTITION_EOF:
                    starts.pop(place, None)
                elif not error.retriable():
                    raise PenstockError(f"A topic cannot be read: {error.str()}")
    finally:
        consumer.close()


@dataclass
class Rebuilt:
    """Tables as their messages have them. `repeated`: messages that came more than once."""

    rows: dict[str, list[Row]]
    messages: int = 0
    repeated: int = 0


def rebuild(found: Iterable[Record], columns: dict[str, list[OracleColumn]]) -> Rebuilt:
    """The tables (`database.table`) from messages of the format `json`. `columns`: those of each table, which
    must have a key."""
    newest: dict[str, dict[tuple[Any, ...], tuple[int, Row | None]]] = {}
    emptied: dict[str, int] = {}
    seen: Counter[tuple[str, bytes | None, int, str]] = Counter()
    result = Rebuilt({})
    for record in found:
        if record.value is None:
            continue
        change = json.loads(record.value)
        name = f"{change['database']}.{change['table']}"
        if name not in columns:
            continue
        result.messages += 1
        sequence, op = change["sequence"], change["op"]
        seen[name, record.key, sequence, op] += 1
        if op == "t":
            emptied[name] = max(emptied.get(name, 0), sequence)
            continue
        key_names = [one.name for one in columns[name] if one.key_part is not None]
        rows = newest.setdefault(name, {})
        for row, exists in ((change["before"], False), (change["after"], True)):
            if row is None:
                continue
            key = tuple(row[column] for column in key_names)
            known = rows.get(key)
            if known is None or known[0] <= sequence:
                state = (
                    tuple(_canonical(row.get(one.name), one.type) for one in columns[name])
                    if exists
                    else None
                )
                rows[key] = (sequence, state)
    for name, of_table in columns.items():
        kept = [
            row
            for sequence, row in newest.get(name, {}).values()
            if row is not None and sequence > emptied.get(name, -1)
        ]
        result.rows[name] = oracle.sorted_rows(kept, of_table)
    result.repeated = sum(count - 1 for count in seen.values())
    return result


_BYTES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "geometry", "point"}


def _canonical(value: Any, type: str) -> str | None:
    if value is None:
        return None
    if type in _BYTES:
        return base64.b64decode(value).hex().upper()
    if type == "float":
        return repr(struct.unpack("f", struct.pack("f", value))[0])
    return oracle.canonical(value, type)
