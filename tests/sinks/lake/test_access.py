"""How Penstock reaches the files of a table: by what the table's own library was told."""

from __future__ import annotations

import pickle
from datetime import datetime, timezone

import pytest
from pyspark.sql import SparkSession

from penstock.sinks.lake import access
from penstock.sinks.lake.access import Access, S3Options, hadoop_options, iceberg_options
from penstock.store.credentials import KeysFromFile
from penstock.store.files import ObjectFiles

KEYS = {"s3.access-key-id": "id", "s3.secret-access-key": "secret"}


def shown(found: S3Options | None) -> tuple[object, ...] | None:
    if found is None:
        return None
    return found.endpoint, found.region, found.path_style, None if found.keys is None else found.keys.reveal()


def test_iceberg_says_how_to_reach_a_bucket() -> None:
    assert shown(iceberg_options({})) == ("", "", False, None), "the environment, a profile or a role"
    assert shown(iceberg_options(KEYS)) == ("", "", False, ("id", "secret", ""))
    everything = {
        **KEYS,
        "s3.endpoint": "http://h:1",
        "client.region": "eu-west-1",
        "s3.path-style-access": "true",
        "s3.session-token": "token",
        "s3.session-token-expires-at-ms": "1800000000000",
    }
    found = iceberg_options(everything)
    assert shown(found) == ("http://h:1", "eu-west-1", True, ("id", "secret", "token"))
    assert found is not None and found.keys is not None
    assert found.keys.ends == datetime(2027, 1, 15, 8, tzinfo=timezone.utc)


def test_what_only_iceberg_can_do_is_left_to_it() -> None:
    assert iceberg_options({"client.factory": "org.example.Factory"}) is None
    assert iceberg_options({"client.credentials-provider": "org.example.Provider"}) is None
    assert iceberg_options({**KEYS, "s3.remote-signing-enabled": "true"}) is None


class FileIO:
    """What `Access` asks of Iceberg's."""

    def __init__(self, properties: dict[str, str]) -> None:
        self._properties = properties

    def properties(self) -> dict[str, str]:
        return self._properties

    def getClass(self) -> FileIO:
        return self

    def getSimpleName(self) -> str:
        return "S3FileIO"

    def credentials(self) -> list[object]:
        return []


def test_keys_that_a_catalog_hands_out_anew_replace_the_old_ones(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "java_map", lambda spark, values: dict(values))
    reach = Access(spark)

    def keys_of(table: str, number: int) -> KeysFromFile:
        properties = {
            "s3.access-key-id": f"id-{number}",
            "s3.secret-access-key": f"s-{number}",
            "s3.session-token": "t",
        }
        folder = reach.folder(f"s3://lake/{table}/data", FileIO(properties))
        assert folder is not None and isinstance(folder.files, ObjectFiles)
        found = folder.files.options.credentials
        assert isinstance(found, KeysFromFile)
        pickle.dumps(folder)
        return found

    first, other = keys_of("a", 1), keys_of("b", 2)
    assert first != other, "each table has its own"
    for number in range(3, 20):
        assert keys_of("a", number) == first
    keys = first.keys()
    assert keys is not None and keys.reveal() == ("id-19", "s-19", "t")
    assert len(list(first.path.parent.iterdir())) == 2
    assert first.path.stat().st_mode & 0o777 == 0o600 and first.path.parent.stat().st_mode & 0o777 == 0o700
    reach.close()
    assert not first.path.parent.exists()


def test_hadoop_says_how_to_reach_a_bucket() -> None:
    def of(**options: str) -> tuple[object, ...] | None:
        found = {name.replace("_", "."): value for name, value in options.items()}
        return shown(hadoop_options(lambda name: found.get(name, "")))

    assert of() == ("", "", False, None)
    assert of(access_key="id", secret_key="s", session_token="t") == ("", "", False, ("id", "s", "t"))
    assert of(endpoint="h:1", connection_ssl_enabled="false", path_style_access="true") == (
        "http://h:1", "", True, None,
    )  # fmt: skip
    assert of(endpoint="s3.eu-west-1.amazonaws.com", endpoint_region="eu-west-1") == (
        "https://s3.eu-west-1.amazonaws.com", "eu-west-1", False, None,
    )  # fmt: skip
    usual = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
    assert of(aws_credentials_provider=usual) == ("", "", False, None)
    assert of(aws_credentials_provider=f"{usual},org.example.Provider") is None
