"""Lets Java load the classes with which Delta reaches S3, for the archive of `penstock prepare`."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

_OPTIONS = {
    # Nobody listens there, so that a request fails at its end, at once.
    "endpoint": "http://127.0.0.1:1",
    "endpoint.region": "us-east-1",
    "path.style.access": "true",
    "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "access.key": "none",
    "secret.key": "none",
    "fast.upload.buffer": "array",
    "attempts.maximum": "1",
    "retry.limit": "1",
    "retry.interval": "1ms",
}


def load_classes(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    hadoop = jvm.org.apache.hadoop
    conf = hadoop.conf.Configuration(spark.sparkContext._jsc.hadoopConfiguration())
    for name, value in _OPTIONS.items():
        conf.set(f"fs.s3a.{name}", value)
    path = hadoop.fs.Path("s3a://none/none")
    system = hadoop.fs.FileSystem.newInstance(path.toUri(), conf)
    for request in (_write, _read):
        with suppress(Py4JJavaError):
            request(system, path)
    system.close()


def _write(system: Any, path: Any) -> None:
    out = system.create(path)
    out.write(b"none")
    out.close()


def _read(system: Any, path: Any) -> None:
    system.open(path).read()
