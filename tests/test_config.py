"""The pipeline file: what is refused, and in which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import config
from penstock.errors import ConfigError
from penstock.sinks.lake.iceberg.options import IcebergOptions
from penstock.sources.mysql.options import options_of

GOOD: dict[str, Any] = {
    "name": "shop",
    "source": {"user": "reader", "host": "db"},
    "tables": ["shop.*"],
    "state": "state",
    "sink": {"path": "lake"},
}


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text(text, "utf-8")
    return path


def test_relative_paths_count_from_the_files_folder(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "name: a\nsource: {user: u, tls_ca: ca.pem}\ntables: shop.*\nstate: st\nsink: {path: ../lake}\n",
    )
    loaded = config.load(path)
    assert loaded.state == tmp_path / "st"
    assert options_of(loaded).tls_ca == tmp_path / "ca.pem"
    assert isinstance(loaded.sink, IcebergOptions) and loaded.sink.path == tmp_path.parent / "lake"
    assert loaded.relay_log_path == tmp_path / "st" / "relay"


def test_staging_is_a_url_or_a_path_and_the_state_without_it(tmp_path: Path) -> None:
    where = {"s3://bucket/x": "s3://bucket/x", "file:///data/x": "file:///data/x", "there": "there"}
    for written, meant in where.items():
        found = config.parse({**GOOD, "staging": written}, base=tmp_path).staging_url
        assert found == (meant if "://" in meant else (tmp_path / meant).as_uri())
    assert config.parse(GOOD, base=tmp_path).staging_url == (tmp_path / "state" / "staging").as_uri()


def test_on_a_cluster_staging_is_an_object_store_or_said_to_be_shared() -> None:
    for staging in ("s3://bucket/x", "file:///shared"):
        config.parse({**GOOD, "spark": {"master": "spark://h:7077"}, "staging": staging})


def test_environment_variables_are_replaced_and_a_missing_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "name: a\nsource: {user: u, password: '${SHOP_PW}'}\ntables: [shop.*]\nstate: s\n")
    monkeypatch.setenv("SHOP_PW", "s3cret")
    assert options_of(config.load(path)).password.reveal() == "s3cret"
    monkeypatch.delenv("SHOP_PW")
    with pytest.raises(ConfigError, match="SHOP_PW is not set"):
        config.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tabels": []}, "unknown option `tabels` (did you mean `tables`?)"),
        ({"source": {"user": "u", "hots": "x"}}, "unknown option `source.hots` (did you mean `host`?)"),
        ({"source": {}}, "option `source.user` is missing"),
        ({"tables": ["orders"]}, "names no database"),
        ({"tables": []}, "option `tables.include`"),
        ({"name": "no spaces"}, "option `name`"),
        ({"source": {"user": "u", "start": "yesterday"}}, "option `source.start.at`"),
        ({"source": {"user": "u", "start": {"file": "binlog.1"}}}, "`file` and `position` go together"),
        ({"source": {"user": "u", "start": {"at": "latest", "gtid": "x:1"}}}, "give one of"),
        ({"start": "latest"}, "unknown option `start` (did you mean `source.start`?)"),
        ({"snapshot": {"watermark_table": "a.b"}}, "(did you mean `source.watermark_table`?)"),
        ({"source": {"type": "oracle"}, "start": "latest"}, "oracle is not a kind of source"),
        ({"epoch": {"bytes_max": "lots"}}, "is not a size; write for example 256MiB"),
        ({"epoch": {"interval": "soon"}}, "is not a duration"),
        ({"epoch": {"task_bytes": "1KiB"}}, "option `epoch.task_bytes`"),
        ({"retries": {"attempts_max": 0}}, "option `retries.attempts_max`"),
        ({"retries": {"restarts": 3}}, "unknown option `retries.restarts` (did you mean `restarts_max`?)"),
        ({"report_interval": "5min"}, "option `report_interval`"),
        ({"schema": {"rereads_max": 0}}, "option `schema.rereads_max`"),
        ({"sink": {"type": "delta"}}, "option `sink.path` of the sink delta is missing"),
        (
            {"sink": {"type": "hudi"}},
            "option `sink.type`: hudi is not a kind of sink. One of: iceberg,",
        ),
        (
            {"sink": {"fold_commit": 3}},
            "`sink.fold_commit` of the sink iceberg (did you mean `fold_",
        ),
        (
            {"sink": {"type": "delta", "path": "x", "fold_commits": 3}},
            "unknown option `sink.fold_commits` of the sink delta",
        ),
        ({"sink": {"type": "console", "before_image": False}}, "(did you mean `before_images`?)"),
        ({"sink": {"fold_commits": 0}}, "option `sink.fold_commits`: it must be greater than or equal to"),
        (
            {"transforms": [{"tables": "a.b", "hsah": ["x"]}]},
            "unknown option `transforms.0.hsah` (did you mean `hash`?)",
        ),
        ({"sink": "iceberg"}, "option `sink`: this is a section: write its options below it"),
        ({"epoch": 5}, "option `epoch`: this is a section"),
        (
            {"snapshot": None},
            "option `snapshot`: this is a section: write its options below it, indented, or remove",
        ),
        (
            {"name": False},
            "option `name`: write a text; put it in quotes (without quotes, YAML takes on, off",
        ),
        ({"source": {"user": "u", "port": "abc"}}, "option `source.port`: write a whole number."),
        ({"tables": {"include": 5}}, "option `tables.include`: write a list"),
        ({"snapshot": {"mode": "always"}}, "option `snapshot.mode`: it must be 'initial', 'never' or"),
        ({"sink": {"type": "parquet", "path": "s3://bucket/x"}}, "option `sink.path`: this is a directory"),
        (
            {"sink": {"type": "delta", "path": "ftp://host/x"}},
            "option `sink.path`: write a directory, or a URL",
        ),
        ({"sink": {"type": "iceberg", "path": "s3a://b/x"}}, "the sink iceberg with a section `catalog`"),
        ({"staging": "ftp://host/x"}, "option `staging`: There is no store for ftp:// URLs"),
        ({"staging": "s3://key:secret@bucket/x"}, "Credentials do not belong into the URL"),
        ({"spark": {"master": "yarn"}}, "`staging: s3://bucket/path`"),
        (
            {"spark": {"conf": {"spark.sql.session.timeZone": "Europe/Berlin"}}},
            "option `spark.conf`: spark.sql.session.timeZone must be UTC for a pipeline; leave it out",
        ),
        (
            {"spark": {"conf": {"spark.sql.sources.partitionOverwriteMode": "dynamic"}}},
            "spark.sql.sources.partitionOverwriteMode must be static",
        ),
        ({"spark": {"master": "spark://h:7077"}, "staging": "/data"}, "`staging: file:///path`"),
        ({"store": {"endpoint": "minio:9000"}}, "option `store.endpoint`: write an address that begins with"),
        ({"store": {"endpoint": "http://a:b@minio"}}, "no credentials in it"),
        ({"store": {"access_key_id": "x"}}, "`access_key_id` and `secret_access_key` go together"),
        ({"store": {"session_token": "x"}}, "`session_token` needs"),
        (
            {"store": {"access_key_id": "x", "secret_access_key": "y", "profile": "z"}},
            "give keys or a `profile`",
        ),
        ({"source": {"user": "u", "port": 70000}}, "option `source.port`"),
        ({"merge_shards": [{"tables": "orders_*", "into": "shop.orders"}]}, "names no database"),
        ({"merge_shards": [{"tables": [], "into": "shop.orders"}]}, "`tables` names no table"),
        ({"merge_shards": [{"tables": "shop.o_*", "into": "shop.o_*"}]}, "write it as one name"),
        ({"merge_shards": [{"tables": "shop.o_*"}]}, "option `merge_shards.0.into` is missing"),
        (
            {"merge_shards": [{"table": "shop.o_*", "into": "shop.o"}]},
            "unknown option `merge_shards.0.table`",
        ),
        (
            {"merge_shards": [{"tables": "shop.o_*", "into": "shop.o", "shard_column": "_Sequence"}]},
            "is a name of Penstock's own columns",
        ),
        (
            {"merge_shards": [{"tables": "shop.o_*", "into": "shop.o", "shard_column": "a b"}]},
            "is no plain name of a column",
        ),
        ({"merge_shards": [{"tables": "shap.o_*", "into": "shop.o"}]}, "no table that `tables` captures can"),
        (
            {
                "merge_shards": [
                    {"tables": "shop.o_*", "into": "shop.o"},
                    {"tables": ["shop.x", "shop.*_1"], "into": "shop.p"},
                ]
            },
            "a table can match both `shop.o_*` and `shop.*_1`",
        ),
        (
            {
                "merge_shards": [
                    {"tables": "shop.o_*", "into": "shop.o"},
                    {"tables": "shop.p_*", "into": "shop.o"},
                ]
            },
            "two rules have `into: shop.o`",
        ),
        (
            {"tables": ["shop.o_*", "shop.o"], "merge_shards": [{"tables": "shop.o_*", "into": "shop.o"}]},
            "`into: shop.o` is itself a captured table",
        ),
        (
            {
                "sink": {"type": "parquet", "path": "x"},
                "merge_shards": [{"tables": "shop.o_*", "into": "shop.o"}],
            },
            "`merge_shards` needs the sink iceberg or delta, not parquet",
        ),
        (
            {"merge_shards": [{"tables": "shop.o_*", "into": "penstock.shop_schema_history"}]},
            "`merge_shards` and `schema.history_table` name one target",
        ),
        ({"http": {}}, "option `http.tokens` is missing"),
        ({"http": {"tokens": {}}}, "at least 1 item"),
        ({"http": {"tokens": {"a": {"token": "short"}}}}, "at least 16 characters"),
        ({"http": {"tokens": {"a": {"token": "a token with spaces"}}}}, "without spaces"),
        ({"http": {"tokens": {"a": {"token": "x" * 16}}, "listen": "8190"}}, "write it as host:port"),
        ({"http": {"tokens": {"a": {"token": "x" * 16}}, "listen": "a:65536"}}, "write it as host:port"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_expected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.parse({**GOOD, **change})
    assert message in str(caught.value)


def test_http_is_answered_on_loopback_to_holders_of_tokens_that_are_never_shown() -> None:
    assert config.parse(GOOD).http is None
    http = config.parse({**GOOD, "http": {"tokens": {"a": {"token": "sixteen-letters!"}}}}).http
    assert http is not None and http.listen == "127.0.0.1:8190" and http.tokens["a"].role == "reader"
    assert "sixteen" not in repr(http)
    with pytest.raises(ConfigError) as caught:
        config.parse({**GOOD, "http": {"tokens": {"a": {"token": "secret but wrong"}}}})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "- a\n", "name: [\n", "\xff"])
def test_a_file_that_is_no_mapping_is_refused_without_a_stack_trace(tmp_path: Path, text: str) -> None:
    path = tmp_path / "shop.yaml"
    path.write_bytes(text.encode("latin1"))
    with pytest.raises(ConfigError, match=r"shop\.yaml"):
        config.load(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.yaml cannot be read"):
        config.load(tmp_path / "nothing.yaml")


def test_sizes_and_times_are_read_with_their_units() -> None:
    parsed = config.parse({**GOOD, "epoch": {"bytes_max": "1.5GiB", "interval": "2s"}})
    assert parsed.epoch.bytes_max == 1536 * 1024**2
    assert parsed.epoch.interval == 2000


def test_waits_between_attempts_end_at_the_limit_of_the_file() -> None:
    schedule = config.parse({**GOOD, "retries": {"wait_max": "3s"}}).retries.schedule(1.0)
    assert [schedule.seconds(failures) for failures in (1, 2, 3, 9)] == [1, 2, 3, 3]


@pytest.mark.parametrize(
    ("change", "rereads_max"),
    [
        ({}, 3),
        ({"schema": {"rereads_max": 7}}, 7),
        ({"schema": {"rereads": "fail"}}, 0),
        ({"source": {"type": "debezium", "bootstrap": "kafka:9092", "topics": "shop.*"}}, 0),
        ({"schema": {"rereads": "keep", "rereads_max": 7}}, 0),
        ({"snapshot": {"mode": "never"}}, 0),
    ],
)
def test_tables_are_read_again_only_where_the_policy_lets_them(
    change: dict[str, Any], rereads_max: int
) -> None:
    assert config.parse({**GOOD, **change}).rereads_max == rereads_max


def test_what_is_saved_is_loaded_again_and_is_nobody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths mean the same, though the file lies elsewhere."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "other" / "saved.yaml"
    path.parent.mkdir()
    http = {"listen": "[::1]:0", "tokens": {"a": {"token": "x" * 16}}}
    shards = [{"tables": ["shop.o_*"], "into": "shop.o", "shard_column": "part"}]
    options = {**GOOD, "merge_shards": shards, "http": http}
    config.save(config.parse(options), path)
    absolute = {"state": str(tmp_path / "state"), "sink": {"path": str(tmp_path / "lake")}}
    assert config.load(path) == config.parse(options | absolute)
    assert path.stat().st_mode & 0o777 == 0o600
