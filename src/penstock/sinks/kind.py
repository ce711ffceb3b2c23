"""What a sink registers: its name, its options, and what must be known before it is opened.

Reading a pipeline file imports this module and the `registration.py` of Penstock's own sinks. So none of them
imports Spark or Arrow at the top of the file; `SinkKind.open` does so when it is called.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

from pydantic import BeforeValidator, Field

from penstock.model.schema import TableId
from penstock.model.section import Section
from penstock.model.shards import Shards
from penstock.sinks.names import target_names, which_penstock_adds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sinks.base import Sink


def _is_a_path(value: Any) -> Any:
    if isinstance(value, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", value):
        raise ValueError(  # without the value, which may hold credentials
            "this is a directory of a local or mounted file system, so it takes no URL; for tables on object "
            "storage, use the sink delta, or the sink iceberg with a section `catalog` (see `penstock docs "
            "catalogs`)"
        )
    return value


Directory = Annotated[Path, BeforeValidator(_is_a_path, json_schema_input_type=Path)]
"""A directory as an option of a sink. A URL would be taken for a relative path."""


class SinkOptions(Section):
    """The section `sink` of the pipeline file. Every sink derives its own model from this one, and declares
    `type` as a `Literal` of its name."""

    type: str
    """Name of the sink."""
    name: str = Field("", pattern=r"^([A-Za-z][A-Za-z0-9_-]{0,30})?$")
    """In `sinks`: the name of this sink in commands (`FILE#NAME`). Default: its type."""

    @property
    def directory(self) -> Path | None:
        """The local directory that only this sink writes to. A run locks it, and refuses to start if it
        contains anything but directories and hidden files (`refusals.check_directory`). None: there is
        none."""
        return None

    @property
    def spark_catalog(self) -> str | None:
        """The Spark catalog in which targets are tables. None: there is none, and `penstock query` creates
        views."""
        return None

    @property
    def adopts(self) -> bool:
        """Whether tables that others made may become targets."""
        return False

    @property
    def has_lists(self) -> bool:
        """Whether targets have columns that are lists. If not, they have arrays as JSON text, whatever
        `types.arrays` says."""
        return True

    def place(self, table: TableId) -> tuple[str, ...] | None:
        """Where the table's target is. None: tables cannot share a target."""
        return (table.database, table.table)

    def identity(self, table: TableId) -> tuple[str, ...] | None:
        """The place, in a form that is equal for two tables whose targets are the same to the engine, for
        example because it ignores letter case. Such tables would share one target, which is refused."""
        return self.place(table)

    def reserved(self, column: str) -> str | None:
        """Why no target can have a column of this name, as the end of a sentence: `which …`. None: it can.
        The sink adds such a column, or the target's engine or its readers have the name for themselves."""
        return which_penstock_adds(column)


class NamespaceOptions(SinkOptions):
    """Options of sinks whose targets are in namespaces."""

    namespace: str = "{database}"
    """Target database of a table; `{database}` is the source's."""

    def place(self, table: TableId) -> tuple[str, ...] | None:
        return target_names(self.namespace, table)


@dataclass(frozen=True)
class Probed:
    """One thing that was tried at a target. `check`: its name, which programs can rely on. `subject`: what
    was used. `message`: the result in one paragraph, with the cure if it failed."""

    check: str
    subject: str
    ok: bool
    message: str


Probe = Callable[["SparkSession", Sequence[str]], Iterator[Probed]]
"""Tries what a pipeline does at its targets, and leaves nothing behind. Arguments: a session with the sink's
`spark_options` (None: `probes_without_spark`), and the source's databases that the pipeline captures, as far
as they are known. It yields what it tried, in order, and ends at the first that failed."""

Options = TypeVar("Options", bound=SinkOptions)


def _no_options(options: SinkOptions, conf: Mapping[str, str], state: Path) -> dict[str, str]:
    return {}


def _no_jars(options: SinkOptions) -> tuple[str, ...]:
    return ()


def _no_files(options: SinkOptions) -> tuple[Path, ...]:
    return ()


def _no_more_classes(options: SinkOptions, spark: SparkSession) -> None:
    return


def _no_probe(options: SinkOptions, conf: Mapping[str, str]) -> Probe | None:
    return None


@dataclass(frozen=True, kw_only=True)
class SinkKind(Generic[Options]):
    """A registered sink."""

    name: str
    """The value of `sink.type` in the pipeline file."""
    options: type[Options]
    open: Callable[[Options, SparkSession, str, Shards], Sink]
    """Opens the sink for one pipeline. Arguments: its options, a session with `spark_options`, the pipeline's
    uuid, and the rules of `merge_shards` (empty unless `merges_shards`)."""
    example: Callable[[Path], Options]
    """Options that work, for `penstock prepare` and tests. If the sink writes files, they are in the given
    directory."""
    example_needs_server: bool = False
    """`example` is the address of a server, so `penstock prepare` writes nothing."""
    keeps_tables: bool
    """True: it opens a `TableSink`, and every table needs a key. False: it opens a `ChangeSink`, or a
    `LogSink` if `takes_messages`."""
    takes_messages: bool = False
    """The sink takes messages (`LogSink`). Then the format of the messages decides how values are written
    (`types` has no meaning), and no history of schema changes is written."""
    merges_shards: bool = False
    """Several source tables can share one target (`merge_shards`)."""
    keeps_history: bool = False
    """The sink is a `LakeSink`, which can keep every version of a row (`history`)."""
    durable: bool = True
    """False: nothing remains of what is written. Then no targets are checked when a pipeline starts, and no
    history of schema changes is written."""
    jars: tuple[str, ...] = ()
    """Maven coordinates of the jars that Spark needs for it. Their own dependencies are not fetched: list
    them, too."""
    jars_for: Callable[[Options], tuple[str, ...]] = _no_jars
    """Further jars, which only these options of the sink need."""
    own_jars: Callable[[Options], tuple[Path, ...]] = _no_files
    """Jars in the sink's own package, which these options of the sink need."""
    jars_sha256: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The SHA-256 of these jars by file name. For Penstock's own sinks, see `artifacts/pinned.py`."""
    spark_options: Callable[[Options, Mapping[str, str], Path], dict[str, str]] = _no_options
    """Options of the Spark session. Arguments: the sink's options, the user's `spark.conf` (which overrides
    the result), and the state directory."""
    probes_without_spark: bool = False
    """`probe` is called without a session, which takes seconds to start."""
    load_classes: Callable[[Options, SparkSession], None] = _no_more_classes
    """Lets Java load classes that pipelines with these options need and those with `example` do not, for the
    archive of `penstock prepare`. Connects to nothing."""
    probe: Callable[[Options, Mapping[str, str]], Probe | None] = _no_probe
    """What `penstock doctor` tries. Arguments: the sink's options and the user's `spark.conf`. None: there is
    nothing to try, because targets are on the local disk."""
