"""How many requests to the store an epoch waits for, one after another. `test_catalogs.py` runs this in a
session whose class path has what S3 needs.

Counted, not timed: the store answers nobody until no further request arrives. So what is sent side by side is
one round, and the number of rounds is the number of requests that follow each other.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession
from tests.sinks.conftest import Place
from tests.sinks.lake.iceberg.test_small_commit import few, summary
from tests.sinks.lake.test_file_merge import newer

from penstock.model.schema import TableId
from penstock.sinks.lake.iceberg.catalog_options import JdbcCatalog
from penstock.sinks.lake.iceberg.options import IcebergOptions
from penstock.sinks.lake.iceberg.small_commit import SMALL
from penstock.testing.faulty_proxy import FaultyProxy

QUIET_S = 0.75
"""A round ends when nothing has arrived for so long."""
NAME = "rounds"


class Rounds(FaultyProxy):
    """Holds requests in rounds while `counting`. `rounds`: what each of them had, as methods and kinds of
    files."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.rounds: list[list[str]] = []
        self._changed = threading.Condition()
        self._held: list[str] = []
        self._counting = False

    def __enter__(self) -> Rounds:
        super().__enter__()
        threading.Thread(target=self._release, daemon=True).start()
        return self

    def begin(self) -> None:
        self.rounds.clear()
        self._counting = True

    def end(self) -> list[list[str]]:
        self._counting = False
        return [sorted(one) for one in self.rounds]

    def _forward(self, head: bytes, body: bytes) -> bytes:
        method, path, _ = head.split(b" ", 2)
        if self._counting:
            with self._changed:
                round_ = len(self.rounds)
                self._held.append(f"{method.decode()} {_kind(path.decode())}")
                self._changed.notify_all()
                self._changed.wait_for(lambda: len(self.rounds) > round_)
        return super()._forward(head, body)

    def _release(self) -> None:
        while not self._closing.is_set():
            with self._changed:
                count = len(self._held)
                if self._changed.wait_for(lambda: len(self._held) > count, QUIET_S):  # noqa: B023
                    continue
                if self._held:
                    self.rounds.append(self._held)
                    self._held = []
                    self._changed.notify_all()


def _kind(path: str) -> str:
    name = urlsplit(path).path.rpartition("/")[2]
    if name.endswith(".metadata.json"):
        return "metadata"
    if name.endswith(".avro"):
        return "list" if name.startswith("snap-") else "manifest"
    return {"parquet": "data", "puffin": "vectors"}.get(name.rpartition(".")[2], name)


@pytest.fixture
def rounds(iceberg: IcebergOptions) -> Iterator[Rounds]:
    assert isinstance(iceberg.catalog, JdbcCatalog)
    place = urlsplit(iceberg.catalog.properties["s3.endpoint"].reveal())
    assert place.hostname is not None and place.port is not None
    with Rounds(place.hostname, place.port) as proxy:
        yield proxy


@pytest.fixture
def options(spark: SparkSession, iceberg: IcebergOptions, rounds: Rounds, tmp_path: Path) -> IcebergOptions:
    """A catalog of its own, whose requests go through the proxy."""
    assert isinstance(iceberg.catalog, JdbcCatalog)
    properties = {name: one.reveal() for name, one in iceberg.catalog.properties.items()}
    name = f"{NAME}_{tmp_path.name}"
    found = IcebergOptions.model_validate({
        "type": "iceberg",
        "catalog": {
            "type": "jdbc", "name": "".join(letter if letter.isalnum() else "_" for letter in name),
            "uri": f"jdbc:sqlite:{tmp_path / 'catalog.db'}", "warehouse": f"s3://lake/{name}",
            "properties": {**properties, "s3.endpoint": rounds.url},
        },
    })  # fmt: skip
    prefix = f"spark.sql.catalog.{found.catalog_name}"
    spark.conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"{prefix}.cache-enabled", "false")
    assert isinstance(found.catalog, JdbcCatalog)
    for option, value in found.catalog.iceberg_properties().items():
        spark.conf.set(f"{prefix}.{option}", value)
    return found


def test_an_epoch_waits_for_two_requests_one_after_another(
    spark: SparkSession, options: IcebergOptions, rounds: Rounds
) -> None:
    it = Place(spark, options, table=TableId("shop", "rounds")).create()
    it.sink.append(it.table, few(it, *((number, "a", False, 1) for number in range(50))), it.commit(1))
    for epoch in (2, 3, 4):
        rounds.begin()
        it.sink.merge(it.table, few(it, (epoch, "c", False, epoch)), it.key, it.commit(epoch))
        first, second = rounds.end()
        assert set(first) == {"PUT data", "PUT list", "PUT manifest", "PUT vectors"}
        assert second == ["PUT metadata"]
        assert summary(it)[SMALL] == "true"
    assert it.rows()[:5] == [(0, "a", 1), (1, "a", 1), (2, "c", 2), (3, "c", 3), (4, "c", 4)]


def test_the_first_rows_of_a_table_wait_for_three_requests_one_after_another(
    spark: SparkSession, options: IcebergOptions, rounds: Rounds
) -> None:
    """They are written by tasks, without their keys, since there is nothing to replace."""
    it = Place(spark, options, table=TableId("shop", "first")).create()
    rounds.begin()
    it.sink.merge(it.table, newer(it, (1, "a", False, 1)), it.key, it.commit(1))
    assert rounds.end() == [["PUT data"], ["PUT list", "PUT manifest"], ["PUT metadata"]]
    assert it.rows() == [(1, "a", 1)]
