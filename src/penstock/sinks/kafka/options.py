"""The options of the sink `kafka`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator
from typing_extensions import Self

from penstock.model.schema import TableId
from penstock.model.section import Section
from penstock.model.units import Bytes, Milliseconds
from penstock.secret import Secret
from penstock.sinks.kafka import canal_rules
from penstock.sinks.kafka.names import TEMPLATE_NAMES, Renaming, safe_name, template_names, topic_name
from penstock.sinks.kafka.routing import PartitionBy, Routing
from penstock.sinks.kind import SinkOptions
from penstock.sinks.message_formats import check_format, format_options, tells_definitions
from penstock.sinks.schema_registry import RegistryOptions
from penstock.sinks.table_entries import Property, TableEntry, Texts, as_text

if TYPE_CHECKING:
    from penstock.sinks.base import Subject

Hidden = Annotated[Secret, BeforeValidator(as_text, json_schema_input_type=str | bool | int | float)]


def _checked_template(value: str) -> str:
    unknown = template_names(value) - TEMPLATE_NAMES
    if unknown:
        raise ValueError(
            f"there is no {{{min(unknown)}}}; a topic's name may have {{source}}, {{database}} and {{table}}"
        )
    return value


class TopicEntry(TableEntry):
    """An entry of `sink.topics`. For a table, the first entry that matches counts. What it leaves out is as
    in `sink`."""

    topic: str | None = None
    """Name of the topic, like `sink.topic`."""
    partition: PartitionBy | None = None
    """What decides the partition, like `sink.partition`."""
    partition_columns: Texts = ()
    """Columns for `partition: columns`."""
    partitions: int | None = Field(None, ge=1)
    """Number of partitions of a topic that is created."""

    _is_template = field_validator("topic")(lambda value: value and _checked_template(value))

    @model_validator(mode="after")
    def _columns_are_named(self) -> Self:
        _check_columns(self.partition, self.partition_columns)
        return self


class TopicRoute(Section):
    """Another name for topics, as by Debezium's ByLogicalTableRouter (`topic.regex`, `topic.replacement`).
    The first whose expression fits the whole name counts. Keys stay as they are."""

    regex: str
    """A regular expression for the whole name of a topic."""
    replacement: str
    """The new name. `$1` is what the first group of the expression fits."""

    @model_validator(mode="after")
    def _is_expression(self) -> Self:
        Renaming.of(self.regex, self.replacement)
        return self


def _check_columns(by: PartitionBy | None, columns: tuple[str, ...]) -> None:
    if (by == "columns") != bool(columns):
        raise ValueError("`partition: columns` and `partition_columns` belong together")


class KafkaOptions(SinkOptions):
    """Messages in topics of Kafka, in a format that consumers of other tools know."""

    type: Literal["kafka"]
    """Name of the sink."""
    bootstrap: str
    """Addresses of some brokers: `host:9092,host:9092`."""
    format: str = "debezium"
    """Format of the messages: debezium, maxwell, canal, json, cloudevents, avro, protobuf."""
    options: dict[str, str | bool | int | float] = Field(default_factory=dict)
    """Options of the format (docs/formats.md), for example `topic.prefix: shop`."""
    registry: RegistryOptions | None = None
    topic: str = "{database}.{table}"
    """Name of a table's topic. `{source}` is the pipeline's name at the source: Debezium's `topic.prefix`."""
    topics: tuple[TopicEntry, ...] = ()
    """Other names and partitions for some tables."""
    dynamic_topic: str | None = None
    """Rules for topics as Canal's `canal.mq.dynamicTopic`. Tables that no rule fits have `topic`."""
    topic_routes: tuple[TopicRoute, ...] = ()
    """Other names for topics, by regular expressions. They come last."""
    transaction_topic: str = "{source}.transaction"
    """Topic of the messages BEGIN and END (`provide.transaction.metadata` of the format debezium)."""
    schema_topic: str | None = None
    """Topic of the messages of changed definitions. None: with the format debezium
    (`include.schema.changes`) `{source}`, and with others the table's own topic."""
    source: str = "penstock"
    """What `{source}` stands for. With the format debezium also its option `topic.prefix`."""
    delivery: Literal["exactly_once", "at_least_once"] = "exactly_once"
    """`exactly_once`: consumers with `isolation.level=read_committed` see each message once. `at_least_once`:
    without transactions, so messages may come again after a crash."""
    order: Literal["key", "table", "log"] = "key"
    """Which messages keep their order: those of a key, of a table (each is in one partition), or all of a
    topic (which has one partition)."""
    partition: PartitionBy = "key"
    """What decides the partition of a message: its key, as the murmur2 partitioner of Java's client does it,
    its table, its database, its transaction, or the columns `partition_columns`. Messages without a key go by
    their table."""
    partition_columns: Texts = ()
    """Columns for `partition: columns`."""
    partition_hash: str | None = None
    """Rules for partitions as Canal's `canal.mq.partitionHash`, with the same results."""
    database_hash: bool = True
    """As Canal's `canal.mq.databaseHash`: the name of the database counts in `partition_hash`."""
    create_topics: bool = True
    """Create topics that do not exist. Without it, their tables are parked."""
    partitions: int = Field(1, ge=1)
    """Number of partitions of a topic that is created."""
    replication: int | None = Field(None, ge=1)
    """Copies of a topic that is created. None: as the brokers are configured."""
    retention: Milliseconds | None = None
    """`retention.ms` of a topic that is created. None: as the brokers are configured."""
    cleanup: Literal["delete", "compact", "compact,delete"] | None = None
    """`cleanup.policy` of a topic that is created. None: as the brokers are configured."""
    topic_config: dict[str, Property] = Field(default_factory=dict)
    """Other settings of a topic that is created."""
    message_bytes_max: Bytes = 1024**2
    """Largest message. A table with a larger one is parked. Brokers and topics have limits of their own
    (`message.max.bytes`, `max.message.bytes`); Kafka's default is 1 MiB."""
    commits_topic: str = "penstock-commits-{pipeline}"
    """The pipeline's own topic, in which it remembers what it has written. `{pipeline}` is its uuid."""
    client: dict[str, Hidden] = Field(default_factory=dict)
    """Settings of the client (librdkafka's `CONFIGURATION.md`), such as `security.protocol`,
    `sasl.username`, `sasl.password` or `compression.type`. Their values are not shown anywhere."""
    transaction_timeout: Milliseconds = Field(300_000, ge=1000)
    """Time in which an epoch must be written. If a pipeline is killed and not started again, consumers wait
    for its open transaction for this long. Brokers have a limit of their own (`transaction.max.timeout.ms`,
    15 min)."""
    request_timeout: Milliseconds = Field(30_000, ge=1000)
    """How long one attempt to write an epoch waits for brokers. Then it is tried again."""

    _is_template = field_validator("topic", "transaction_topic")(_checked_template)
    _may_be_template = field_validator("schema_topic")(lambda value: value and _checked_template(value))

    @model_validator(mode="after")
    def _rules_are_understood(self) -> Self:
        canal_rules.check(self.dynamic_topic or "")
        canal_rules.check_partitions(self.partition_hash or "")
        named = self.partition != "key" or any(one.partition for one in self.topics)
        if self.partition_hash is not None and (named or self.order != "key"):
            raise ValueError("`partition_hash` decides partitions; leave out `partition` and `order`")
        _check_columns(self.partition, self.partition_columns)
        return self

    @model_validator(mode="after")
    def _format_is_known(self) -> Self:
        check_format(self.format, self.format_options, self.registry)
        return self

    @model_validator(mode="after")
    def _order_and_partition_agree(self) -> Self:
        named = {self.partition, *(one.partition for one in self.topics)} - {"key", None}
        if self.order == "log" and (named or any((one.partitions or 1) > 1 for one in self.topics)):
            raise ValueError("`order: log` means topics with one partition; leave out `partition`")
        if self.order == "log" and self.partitions > 1:
            raise ValueError("`order: log` means topics with one partition; leave out `partitions`")
        return self

    @property
    def format_options(self) -> str:
        """The format's options as the core takes them."""
        return format_options(self.format, self.options, self.source, single_rows=self.single_rows)

    @property
    def single_rows(self) -> bool:
        """Whether Canal's messages have one row each, and a key: rows of one event may belong to several
        partitions."""
        if self.format != "canal":
            return False
        columns = any(rule is not None for _, rule in canal_rules.partition_rules(self.partition_hash or ""))
        by_columns = self.partition == "columns" or any(one.partition == "columns" for one in self.topics)
        return columns or by_columns or bool(self.options.get("single_rows", self.options.get("single.rows")))

    def topic_of(self, subject: Subject) -> str:
        """Name of the topic of messages."""
        if subject is None:
            return topic_name(self.transaction_topic, self.source, None)
        if not isinstance(subject, TableId):
            return topic_name(self.schema_topic or "{source}", self.source, None)
        entry = self.entry_of(subject)
        if entry is not None and entry.topic is not None:
            name = topic_name(entry.topic, self.source, subject)
        elif (found := canal_rules.dynamic_topic(self.dynamic_topic or "", subject)) is not None:
            name = safe_name(found)
        else:
            name = topic_name(self.topic, self.source, subject)
        for route in self.topic_routes:
            if (renamed := Renaming.of(route.regex, route.replacement).of_topic(name)) is not None:
                return safe_name(renamed)
        return name

    @property
    def tells_definitions(self) -> bool:
        """Whether changed definitions have messages. Canal always tells them."""
        return tells_definitions(self.format, self.options)

    @property
    def definitions_apart(self) -> bool:
        """Whether messages of definitions have a topic of their own."""
        return self.tells_definitions and (self.format == "debezium" or self.schema_topic is not None)

    def routing_of(self, table: TableId) -> Routing:
        """The columns or rules that decide the partition of a table's messages."""
        if self.partition_hash is not None:
            rule = canal_rules.partition_rule(self.partition_hash, table)
            return Routing(canal=True, rule=rule, database_hash=self.database_hash)
        entry = self.entry_of(table)
        if entry is not None and entry.partition is not None:
            return Routing(entry.partition, entry.partition_columns)
        return Routing(self.partition, self.partition_columns)

    def entry_of(self, table: TableId | None) -> TopicEntry | None:
        """The entry of `topics` that is about a table."""
        if table is None:
            return None
        return next((one for one in self.topics if one.matches(table)), None)

    def place(self, table: TableId) -> tuple[str, ...] | None:
        return None  # several tables may share a topic: their messages name them

    def client_settings(self) -> dict[str, str]:
        """The settings of every client. They contain secrets as text."""
        return {
            "bootstrap.servers": self.bootstrap,
            **{name: value.reveal() for name, value in self.client.items()},
        }
