"""How many messages a second the sinks for brokers take: `python -m bench.brokers [MESSAGES [NAME…]]`.

Rows with 13 columns as messages of Debezium, encoded beforehand, in epochs of 100,000. The brokers are
private ones on this machine, as in tests (Valkey without a sync for each write), so the figures are about
the way to them.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from bench.sinks import BATCH_ROWS, TABLE, batches, measured
from penstock._core import RowEncoder
from penstock.model.schema import Column, TableSchema
from penstock.sinks import registry
from penstock.sinks.base import Commit, EncodedBatch, Fencing, log_sink
from penstock.testing import servers

EPOCH_BATCHES = 5


def column(name: str) -> Column:
    match name:
        case "price":
            return Column(name, "decimal", precision=12, scale=2)
        case "weight":
            return Column(name, "double")
        case "day":
            return Column(name, "date")
        case "at" | "seen":
            return Column(name, "datetime" if name == "at" else "timestamp", fsp=6)
        case _ if name.startswith("text"):
            return Column(name, "varchar", length=100, charset="utf8mb4")
        case _:
            return Column(name, "bigint")


def schema() -> TableSchema:
    names = [field.name for field in next(batches(1, 1)).schema if field.name[0] not in "_f"]
    return TableSchema(TABLE, tuple(map(column, names)), ("id",))


def bench(name: str, section: dict[str, Any], messages: int, server: int) -> None:
    kind, pipeline = registry.kind(section["type"]), str(uuid.uuid4())
    no_spark: Any = None
    options = kind.options.model_validate({"format": "debezium", **section})
    sink = log_sink(registry.open_sink(options, no_spark, pipeline))
    assert isinstance(sink, Fencing)
    sink.begin(0)
    encoder = RowEncoder(schema().to_json(), sink.format, options=sink.format_options)
    made = [
        EncodedBatch(
            encoder.encode(batch, at_us=1, place="b.1:4", sequence=1, first_row=number * BATCH_ROWS),
            [TABLE],
        )
        for number, batch in enumerate(batches(messages, 1))
    ]

    def write() -> bool:
        for epoch, begin in enumerate(range(0, len(made), EPOCH_BATCHES), start=1):
            sink.write_epoch(Commit(pipeline, epoch), [schema()], made[begin : begin + EPOCH_BATCHES])
        return True

    print(f"{name:<17} {measured(write, messages, server)}", flush=True)
    sink.close()


def redis_streams(messages: int, stack: ExitStack) -> None:
    server = stack.enter_context(servers.valkey({"appendfsync": "everysec"}))
    section = {"type": "redis-streams", "url": server.url, "password": server.password}
    assert server.pid is not None
    bench("redis-streams", section, messages, server.pid)


def nats(messages: int, stack: ExitStack) -> None:
    server = stack.enter_context(servers.nats())
    section = {"type": "nats", "url": server.url, "user": server.user, "password": server.password}
    assert server.pid is not None
    bench("nats", section, messages, server.pid)


def rabbitmq_streams(messages: int, stack: ExitStack) -> None:
    server = stack.enter_context(servers.rabbitmq())
    section = {"type": "rabbitmq-streams", "url": server.url, "user": server.user}
    assert server.pid is not None
    bench("rabbitmq-streams", {**section, "password": server.password}, messages, server.pid)


def kafka(messages: int, stack: ExitStack) -> None:
    cluster = stack.enter_context(servers.kafka())
    pid = cluster.brokers[0].pid
    assert pid is not None
    bench("kafka", {"type": "kafka", "bootstrap": cluster.bootstrap}, messages, pid)


EVERY: dict[str, Callable[[int, ExitStack], None]] = {
    "redis-streams": redis_streams,
    "nats": nats,
    "rabbitmq-streams": rabbitmq_streams,
    "kafka": kafka,
}


def main() -> None:
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
    for name in sys.argv[2:] or EVERY:
        with ExitStack() as stack:
            EVERY[name](messages, stack)


if __name__ == "__main__":
    main()
