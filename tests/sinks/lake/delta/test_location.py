"""Where Delta tables may be, and how Spark reaches them there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.artifacts.pinned import SHA256
from penstock.sinks.lake.access import S3Options, hadoop_options
from penstock.sinks.lake.delta.location import DIRECTORY_LOG_STORE_JAR, LOG_STORE_JAR, S3_JARS, hadoop_url
from penstock.sinks.lake.delta.options import DeltaOptions
from penstock.sinks.lake.delta.registration import DELTA
from penstock.spark.session import at_launch

ROOT = Path(__file__).resolve().parents[4]
KEYS = {"access_key_id": "id", "secret_access_key": "hunter2-9137"}


def delta(path: str, **store: Any) -> DeltaOptions:
    return DeltaOptions.model_validate({"type": "delta", "path": path, **({"store": store} if store else {})})


def s3a(options: DeltaOptions, bucket: str = "lake") -> dict[str, str]:
    prefix = f"spark.hadoop.fs.s3a.bucket.{bucket}."
    found = DELTA.spark_options(options, {}, Path())
    return {name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)}


def reached(options: DeltaOptions) -> S3Options | None:
    """How Penstock itself reaches the bucket, with the options that S3A has."""
    known = s3a(options)
    return hadoop_options(lambda name: known.get(name, ""))


def test_only_paths_on_s3_need_the_jars_for_s3() -> None:
    for options in (delta("lake"), delta("/lake"), delta("hdfs://namenode/lake"), delta("gs://bucket/lake")):
        assert DELTA.jars_for(options) == () and s3a(options) == {}
    assert DELTA.own_jars(delta("hdfs://namenode/lake")) == ()
    assert DELTA.own_jars(delta("lake")) == (DIRECTORY_LOG_STORE_JAR,)
    assert DELTA.jars_for(delta("s3://lake/x")) == S3_JARS
    assert DELTA.own_jars(delta("s3://lake/x")) == (LOG_STORE_JAR,)
    names = ["-".join(jar.split(":")[1:]) + ".jar" for jar in S3_JARS]
    assert [name for name in names if name not in SHA256] == []


def test_a_relative_path_stays_a_path_and_a_url_a_url() -> None:
    assert delta("lake").directory == Path("lake") and delta("s3://lake/x/").directory is None
    assert delta("s3://lake/x/").path == "s3://lake/x" and hadoop_url("s3://lake/x") == "s3a://lake/x"


@pytest.mark.parametrize(
    ("path", "store", "message"),
    [
        ("ftp://host/x", {}, "begins with s3://"),
        ("s3://key:hunter2-9137@lake/x", {}, "no credentials"),
        ("s3:///x", {}, "s3://bucket/path"),
        ("s3://lake/x?region=eu", {}, "without `\\?`"),
        ("lake", {"region": "eu-central-1"}, "`store` is for s3:// paths"),
        ("gs://lake/x", {"region": "eu-central-1"}, "`store` is for s3:// paths"),
        ("s3://lake/x", {"access_key_id": "id"}, "go together"),
    ],
)
def test_what_cannot_work_is_refused_at_once(path: str, store: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        delta(path, **store)
    assert "hunter2" not in str(caught.value).partition("input_value")[0]


def test_spark_and_penstock_use_the_same_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_REGION", raising=False)
    found = reached(delta("s3://lake/x", endpoint="http://localhost:9000", **KEYS))
    assert found is not None and found.keys is not None
    assert found.keys.reveal() == ("id", "hunter2-9137", "")
    assert (found.endpoint, found.region, found.path_style) == ("http://localhost:9000", "us-east-1", True)


def test_a_token_of_the_environment_is_not_added_to_given_keys() -> None:
    known = {**s3a(delta("s3://lake/x", **KEYS)), "session.token": "of others"}
    found = hadoop_options(lambda name: known.get(name, ""))
    assert found is not None and found.keys is not None and found.keys.reveal()[2] == ""
    token = reached(delta("s3://lake/x", **KEYS, session_token="ours"))
    assert token is not None and token.keys is not None and token.keys.reveal()[2] == "ours"


def test_no_key_is_in_the_arguments_of_a_process_or_on_sparks_pages() -> None:
    found = DELTA.spark_options(delta("s3://lake/x", **KEYS, session_token="hunter2-token"), {}, Path())
    assert "hunter2-9137" in found.values() and "hunter2-token" in found.values()
    assert not any("hunter2" in value for value in at_launch(found).values())
    assert "hunter2" not in repr(delta("s3://lake/x", **KEYS))


def test_without_keys_both_look_where_other_programs_do() -> None:
    for store, profile in (({"region": "eu-central-1"}, ""), ({"profile": "lakes"}, "lakes")):
        found = reached(delta("s3://lake/x", **store))
        assert found is not None and found.keys is None and found.profile == profile
