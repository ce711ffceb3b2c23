"""Where Delta tables are: a directory, or the URL of an object store or of HDFS. For S3, also the options and
the jars with which Spark and Delta reach it.

**Why a log store of our own.** A commit to Delta is a new file `_delta_log/N.json`, and exactly one of two
writers may create it. For S3, Delta brings a log store for one driver only: it looks whether the file exists
and then writes it. With it, a second pipeline, or an OPTIMIZE by somebody else, would replace commits,
unnoticed.
`java/ConditionalLogStore.java` creates the file with a conditional put instead (decision 27). Delta's own for
directories looks first, too; `java/DirectoryLogStore.java` makes a hard link instead.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BeforeValidator

from penstock.store.section import StoreSection

S3_SCHEMES = ("s3", "s3a")
_SCHEMES = (*S3_SCHEMES, "gs", "abfs", "abfss", "hdfs")

LOG_STORE_JAR = Path(__file__).with_name("log_store.jar")
LOG_STORE = "penstock.delta.ConditionalLogStore"
DIRECTORY_LOG_STORE_JAR = Path(__file__).with_name("directory_log_store.jar")
DIRECTORY_LOG_STORE = "penstock.delta.DirectoryLogStore"

HADOOP_AWS = "org.apache.hadoop:hadoop-aws:3.4.2"
"""Jars for S3, in the version of Spark's own Hadoop."""
_SDK_VERSION = "2.29.52"
_SDK = (
    "annotations",
    "apache-client",
    "arns",
    "auth",
    "aws-core",
    "aws-json-protocol",
    "aws-query-protocol",
    "aws-xml-protocol",
    "checksums",
    "checksums-spi",
    "crt-core",
    "endpoints-spi",
    "http-auth",
    "http-auth-aws",
    "http-auth-aws-eventstream",
    "http-auth-spi",
    "http-client-spi",
    "identity-spi",
    "json-utils",
    "metrics-spi",
    "netty-nio-client",
    "profiles",
    "protocol-core",
    "regions",
    "retries",
    "retries-spi",
    "s3",
    "s3-transfer-manager",
    "sdk-core",
    "sso",
    "ssooidc",
    "sts",
    "third-party-jackson-core",
    "utils",
)
"""The parts of the AWS SDK that S3A uses, 11 MB. Hadoop itself names `bundle`, all of it: 640 MB."""
S3_JARS = (
    HADOOP_AWS,
    *(f"software.amazon.awssdk:{name}:{_SDK_VERSION}" for name in _SDK),
    "software.amazon.eventstream:eventstream:1.0.1",
    "org.reactivestreams:reactive-streams:1.0.4",
)
"""The jars for S3, without those that PySpark has already, such as Netty and Apache's HTTP client."""

_AUTH = "software.amazon.awssdk.auth.credentials"
_HADOOP = "org.apache.hadoop.fs.s3a"


def _place(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", value):
        return Path(value)
    url = urlsplit(value)
    if url.scheme not in _SCHEMES:  # without the value, which may hold credentials
        raise ValueError(
            f"write a directory, or a URL that begins with {', '.join(f'{one}://' for one in _SCHEMES)}"
        )
    if url.scheme in S3_SCHEMES and (not url.netloc or "@" in url.netloc):
        raise ValueError("write s3://bucket/path, and no credentials in it")
    if url.query or url.fragment:
        raise ValueError("write a URL without `?` and `#`")
    return value.rstrip("/")


DeltaPlace = Annotated[Path | str, BeforeValidator(_place, json_schema_input_type=Path)]


def is_s3(place: Path | str) -> bool:
    return isinstance(place, str) and urlsplit(place).scheme in S3_SCHEMES


def log_store_jar(place: Path | str) -> Path | None:
    """The jar with the log store for it. None: Delta's own serves it."""
    if isinstance(place, Path):
        return DIRECTORY_LOG_STORE_JAR
    return LOG_STORE_JAR if is_s3(place) else None


def hadoop_url(place: str) -> str:
    """The URL as Hadoop's file systems take it. For S3 that is s3a://."""
    url = urlsplit(place)
    return f"s3a://{url.netloc}{url.path}" if url.scheme in S3_SCHEMES else place


def spark_options(place: Path | str, store: StoreSection) -> dict[str, str]:
    """The options of the Spark session. Contains secrets as text."""
    if isinstance(place, Path):
        return {"spark.delta.logStore.file.impl": DIRECTORY_LOG_STORE}
    if not is_s3(place):
        return {}
    bucket = urlsplit(str(place)).netloc
    own = {f"spark.hadoop.fs.s3a.bucket.{bucket}.{name}": value for name, value in _s3a(store).items()}
    return {
        **{f"spark.delta.logStore.{scheme}.impl": LOG_STORE for scheme in S3_SCHEMES},
        # Lists the log from a version on. Otherwise each commit would list all of it.
        "spark.hadoop.delta.enableFastS3AListFrom": "true",
        **own,
    }


def _s3a(store: StoreSection) -> dict[str, str]:
    """S3A's options for a bucket. Source: Hadoop's documentation, "Hadoop-AWS module"."""
    found = {
        # No requests that look for what is overwritten: all names are new, and commits have a condition.
        "performance.flags": "create,mkdir",
        # Parts of files are sent from memory. The default directory may not exist on executors.
        "fast.upload.buffer": "array",
        "multipart.size": "8M",
    }
    if store.endpoint is not None:
        found |= {"endpoint": store.endpoint, "path.style.access": str(store.path_style).lower()}
    region = store.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region is not None or store.endpoint is not None:
        found["endpoint.region"] = region or "us-east-1"
    return found | _credentials(store)


def _credentials(store: StoreSection) -> dict[str, str]:
    if not store.has_keys:
        if store.profile is not None:
            return {
                "aws.credentials.provider": f"{_HADOOP}.auth.ProfileAWSCredentialsProvider",
                "auth.profile.name": store.profile,
            }
        return {"aws.credentials.provider": f"{_AUTH}.DefaultCredentialsProvider"}
    key_id, secret, token = store.keys().reveal()
    found = {"access.key": key_id, "secret.key": secret}
    if token:
        provider = f"{_HADOOP}.TemporaryAWSCredentialsProvider"
        return {**found, "session.token": token, "aws.credentials.provider": provider}
    return {**found, "aws.credentials.provider": f"{_HADOOP}.SimpleAWSCredentialsProvider"}
