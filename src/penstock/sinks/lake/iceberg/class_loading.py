"""Lets Java load the classes with which Iceberg reaches S3, for the archive of `penstock prepare`: 2,500
classes, which take a CPU second to load from jars."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from penstock.sinks.lake.iceberg.catalog_options import METADATA_CACHE, CatalogOptions, storage_of
from penstock.sinks.lake.iceberg.options import IcebergOptions

_PROPERTIES = {
    # Nobody listens there, so that a request fails at its end, at once.
    "s3.endpoint": "http://127.0.0.1:1",
    "s3.path-style-access": "true",
    "s3.access-key-id": "none",
    "s3.secret-access-key": "none",
    "client.region": "us-east-1",
    "s3.retry.num-retries": "1",
    "s3.retry.min-wait-ms": "1",
    "s3.retry.max-wait-ms": "1",
}
_LOCATION = "s3://none/none"


def load_classes(options: IcebergOptions, spark: SparkSession) -> None:
    catalog = options.catalog
    if not isinstance(catalog, CatalogOptions) or storage_of(catalog) != "s3":
        return
    jvm: Any = spark._jvm
    properties = jvm.java.util.HashMap()
    for name, value in _PROPERTIES.items():
        properties.put(name, value)
    io = jvm.org.apache.iceberg.CatalogUtil.loadFileIO(
        METADATA_CACHE if catalog.remembers_metadata else "org.apache.iceberg.aws.s3.S3FileIO",
        properties,
        spark.sparkContext._jsc.hadoopConfiguration(),
    )
    for request in (_write, _read, lambda io: io.deleteFile(_LOCATION)):
        with suppress(Py4JJavaError):
            request(io)
    io.close()


def _write(io: Any) -> None:
    out = io.newOutputFile(_LOCATION).create()
    out.write(b"none")
    out.close()


def _read(io: Any) -> None:
    io.newInputFile(_LOCATION).newStream().read()
