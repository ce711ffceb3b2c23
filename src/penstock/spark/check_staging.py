"""Checks that the executors of a cluster find in `staging` what the driver writes there, before anything
relies on it."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.errors import ConfigError, PenstockError
from penstock.store.folder import StoreFolder

SLOTS_MAX = 64
"""Tasks of the check: one for each slot of a cluster, and not more on large ones."""
_SCHEMA = "host STRING, said STRING"


def check_staging(spark: SparkSession, folder: StoreFolder) -> None:
    """Writes an object, and reads it on the executors. Raises `ConfigError` with the name of a host that does
    not find it, or cannot write beside it. Leaves nothing behind."""
    place, text = folder / uuid.uuid4().hex, uuid.uuid4().bytes
    folder.store.put(place.key("driver"), text)
    try:
        slots = max(1, min(spark.sparkContext.defaultParallelism, SLOTS_MAX))
        frame = spark.range(0, slots, 1, slots).mapInArrow(_looking(place, text), _SCHEMA)
        failed = [(row[0], row[1]) for row in frame.collect() if row[1]]
    finally:
        with suppress(PenstockError):
            place.remove()
    if failed:
        host, said = failed[0]
        raise ConfigError(
            f"The executor on {host} cannot use `staging`, {folder}: {said}",
            hint="On a cluster, `staging` must be an object store that every executor reaches, with "
            "credentials that it has (the section `store`, or a role), or a directory that all machines "
            "share.",
        )


def _looking(
    place: StoreFolder, text: bytes
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def body(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            said = [_found(place, text) for _ in range(batch.num_rows)]
            hosts = [socket.gethostname()] * len(said)
            yield pa.record_batch({"host": pa.array(hosts, pa.string()), "said": pa.array(said, pa.string())})

    return body


def _found(place: StoreFolder, text: bytes) -> str:
    """Tries the store in a task. Returns what went wrong. Empty: nothing."""
    try:
        if place.store.get(place.key("driver")).data != text:
            return "it finds another object than the driver wrote."
        place.store.put(place.key(f"executor-{uuid.uuid4().hex}"), text)
    except PenstockError as error:
        return error.message
    return ""
