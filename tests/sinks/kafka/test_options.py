"""Options of the sink kafka, names of topics, and the partitioner's hash."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from penstock.config import PipelineConfig, parse
from penstock.errors import ConfigError
from penstock.model.schema import EXACT_TYPES, TableId
from penstock.sinks.kafka.names import murmur2, topic_name
from penstock.sinks.kafka.options import KafkaOptions
from penstock.sinks.kafka.probe import probe
from penstock.sinks.kafka.sink import KafkaSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pipeline(sink: dict[str, Any], **sections: Any) -> PipelineConfig:
    return parse({
        "name": "p",
        "source": {"host": "h", "user": "u", "password": "p"},
        "tables": ["shop.*"],
        "sink": {"type": "kafka", "bootstrap": "127.0.0.1:9092", **sink},
        "state": str(Path("/tmp/state")),
        **sections,
    })  # fmt: skip


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        ({"format": "avrow"}, "there is no format `avrow`; `penstock docs formats`"),
        ({"format": "maxwell", "options": {"output_nuls": True}}, "unknown field `output_nuls`"),
        ({"topic": "{schema}"}, "there is no {schema}; a topic's name may have {source}"),
        ({"order": "log", "partitions": 3}, "`order: log` means topics with one partition"),
        ({"order": "log", "partition": "table"}, "`order: log` means topics with one partition"),
        ({"topcs": []}, "unknown option `sink.topcs` of the sink kafka (did you mean `topics`?)"),
        ({"topics": [{"match": "orders"}]}, "'orders' names no database"),
        ({"format": "avro"}, "the format avro needs a schema registry (`sink.registry`)"),
        ({"registry": {"url": "http://r"}}, "the format debezium does not take a schema registry"),
        ({"bootstrap": None}, "option `sink.bootstrap`"),
        ({"partition": "columns"}, "`partition: columns` and `partition_columns` belong together"),
        ({"partition_columns": "id"}, "`partition: columns` and `partition_columns` belong together"),
        ({"topics": [{"match": "a.b", "partition": "columns"}]}, "belong together"),
        ({"dynamic_topic": "a:shop\\.(x"}, "`shop\\.(x` is no regular expression: missing )"),
        ({"partition_hash": "shop\\.[:id"}, "`shop\\.[` is no regular expression"),
        ({"partition_hash": "shop.t:"}, "names no columns: write `shop.t:id^name`"),
        ({"partition_hash": "shop.t:id", "order": "table"}, "`partition_hash` decides partitions"),
        ({"partition_hash": "shop.t:id", "partition": "table"}, "`partition_hash` decides partitions"),
        ({"topic_routes": [{"regex": "(a", "replacement": "b"}]}, "`(a` is no regular expression"),
        ({"topic_routes": [{"regex": "a", "replacement": "$1"}]}, "names a group that `a` does not have"),
    ],
)
def test_what_cannot_work_is_refused(sink: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        pipeline(sink)
    assert said in str(refused.value)


def test_values_are_staged_so_that_nothing_of_them_is_lost() -> None:
    assert pipeline({}).types == EXACT_TYPES
    assert pipeline({}, types={"zero_dates": "text"}).types == EXACT_TYPES
    with pytest.raises(ConfigError, match="`types` has no meaning for the sink kafka"):
        pipeline({}, types={"decimal": "double"})
    assert pipeline({}).history_table is None


def test_the_clients_settings_are_not_shown() -> None:
    config = pipeline({"client": {"sasl.password": "tell-nobody"}})
    assert "tell-nobody" not in repr(config) + config.model_dump_json()
    assert isinstance(config.sink, KafkaOptions)
    assert config.sink.client_settings()["sasl.password"] == "tell-nobody"


def test_debeziums_prefix_is_the_source() -> None:
    options = pipeline({"source": "inventory", "topic": "{source}.{database}.{table}"}).sink
    assert isinstance(options, KafkaOptions)
    assert options.format_options == '{"topic_prefix": "inventory"}'
    assert topic_name(options.topic, options.source, TableId("shop", "orders")) == "inventory.shop.orders"


def test_unusual_names_have_topics_of_their_own() -> None:
    names = {
        topic_name("{database}.{table}", "s", TableId("d", table)) for table in ("a b", "a/b", "a_b", "ä")
    }
    assert len(names) == 4 and "d.a_b" in names
    long = topic_name("{database}.{table}", "s", TableId("d" * 200, "t" * 200))
    assert len(long) <= 249
    assert long != topic_name("{database}.{table}", "s", TableId("d" * 200, "t" * 199 + "u"))


@pytest.mark.parametrize(
    ("text", "java"),
    [  # from the tests of Kafka's own `Utils.murmur2`
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
    ],
)
def test_the_hash_is_that_of_javas_client(text: str, java: int) -> None:
    assert murmur2(text.encode()) == java & 0x7FFFFFFF


@pytest.mark.parametrize(
    ("sink", "names"),
    [
        ({"dynamic_topic": "all:shop\\.orders_.*;shop"}, ["all", "all", "shop"]),
        ({"topic_routes": [{"regex": "(.*)orders_\\d+", "replacement": "$1orders"}]},
         ["shop.orders", "shop.orders", "shop.events"]),
        ({"topic": "{table}", "topic_routes": [{"regex": "(?<name>[a-z]+)_1", "replacement": "v2.${name}"},
                                               {"regex": "orders.*", "replacement": "rest"}]},
         ["v2.orders", "rest", "events"]),
        ({"topics": [{"match": "shop.orders_1", "topic": "one"}], "dynamic_topic": "d:shop"},
         ["one", "d", "d"]),
    ],
)  # fmt: skip
def test_rules_name_topics(sink: dict[str, Any], names: list[str]) -> None:
    options = pipeline(sink).sink
    assert isinstance(options, KafkaOptions)
    assert [options.topic_of(TableId("shop", one)) for one in ("orders_1", "orders_2", "events")] == names


@pytest.mark.parametrize(
    ("client", "said"),
    [
        ({"nonsense": "tell-nobody"}, 'No such configuration property: "nonsense"'),
        ({"security.protocol": "tell-nobody"}, 'for configuration property "security.protocol"'),
        ({"linger.ms": "tell-nobody"}, "Invalid value for configuration property"),
        ({"batch.num.messages": "0"}, "outside allowed range"),
    ],
)
def test_settings_that_the_client_refuses_are_named_without_their_values(
    client: dict[str, str], said: str
) -> None:
    options = pipeline({"client": client}).sink
    assert isinstance(options, KafkaOptions)
    with pytest.raises(ConfigError, match=r"Correct `sink.client`") as refused:
        KafkaSink(options, "p")
    assert said in refused.value.message and "tell-nobody" not in str(refused.value)
    [found] = probe(options)(cast("SparkSession", None), ())
    assert not found.ok and "`sink.client`" in found.message and "tell-nobody" not in found.message
