"""Delta tables on S3: who wins a version, and what other writers of the table do to ours.

`test_on_s3.py` runs this in a session whose class path has what S3 needs (`--lake-in delta-s3`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from tests.sinks.conftest import Place
from tests.sinks.lake.iceberg.test_small_commit import few
from tests.sinks.lake.test_file_merge import by_files

from penstock.sinks import registry
from penstock.sinks.lake.delta.options import DeltaOptions
from penstock.sinks.lake.delta.stored import StoredDelta
from penstock.testing.faulty_proxy import Fault, FaultyProxy, Request
from penstock.testing.servers.s3 import KEY_ID, SECRET

Make = Callable[..., Place]
BUCKET = "faulty"


@pytest.fixture(scope="module")
def s3(delta: DeltaOptions) -> Any:
    client = boto3.client(
        "s3", endpoint_url=delta.store.endpoint, region_name="us-east-1",
        aws_access_key_id=KEY_ID, aws_secret_access_key=SECRET,
    )  # fmt: skip
    client.create_bucket(Bucket=BUCKET)
    return client


@pytest.fixture
def proxy(delta: DeltaOptions) -> Iterator[FaultyProxy]:
    url = urlsplit(str(delta.store.endpoint))
    with FaultyProxy(str(url.hostname), int(url.port or 0)) as proxy:
        yield proxy


class Log:
    """The log store, through a proxy."""

    def __init__(self, spark: SparkSession, endpoint: str, name: str) -> None:
        jvm: Any = spark._jvm
        self.jvm = jvm
        self.conf = jvm.org.apache.hadoop.conf.Configuration(spark.sparkContext._jsc.hadoopConfiguration())
        options = {
            "endpoint": endpoint, "path.style.access": "true", "endpoint.region": "us-east-1",
            "access.key": KEY_ID, "secret.key": SECRET, "multipart.size": "5M", "fast.upload.buffer": "array",
            "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        }  # fmt: skip
        for option, value in options.items():
            self.conf.set(f"fs.s3a.bucket.{BUCKET}.{option}", value)
        self.conf.set("fs.s3a.impl.disable.cache", "true")
        self.store = jvm.penstock.delta.ConditionalLogStore(self.conf)
        self.name = name

    def write(self, *lines: str, overwrite: bool = False) -> None:
        path = self.jvm.org.apache.hadoop.fs.Path(f"s3a://{BUCKET}/t/_delta_log/{self.name}.json")
        found = self.jvm.java.util.ArrayList()
        for line in lines:
            found.add(line)
        self.store.write(path, found.iterator(), overwrite, self.conf)


def content(s3: Any, name: str) -> str:
    answer = s3.get_object(Bucket=BUCKET, Key=f"t/_delta_log/{name}.json")
    return str(answer["Body"].read().decode())


def refused(error: Exception) -> bool:
    return (
        isinstance(error, Py4JJavaError)
        and error.java_exception.getClass().getName() == "java.nio.file.FileAlreadyExistsException"
    )


def of_commit(request: Request) -> bool:
    return request.method == "PUT" and "_delta_log" in request.path


def test_of_many_writers_of_a_version_exactly_one_succeeds(
    spark: SparkSession, proxy: FaultyProxy, s3: Any
) -> None:
    for version in range(10):
        log, together = Log(spark, proxy.url, f"race-{version}"), threading.Barrier(6)

        def attempt(number: int, log: Log = log, together: threading.Barrier = together) -> int | None:
            together.wait()
            try:
                log.write(f"writer {number}", "more")
            except Py4JJavaError as error:
                assert refused(error), error
                return None
            return number

        with ThreadPoolExecutor(6) as threads:
            won = [one for one in threads.map(attempt, range(6)) if one is not None]
        assert len(won) == 1
        assert content(s3, f"race-{version}") == f"writer {won[0]}\nmore\n"


@pytest.mark.parametrize(
    "fault",
    [Fault("lost answer"), Fault("done, but answer"), Fault("done, but answer", 500, "InternalError"),
     Fault("reset in the middle"), Fault("answer"), Fault("answer", 409, "ConditionalRequestConflict")],
    ids=str,
)  # fmt: skip
def test_a_writer_learns_that_it_succeeded_whatever_became_of_the_answer(
    spark: SparkSession, proxy: FaultyProxy, s3: Any, fault: Fault
) -> None:
    name = f"{fault.kind}-{fault.status}".replace(" ", "-")
    proxy.plan(fault, when=of_commit, times=1)
    Log(spark, proxy.url, name).write("ours")
    assert proxy.faults == 1 and content(s3, name) == "ours\n"
    with pytest.raises(Py4JJavaError) as caught:
        Log(spark, proxy.url, name).write("another's")
    assert refused(caught.value) and content(s3, name) == "ours\n"


def test_a_writer_that_lost_is_refused_though_its_answer_was_lost(
    spark: SparkSession, proxy: FaultyProxy, s3: Any
) -> None:
    s3.put_object(Bucket=BUCKET, Key="t/_delta_log/taken.json", Body=b"another's\n")
    proxy.plan(Fault("lost answer"), when=of_commit, times=1)
    with pytest.raises(Py4JJavaError) as caught:
        Log(spark, proxy.url, "taken").write("ours")
    assert proxy.faults == 1 and refused(caught.value) and content(s3, "taken") == "another's\n"


def test_a_commit_of_several_parts_is_refused_too(spark: SparkSession, proxy: FaultyProxy, s3: Any) -> None:
    lines = ["x" * 1_000_000] * 12
    Log(spark, proxy.url, "large").write(*lines)
    with pytest.raises(Py4JJavaError) as caught:
        Log(spark, proxy.url, "large").write(*["y" * 1_000_000] * 12)
    assert refused(caught.value) and content(s3, "large")[:2] == "xx"


def test_what_is_no_commit_is_replaced(spark: SparkSession, proxy: FaultyProxy, s3: Any) -> None:
    for text in ("first", "second"):
        Log(spark, proxy.url, "last").write(text, overwrite=True)
    assert content(s3, "last") == "second\n"


def test_rows_are_written_without_sparks_writer(place: Make) -> None:
    it = place("delta").create()
    assert isinstance(it.sink.format, StoredDelta)
    it.sink.append(it.table, few(it, (1, "a", False, 1), (2, "b", False, 1)), it.commit(1))
    assert by_files(it)
    it.sink.merge(it.table, few(it, (1, "A", False, 5), (3, "c", False, 5)), it.key, it.commit(2))
    assert by_files(it) and it.rows() == [(1, "A", 5), (2, "b", 1), (3, "c", 5)]


def test_a_dropped_target_leaves_nothing(place: Make, s3: Any, delta: DeltaOptions) -> None:
    it = place("delta").create()
    it.sink.append(it.table, few(it, (1, "a", False, 1)), it.commit(1))
    where = urlsplit(it.sink.format.place(it.table))

    def objects() -> list[str]:
        answer = s3.list_objects_v2(Bucket=where.netloc, Prefix=where.path.strip("/"))
        return [one["Key"] for one in answer.get("Contents", ())]

    assert objects()
    it.sink.drop(it.table)
    assert objects() == []
    it.create()
    assert it.rows() == []


def test_vacuum_by_a_user_leaves_the_log(place: Make) -> None:
    it = place("delta").create()
    for name in ("a", "b", "c"):
        it.sink.merge(it.table, few(it, (1, name, False, ord(name))), it.key, it.commit(ord(name)))
    it.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    it.spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "2")
    it.spark.sql(f"VACUUM {it.sink.format.name(it.table)} RETAIN 0 HOURS")
    it.sink.format._forget_paths()
    assert it.rows() == [(1, "c", ord("c"))]


def test_a_commit_that_somebody_made_first_loses_neither(place: Make) -> None:
    """A stranger's OPTIMIZE and DELETE between what our merge has read and its commit."""
    it = place("delta").create()
    for epoch in range(1, 5):
        it.sink.append(
            it.table, few(it, *[(epoch * 10 + n, "a", False, 1) for n in range(5)]), it.commit(epoch)
        )
    form = it.sink.format
    before = form.load(it.table)
    it.spark.sql(f"OPTIMIZE {form.name(it.table)}")
    with pytest.raises(Py4JJavaError, match="Concurrent"):
        form._merges.write(it.table, before, few(it, (10, "A", False, 9)), it.key, it.commit(5))
    assert it.sink.merge(it.table, few(it, (10, "A", False, 9)), it.key, it.commit(5))
    found = it.rows()
    assert len(found) == 20 and found[0] == (10, "A", 9)


def test_each_commit_has_an_id_by_which_its_writer_knows_it_again(place: Make, s3: Any) -> None:
    it = place("delta").create()
    it.sink.append(it.table, few(it, (1, "a", False, 1)), it.commit(1))
    key = urlsplit(it.sink.format.place(it.table)).path.strip("/")
    ids = set()
    for version in range(2):
        body = s3.get_object(Bucket="lake", Key=f"{key}/_delta_log/{version:020d}.json")["Body"].read()
        ids.add(json.loads(body.splitlines()[0])["commitInfo"]["txnId"])
    assert len(ids) == 2 and all(ids)


def test_a_root_that_is_a_table_is_refused(place: Make) -> None:
    it = place("delta").create()
    other = place("delta", config={"path": it.sink.format.place(it.table)})
    with pytest.raises(Exception, match="holds something else: _delta_log"):
        other.sink.check()
    it.sink.check()


def test_classes_for_s3_are_loaded_without_a_store(delta: DeltaOptions, spark: SparkSession) -> None:
    registry.kind("delta").load_classes(delta, spark)
