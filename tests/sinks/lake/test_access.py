"""How Penstock reaches the files of a table: by what the table's own library was told."""

from __future__ import annotations

from datetime import datetime, timezone

from penstock.sinks.lake.access import S3Options, hadoop_options, iceberg_options

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
