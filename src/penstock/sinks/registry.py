"""All sinks by name. No other code knows a sink's name.

Penstock's own sinks are listed in `OWN`. Others come from installed packages through the entry-point group
`penstock.sinks`: the entry's name is the name of the sink, and its object is a `SinkKind`. They are loaded
only when a pipeline file names them.

`penstock.config` uses this module to read the section `sink` of a pipeline file, and must start fast. So this
module imports neither Spark nor Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from penstock import plugins
from penstock.model.shards import ShardRule, Shards
from penstock.sinks.calls.registration import HTTP, PYTHON
from penstock.sinks.changelog.registration import PARQUET
from penstock.sinks.clickhouse.registration import CLICKHOUSE
from penstock.sinks.console.registration import CONSOLE
from penstock.sinks.hbase.registration import HBASE
from penstock.sinks.kafka.registration import KAFKA
from penstock.sinks.kind import SinkKind, SinkOptions
from penstock.sinks.lake.delta.registration import DELTA
from penstock.sinks.lake.iceberg.registration import ICEBERG
from penstock.sinks.nats.registration import NATS
from penstock.sinks.opensearch.registration import OPENSEARCH
from penstock.sinks.rabbitmq_streams.registration import RABBITMQ_STREAMS
from penstock.sinks.redis.registration import REDIS
from penstock.sinks.redis_streams.registration import REDIS_STREAMS
from penstock.sinks.sql.registration import JDBC

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sinks.base import Sink

GROUP = "penstock.sinks"
DEFAULT = ICEBERG
NO_SHARDS = Shards()
OWN: tuple[SinkKind[Any], ...] = (
    ICEBERG,
    DELTA,
    PARQUET,
    KAFKA,
    JDBC,
    REDIS,
    REDIS_STREAMS,
    NATS,
    RABBITMQ_STREAMS,
    OPENSEARCH,
    CLICKHOUSE,
    HBASE,
    PYTHON,
    HTTP,
    CONSOLE,
)
_BY_NAME = {kind.name: kind for kind in OWN}


def names() -> list[str]:
    """Names of all sinks, Penstock's own first."""
    return plugins.names(_BY_NAME, GROUP)


def kind(name: str) -> SinkKind[Any]:
    """The sink with this name. Raises `ConfigError` if there is none or its package cannot be loaded."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    return plugins.loaded(plugins.found(name, _BY_NAME, GROUP, "sink"), SinkKind, "sink")


def own_names(which: Callable[[SinkKind[Any]], bool]) -> str:
    """The names of those of Penstock's own sinks for which `which` is true, for use in a sentence: `iceberg
    or delta`."""
    *first, last = [one.name for one in OWN if which(one)]
    return f"{', '.join(first)} or {last}" if first else last


def open_sink(
    options: SinkOptions, spark: SparkSession, pipeline: str, merge_shards: Iterable[ShardRule] = ()
) -> Sink:
    """Opens the sink of a pipeline. `pipeline`: its uuid. `spark`: from `spark.session.build_session`."""
    return kind(options.type).open(options, spark, pipeline, Shards(merge_shards))
