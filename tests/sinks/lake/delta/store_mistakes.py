"""Each setting of `sink.store` wrong once, against real servers: one paragraph with the cure, without a key.

`test_on_s3.py` runs this in a session whose class path has what S3 needs (`--lake-in delta-s3`). Each case
has a bucket of its own name, because options of S3A are set for one bucket.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import boto3
import pytest
from pyspark.sql import SparkSession

from penstock.sinks.kind import Probed
from penstock.sinks.lake.delta.options import DeltaOptions
from penstock.sinks.lake.delta.registration import DELTA
from penstock.testing.faulty_proxy import Fault, FaultyProxy
from penstock.testing.servers.s3 import KEY_ID, SECRET, Moto, S3Proxy

CANARY = "hunter2-9137"
KEYS = {"access_key_id": KEY_ID, "secret_access_key": SECRET}


@pytest.fixture(scope="module")
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def try_it(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Probed]]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)

    def run(path: str, **store: Any) -> list[Probed]:
        options = DeltaOptions.model_validate({"type": "delta", "path": path, "store": store})
        hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
        for name, value in DELTA.spark_options(options, {}, Path()).items():
            if name.startswith("spark.hadoop."):
                hadoop.set(name.removeprefix("spark.hadoop."), value)
        probe = DELTA.probe(options, {})
        assert probe is not None
        return list(probe(spark, ["shop"]))

    return run


def bucket_at(endpoint: str, name: str) -> None:
    client(endpoint).create_bucket(Bucket=name)


def client(endpoint: str) -> Any:
    return boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1",
                        aws_access_key_id=KEY_ID, aws_secret_access_key=SECRET)  # fmt: skip


def failed(found: list[Probed], check: str, *parts: str) -> None:
    last = found[-1]
    assert (last.check, last.ok) == (check, False), found
    for part in parts:
        assert part in last.message, last.message
    assert "\n" not in last.message and "Exception" not in last.message and CANARY not in last.message


def test_what_works_is_said_step_by_step(try_it: Callable[..., list[Probed]], delta: DeltaOptions) -> None:
    bucket_at(str(delta.store.endpoint), "works")
    found = try_it("s3://works/lake", endpoint=delta.store.endpoint, **KEYS)
    assert [(one.check, one.ok) for one in found] == [("store", True), ("table", True), ("drop", True)], found
    left = client(str(delta.store.endpoint)).list_objects_v2(Bucket="works").get("Contents", [])
    assert [one["Key"] for one in left if one["Key"] != "lake/"] == [], "but for Hadoop's marker"


def test_a_bucket_that_does_not_exist(try_it: Callable[..., list[Probed]], delta: DeltaOptions) -> None:
    failed(try_it("s3://gone/lake", endpoint=delta.store.endpoint, **KEYS), "store", "NoSuchBucket", "ucket")


def test_a_wrong_secret(try_it: Callable[..., list[Probed]], delta: DeltaOptions) -> None:
    bucket_at(str(delta.store.endpoint), "secret")
    keys = {"access_key_id": KEY_ID, "secret_access_key": CANARY}
    failed(
        try_it("s3://secret/lake", endpoint=delta.store.endpoint, **keys),
        "store",
        "403",
        "s3a://secret/lake",
    )


def test_nobody_listens(try_it: Callable[..., list[Probed]]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    failed(
        try_it("s3://nobody/lake", endpoint=f"http://127.0.0.1:{port}", **KEYS),
        "store", "nobody listens at its address", "endpoint",
    )  # fmt: skip


def test_a_store_that_ignores_conditions_is_refused(try_it: Callable[..., list[Probed]]) -> None:
    with Moto() as store, FaultyProxy(store.host, store.port) as proxy:  # it does not check signatures
        store.make_bucket("careless")
        proxy.plan(Fault("without header", header="if-none-match"), when=lambda request: True, times=10**6)
        found = try_it("s3://careless/lake", endpoint=proxy.url, **KEYS)
    failed(found, "store", "ignores conditions", "Use a server with conditional writes")


def test_a_read_only_store(try_it: Callable[..., list[Probed]]) -> None:
    with S3Proxy(read_only=True) as store:
        store.make_bucket("locked")
        failed(try_it("s3://locked/lake", endpoint=store.url, **KEYS), "store", "could not be written")


def test_a_file_system_without_its_connector(spark: SparkSession) -> None:
    options = DeltaOptions.model_validate({"type": "delta", "path": "gs://bucket/lake"})
    probe = DELTA.probe(options, {})
    assert probe is not None
    failed(list(probe(spark, [])), "store", "gs")
