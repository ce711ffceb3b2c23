"""The section `sink.catalog`: what it becomes in Spark, what it needs, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import config as configuration
from penstock.config import PipelineConfig
from penstock.errors import ConfigError
from penstock.sinks import registry
from penstock.sinks.lake.iceberg.catalog_options import Storage, storage_of
from penstock.sinks.lake.iceberg.registration import METADATA_CACHE_JAR
from penstock.sinks.lake.index.place import INDEX_DIRECTORY

BASE = {"name": "shop", "source": {"user": "cdc"}, "tables": ["shop.*"], "state": "state"}
REST = {"type": "rest", "uri": "http://host/iceberg"}
JDBC = {"type": "jdbc", "uri": "jdbc:sqlite:/x/c.db", "warehouse": "s3://bucket/wh"}
LIMITS = {"rest.client.connection-timeout-ms": "10000", "rest.client.socket-timeout-ms": "120000"}
S3_IO = "org.apache.iceberg.aws.s3.S3FileIO"
CACHE = "penstock.iceberg.MetadataCache"


def read(**catalog: Any) -> PipelineConfig:
    return configuration.parse({**BASE, "sink": {"catalog": catalog}})


def options(**catalog: Any) -> dict[str, str]:
    """The options of the catalog in Spark, without their common beginning."""
    config = read(**catalog)
    found = config.sink_kind.spark_options(config.sink, {}, Path("/state"))
    prefix = f"spark.sql.catalog.{catalog.get('name', 'lake')}"
    assert found.pop("spark.sql.extensions").endswith("IcebergSparkSessionExtensions")
    assert found.pop(prefix) == "org.apache.iceberg.spark.SparkCatalog"
    assert found.pop(f"{prefix}.cache-enabled") == "false"
    assert found.pop(INDEX_DIRECTORY) == "/state/index"
    return {name.removeprefix(f"{prefix}."): value for name, value in found.items()}


def jars(**catalog: Any) -> list[str]:
    config = read(**catalog)
    return [jar.split(":")[1] for jar in config.sink_kind.jars_for(config.sink)]


def test_a_rest_catalog_is_asked_for_credentials() -> None:
    found = options(
        **REST, warehouse="wh", credential="me:hunter2", scope="all", **{"oauth2-server-uri": "https://a"}
    )
    assert found == {
        "type": "rest", "uri": "http://host/iceberg", "warehouse": "wh", "credential": "me:hunter2",
        "scope": "all", "oauth2-server-uri": "https://a",
        "header.X-Iceberg-Access-Delegation": "vended-credentials", "io-impl": CACHE, **LIMITS,
    }  # fmt: skip


def test_a_user_with_keys_of_his_own_asks_a_rest_catalog_for_none() -> None:
    found = options(**REST, properties={"s3.access-key-id": "k", "s3.path-style-access": True})
    assert found == {
        "type": "rest",
        "uri": "http://host/iceberg",
        "s3.access-key-id": "k",
        "s3.path-style-access": "true",
        "io-impl": CACHE,
        **LIMITS,
    }


def test_a_jdbc_catalog_has_its_account_and_the_file_io_of_its_warehouse() -> None:
    assert options(**JDBC, user="me", password="hunter2", name="prod") == {
        "type": "jdbc", "uri": "jdbc:sqlite:/x/c.db", "warehouse": "s3://bucket/wh", "io-impl": CACHE,
        "jdbc.schema-version": "V1", "jdbc.user": "me", "jdbc.password": "hunter2",
    }  # fmt: skip


def test_a_property_of_the_user_wins() -> None:
    assert options(**JDBC, properties={"jdbc.schema-version": "V0", "io-impl": "x.Y"})["io-impl"] == "x.Y"
    assert options(**JDBC, properties={"jdbc.schema-version": "V0"})["jdbc.schema-version"] == "V0"


def test_a_metastore_a_directory_and_glue() -> None:
    hive = {"type": "hive", "uri": "thrift://a:9083,thrift://b:9083"}
    assert options(**hive) == {**hive, "hadoop.hive.metastore.client.socket.timeout": "60s"}
    hadoop = {"type": "hadoop", "warehouse": "/srv/lake"}
    assert options(**hadoop) == hadoop
    assert read(**hadoop).sink.directory == Path("/srv/lake")
    assert options(type="glue", warehouse="s3://b/x")["io-impl"] == CACHE


def test_metadata_is_remembered_in_object_stores() -> None:
    def own_jars(**catalog: Any) -> tuple[Path, ...]:
        config = read(**catalog)
        return config.sink_kind.own_jars(config.sink)

    assert own_jars(**JDBC) == own_jars(**REST) == (METADATA_CACHE_JAR,)
    for other in ({"type": "hadoop", "warehouse": "hdfs://h/lake"}, {**REST, "storage": "files"},
                  {**JDBC, "properties": {"io-impl": S3_IO}}):  # fmt: skip
        assert own_jars(**other) == () and options(**other).get("io-impl") != CACHE


@pytest.mark.parametrize(
    ("catalog", "storage"),
    [
        (REST, "s3"),
        ({**REST, "storage": "gcs"}, "gcs"),
        ({**REST, "properties": {"adls.sas-token.x": "y"}}, "azure"),
        (JDBC, "s3"),
        ({**JDBC, "warehouse": "s3a://bucket/wh"}, "s3"),
        ({**JDBC, "warehouse": "gs://bucket/wh"}, "gcs"),
        ({**JDBC, "warehouse": "/srv/lake"}, "files"),
        ({**JDBC, "warehouse": "/srv/lake", "properties": {"s3.endpoint": "http://h"}}, "files"),
        ({**JDBC, "warehouse": "hdfs://h/lake", "properties": {"client.region": "x"}}, "files"),
        ({**JDBC, "properties": {"io-impl": "org.other.Io"}}, "files"),
        ({"type": "hive", "uri": "thrift://h:1"}, "files"),
        ({"type": "hive", "uri": "thrift://h:1", "properties": {"client.region": "eu-west-1"}}, "s3"),
    ],
)
def test_the_store_is_known_by_url_properties_or_type(catalog: dict[str, Any], storage: Storage) -> None:
    sink: Any = read(**catalog).sink
    assert storage_of(sink.catalog) == storage


def test_jars_are_those_of_the_store_and_of_the_database() -> None:
    assert jars(**REST) == ["iceberg-aws-bundle"]
    assert jars(**REST, storage="files") == []
    assert jars(**JDBC) == ["iceberg-aws-bundle", "sqlite-jdbc"]
    for product, driver in (
        ("postgresql", "postgresql"), ("mysql", "mysql-connector-j"), ("mariadb", "mariadb-java-client")
    ):  # fmt: skip
        assert jars(type="jdbc", uri=f"jdbc:{product}://h/d", warehouse="/srv/lake") == [driver]
    assert jars(type="jdbc", uri="jdbc:oracle:thin:@h", warehouse="/srv/lake") == []
    assert jars(type="hive", uri="thrift://h:1", warehouse="hdfs://h/x") == []
    config = configuration.parse({**BASE, "sink": {"catalog": "prod"}})
    assert config.sink_kind.jars_for(config.sink) == ()


REFUSED: dict[str, tuple[Any, str]] = {
    "unknown type": ({"type": "rset"}, "`sink.catalog.type`: rset is not a type of catalog; there are rest,"),
    "no type": ({"uri": "http://h"}, "`sink.catalog.type` of the sink iceberg is missing"),
    "no section": (3, "`sink.catalog`: write a section with `type`, or the name of a catalog in Spark"),
    "no uri": ({"type": "rest"}, "`sink.catalog.uri` of the sink iceberg is missing"),
    "typo": ({**REST, "warehous": "x"}, "unknown option `sink.catalog.warehous` .*did you mean `warehouse`"),
    "other type's option": ({**REST, "password": "x"}, "unknown option `sink.catalog.password`"),
    "no address": ({"type": "rest", "uri": "host:1"}, "http:// or https://"),
    "no pair": ({**REST, "credential": "hunter2"}, "`ID:SECRET`"),
    "two logins": ({**REST, "credential": "a:hunter2", "token": "x"}, "`credential` or `token`, not both"),
    "no jdbc": ({**JDBC, "uri": "postgresql://h"}, "begins with jdbc:"),
    "relative database": ({**JDBC, "uri": "jdbc:sqlite:c.db"}, "absolute path, jdbc:sqlite:/path"),
    "relative warehouse": ({**JDBC, "warehouse": "lake"}, "write a URL, or an absolute path"),
    "no thrift": ({"type": "hive", "uri": "host:9083"}, "thrift://"),
    "directory on S3": ({"type": "hadoop", "warehouse": "s3://b/x"}, "cannot be in an object store"),
    "said twice": ({**REST, "properties": {"uri": "x"}}, "`properties` has uri; give it as the option `uri`"),
    "account twice": ({**JDBC, "properties": {"jdbc.user": "x"}}, "as the option `user`"),
    "name": ({**REST, "name": "my-lake"}, "`sink.catalog.name`"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_meant_is_refused_by_name(what: str) -> None:
    catalog, said = REFUSED[what]
    with pytest.raises(ConfigError, match=said) as refused:
        configuration.parse({**BASE, "sink": {"catalog": catalog}})
    assert "hunter2" not in str(refused.value)


def test_a_catalog_with_a_section_has_no_path_beside_it() -> None:
    with pytest.raises(ConfigError, match=r"`catalog\.warehouse`"):
        configuration.parse({**BASE, "sink": {"path": "lake", "catalog": REST}})


def test_secrets_are_shown_nowhere_and_saved_to_the_file_alone(tmp_path: Path) -> None:
    config = read(**JDBC, password="hunter2", properties={"s3.secret-access-key": "hunter3"})
    shown = f"{config!r} {config.model_dump()} {config.model_dump_json()}"
    assert "hunter" not in shown
    configuration.save(config, tmp_path / "file.yaml")
    assert configuration.load(tmp_path / "file.yaml").sink == config.sink
    assert (tmp_path / "file.yaml").stat().st_mode & 0o777 == 0o600


def test_a_name_means_what_it_meant(tmp_path: Path) -> None:
    kind = registry.kind("iceberg")
    made = kind.spark_options(kind.example(tmp_path), {}, tmp_path)
    assert made["spark.sql.catalog.lake.type"] == "hadoop"
    assert made["spark.sql.catalog.lake.warehouse"] == str(tmp_path)
