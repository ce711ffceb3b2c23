"""`python epoch_writer.py OPTIONS PIPELINE STATE EPOCHS SEED`: writes epochs 1 to EPOCHS to a sink that takes
messages, as a pipeline does, and records each in the file STATE once it is written. Killed and started
again, it continues.

An epoch has the same messages whenever it is written: they depend on its number and the seed.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.backoff import Backoff, Schedule
from penstock.errors import TransientError
from penstock.model.schema import Column, TableId, TableSchema
from penstock.sinks import registry
from penstock.sinks.base import Commit, Fencing, LogMessage, LogSink

TABLES = ("one", "two", "three")


def schema(database: str, table: str) -> TableSchema:
    return TableSchema(TableId(database, table), (Column("id", "int"),), ("id",))


def messages(database: str, seed: int, epoch: int) -> Iterator[list[LogMessage]]:
    """Some batches. Each value has its epoch and number, so that none is the same as another."""
    choice = random.Random(seed * 1_000_003 + epoch)
    for batch in range(choice.randrange(1, 6)):
        yield [
            (
                TableId(database, choice.choice(TABLES)),
                f"k{choice.randrange(50)}".encode(),
                f"{epoch:06d}/{batch}/{number} {'x' * choice.randrange(2000)}".encode(),
                epoch,
            )
            for number in range(choice.randrange(1, 60))
        ]


def opened(options: str, pipeline: str) -> LogSink:
    kind = registry.kind(json.loads(options)["type"])
    no_spark: Any = None
    sink = kind.open(kind.options.model_validate_json(options), no_spark, pipeline, registry.NO_SHARDS)
    assert isinstance(sink, LogSink) and isinstance(sink, Fencing)
    backoff = Backoff(Schedule(first_s=0.1, max_s=1.0))
    while True:
        try:
            sink.begin(0)
            return sink
        except TransientError:
            backoff.failed()
            backoff.wait()


def main(options: str, pipeline: str, state: Path, epochs: int, seed: int) -> None:
    sink = opened(options, pipeline)
    database = f"d{pipeline[:8]}"
    schemas = [schema(database, table) for table in TABLES]
    backoff = Backoff(Schedule(first_s=0.1, max_s=1.0))
    done = int(state.read_text()) if state.exists() else 0
    for epoch in range(done + 1, epochs + 1):
        while True:
            try:
                sink.write_epoch(Commit(pipeline, epoch), schemas, messages(database, seed, epoch))
                break
            except TransientError as error:
                print(f"epoch {epoch}: {error}", file=sys.stderr, flush=True)
                backoff.failed()
                backoff.wait()
        replaced = state.with_suffix(".new")
        replaced.write_text(str(epoch))
        replaced.replace(state)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
