"""What a sink registers: its name, its options, and what others must know before it is opened.

The pipeline file is read with the options that stand here and in the `registration.py` of each sink. So
neither imports Spark or Arrow; what opens a sink imports them when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from penstock.model.schema import TableId
from penstock.model.section import Section
from penstock.model.shards import Shards
from penstock.sinks.names import target_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sinks.base import Sink


class SinkOptions(Section):
    """The section `sink` of the pipeline file. Every sink has a model of its own that derives from this one,
    and gives `type` a `Literal` of its name."""

    type: str
    """Name of the sink."""

    @property
    def directory(self) -> Path | None:
        """The directory that only this sink writes to. None: it has none, or somebody else looks after it."""
        return None

    @property
    def spark_catalog(self) -> str | None:
        """Spark's catalog in which targets have names. None: there is none, and SQL reaches them by views."""
        return None

    def place(self, table: TableId) -> tuple[str, ...] | None:
        """Tells the table's target from others: two tables with equal places would have one target. None:
        tables have no targets that could be the same one."""
        return (table.database, table.table)


class NamespaceOptions(SinkOptions):
    """Options of sinks whose targets are tables in namespaces."""

    namespace: str = "{database}"
    """Target database of a table; `{database}` is the source's."""

    def place(self, table: TableId) -> tuple[str, ...] | None:
        return target_names(self.namespace, table)


Options = TypeVar("Options", bound=SinkOptions)


def _no_options(options: SinkOptions, conf: Mapping[str, str], state: Path) -> dict[str, str]:
    return {}


@dataclass(frozen=True, kw_only=True)
class SinkKind(Generic[Options]):
    """A registered sink."""

    name: str
    """What `sink.type` in the pipeline file says."""
    options: type[Options]
    open: Callable[[Options, SparkSession, str, Shards], Sink]
    """Makes the sink of one pipeline: its options, a session with `spark_options`, the pipeline's uuid, and
    the rules of `merge_shards` (empty unless `merges_shards`)."""
    example: Callable[[Path], Options]
    """Options with which it works in a directory, without other services: for `penstock prepare` and
    tests."""
    keeps_tables: bool
    """It opens a `TableSink`, which tells rows apart by a key; else a `ChangeSink`, which takes changes as
    they are, also of tables without a key."""
    merges_shards: bool = False
    """Several source tables can have one target (`merge_shards`)."""
    durable: bool = True
    """False: what is written leaves nothing behind. So there are no targets to look at when a pipeline
    starts, and no history of definitions."""
    jars: tuple[str, ...] = ()
    """Maven coordinates of what Spark needs for it, each named by itself: none is resolved further."""
    spark_options: Callable[[Options, Mapping[str, str], Path], dict[str, str]] = _no_options
    """Options of the session: from the sink's, the user's `spark.conf` (which wins) and the state
    directory."""
