"""Manifests that are sent to a store side by side. `test_catalogs.py` runs this in a session whose class path
has what S3 needs."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from penstock.sinks import registry
from penstock.sinks.lake.iceberg.catalog_options import METADATA_CACHE
from penstock.sinks.lake.iceberg.options import IcebergOptions
from penstock.testing.faulty_proxy import Fault, FaultyProxy, Request

WAIT_S = 60


class HoldingProxy(FaultyProxy):
    """Forwards manifests once `let_go` is set."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.let_go = threading.Event()
        self.let_go.set()

    def _forward(self, head: bytes, body: bytes) -> bytes:
        if head.startswith(b"PUT ") and b"-m" in head.partition(b"\r\n")[0]:
            self.let_go.wait(WAIT_S)
        return super()._forward(head, body)


@pytest.fixture
def proxy(iceberg: IcebergOptions) -> Iterator[HoldingProxy]:
    assert not isinstance(iceberg.catalog, str)
    place = urlsplit(iceberg.catalog.properties["s3.endpoint"].reveal())
    assert place.hostname is not None and place.port is not None
    with HoldingProxy(place.hostname, place.port) as between:
        yield between
        between.let_go.set()


class Commit:
    """Writes the files of a commit, as Iceberg does it."""

    def __init__(self, spark: SparkSession, options: IcebergOptions, proxy: FaultyProxy) -> None:
        jvm: Any = spark._jvm
        properties = jvm.java.util.HashMap()
        for name, value in options.catalog.iceberg_properties().items():  # type: ignore[union-attr]
            properties.put(name, value)
        properties.put("s3.endpoint", proxy.url)
        self.io = jvm.java.lang.Class.forName(METADATA_CACHE).getDeclaredConstructors()[0].newInstance(None)
        self.io.setConf(spark.sparkContext._jsc.hadoopConfiguration())
        self.io.initialize(properties)
        self.plain = jvm.org.apache.iceberg.aws.s3.S3FileIO()
        self.plain.initialize(properties)
        self._number = uuid.uuid4()

    def manifest(self, number: int) -> str:
        return f"s3://lake/x/metadata/{self._number}-m{number}.avro"

    @property
    def list(self) -> str:
        return f"s3://lake/x/metadata/snap-4711-1-{self._number}.avro"

    def write(self, location: str) -> None:
        out = self.io.newOutputFile(location).create()
        out.write(location.encode())
        out.close()
        assert out.storedLength() == len(location)

    def read(self, location: str) -> str:
        stream = self.io.newInputFile(location).newStream()
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def is_stored(self, location: str) -> bool:
        return bool(self.plain.newInputFile(location).exists())


@pytest.fixture
def commit(spark: SparkSession, iceberg: IcebergOptions, proxy: FaultyProxy) -> Commit:
    return Commit(spark, iceberg, proxy)


def wait_until(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)


def puts(part: str) -> Any:
    def found(request: Request) -> bool:
        return request.method == "PUT" and part in request.path

    return found


def test_the_list_of_manifests_waits_for_all_of_them(commit: Commit, proxy: HoldingProxy) -> None:
    proxy.let_go.clear()
    manifests = [commit.manifest(number) for number in range(4)]
    for one in manifests:
        commit.write(one)
        assert commit.read(one) == one, "it can be read before it is in the store"
    assert not any(map(commit.is_stored, manifests)), "they are sent side by side"
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(commit.write, commit.list)
        wait_until(lambda: commit.is_stored(commit.list))
        assert not writing.done()
        proxy.let_go.set()
        writing.result(WAIT_S)
    assert all(map(commit.is_stored, manifests))
    assert not any(request.method == "GET" for request in proxy.requests)


def test_the_list_fails_if_a_manifest_could_not_be_written(commit: Commit, proxy: FaultyProxy) -> None:
    proxy.plan(Fault("answer", status=403, code="AccessDenied"), when=puts("-m1"), times=1)
    for number in range(3):
        commit.write(commit.manifest(number))
    with pytest.raises(Py4JJavaError, match="403"):
        commit.write(commit.list)
    assert not commit.is_stored(commit.manifest(1)) and commit.is_stored(commit.manifest(2))


def test_a_list_does_not_wait_for_manifests_of_other_commits(
    commit: Commit, spark: SparkSession, iceberg: IcebergOptions, proxy: FaultyProxy
) -> None:
    other = Commit(spark, iceberg, proxy)
    proxy.plan(Fault("answer", status=403, code="AccessDenied"), when=puts("-m7"), times=1)
    other.write(other.manifest(7))
    commit.write(commit.manifest(0))
    commit.write(commit.list)
    with pytest.raises(Py4JJavaError, match="403"):
        other.write(other.list)


def test_a_manifest_that_is_deleted_while_it_is_sent_is_not_there_afterwards(
    commit: Commit, proxy: HoldingProxy
) -> None:
    proxy.let_go.clear()
    commit.write(commit.manifest(0))
    with ThreadPoolExecutor(1) as pool:
        deleting = pool.submit(commit.io.deleteFile, commit.manifest(0))
        wait_until(lambda: any(request.method == "PUT" for request in proxy.requests))
        assert not any(request.method == "DELETE" for request in proxy.requests)
        proxy.let_go.set()
        deleting.result(WAIT_S)
    assert not commit.is_stored(commit.manifest(0))
    commit.write(commit.list)


def test_a_task_writes_manifests_at_once(commit: Commit, spark: SparkSession, proxy: FaultyProxy) -> None:
    """It may write no list of them, so nothing would wait for them."""
    jvm: Any = spark._jvm
    serializer = jvm.org.apache.iceberg.util.SerializationUtil
    commit.io = serializer.deserializeFromBytes(serializer.serializeToBytes(commit.io))
    proxy.plan(Fault("answer", status=403, code="AccessDenied"), when=puts("-m0"), times=1)
    with pytest.raises(Py4JJavaError, match="403"):
        commit.write(commit.manifest(0))


def test_classes_for_s3_are_loaded_without_a_store(
    iceberg: IcebergOptions, spark: SparkSession, proxy: FaultyProxy
) -> None:
    registry.kind("iceberg").load_classes(iceberg, spark)
    assert not proxy.requests
