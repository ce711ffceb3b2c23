"""The pipeline file: every option, its default, its unit and its reason (those of its sections in
`sections.py`).

`load(path)` reads YAML, replaces `${NAME}` by environment variables and refuses what it does not know: a typo
is an error that names the nearest option. Sizes may be written as `256MiB`, times as `500ms`, `10s`, `7d`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from penstock.config import changed_rows, options_file, several
from penstock.config.dimensions import DimensionRule
from penstock.config.http_section import PipelineHttpSection
from penstock.config.options_file import expanded
from penstock.config.sections import (
    CompletenessConfig,
    EpochConfig,
    NotificationsConfig,
    RelayLogConfig,
    RetriesConfig,
    SchemaConfig,
    SignalsConfig,
    SignalTopicConfig,
    SnapshotConfig,
    SparkConfig,
    TablesConfig,
    VerifyConfig,
    check_place,
    url_of,
)
from penstock.config.sink_section import SinkSection
from penstock.config.source_section import SourceSection
from penstock.config.store_section import StoreConfig, set_in_environment
from penstock.errors import ConfigError
from penstock.model.history import Versions
from penstock.model.schema import DEFAULT_TYPES, EXACT_TYPES, TableId, TypeOptions
from penstock.model.section import Section
from penstock.model.shards import ShardRule, contradiction
from penstock.model.transforms import TransformRule
from penstock.model.units import Milliseconds
from penstock.model.views import ViewRule, view_table
from penstock.secret import REVEALED, Secret, by_variable, lent, take_back, variable_of
from penstock.sinks import registry
from penstock.sinks.kind import SinkKind, SinkOptions
from penstock.sources.kind import SourceOptions

__all__ = [
    "EpochConfig",
    "NotificationsConfig",
    "PipelineConfig",
    "RelayLogConfig",
    "RetriesConfig",
    "SchemaConfig",
    "Secret",
    "SignalTopicConfig",
    "SignalsConfig",
    "SinkOptions",
    "SnapshotConfig",
    "SourceOptions",
    "SparkConfig",
    "StoreConfig",
    "TablesConfig",
    "VerifyConfig",
    "executor_variables",
    "expanded",
    "load",
    "load_several",
    "parse",
    "save",
    "take_back",
    "with_lent_secrets",
]


class PipelineConfig(Section):
    """One pipeline: a source, some of its tables, a sink."""

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,62}$")
    """Name of the pipeline. It appears in `status` and in the names of its own tables. Letters, digits,
    `_` and `-`."""
    source: SourceSection
    tables: TablesConfig
    merge_shards: tuple[ShardRule, ...] = ()
    """Source tables that share one target (iceberg, delta), with a column that names the source table."""
    transforms: tuple[TransformRule, ...] = ()
    """What is done to rows on their way to the target, the same for existing rows and changes
    (docs/transforms.md)."""
    transform_key: Secret = Secret()
    """The secret for `hash` and `tokenize` in `transforms`, at least 16 characters. Use `${NAME}` to take it
    from the environment. With another key, the same values become other texts."""
    history: Versions = Field({})
    """Targets that keep every version of a row (iceberg, delta): `scd2` or `changelog` for all tables, or
    patterns of tables, each with one of them. With `scd2` they have the columns `_valid_from`, `_valid_to`
    and `_is_current`, with `changelog` a row for each change (docs/history.md)."""
    views: dict[str, ViewRule] = Field({})
    """Tables at the target that are kept equal to a query over the others, by name: `database.table`, or a
    name in the database `views` (iceberg, delta; docs/views.md)."""
    dimensions: dict[str, DimensionRule] = Field({})
    """Small tables that are not captured, which queries of `views` may join as `dimensions.NAME`."""
    sink: SinkSection = registry.DEFAULT.options()
    sinks: tuple[SinkSection, ...] = ()
    """Several sinks instead of `sink`: sections like it, each with a `name` if two have one type. Each has
    its own position, so a slow one holds up nobody (docs/several-sinks.md)."""
    state: Path
    """Directory for everything that the pipeline remembers. Must be on a local disk."""
    staging: str | None = None
    """Where Spark's tasks find what the driver or other tasks wrote for them: staged chunks, changes made by
    foreign keys, scratch. A directory, or a URL: `s3://bucket/path`, `gs://bucket/path`,
    `az://container/path`. Pipelines may share it. None: the state directory. On a cluster it must be an
    object store, or a directory that all machines share, written as `file:///path`."""
    store: StoreConfig = StoreConfig()
    stop_timeout: Milliseconds = Field(12_000, ge=1000)
    """How long a run may take to end after SIGTERM or Ctrl-C. Running work may finish. Waits for the
    source are ended after a third of the time, Spark's jobs after half of it. At the end the process
    exits, whatever it is doing. Service managers usually kill after 30 s or more."""
    report_interval: Milliseconds = Field(1000, ge=100, le=60_000)
    """How often a run writes `status.json`, which `penstock status` and the live screen show. It also
    writes after each epoch, unless that would take more than a fiftieth of the time. A run without a
    report for ten intervals counts as stuck."""
    relay_log: RelayLogConfig = RelayLogConfig()
    snapshot: SnapshotConfig = SnapshotConfig()
    signals: SignalsConfig = SignalsConfig()
    http: PipelineHttpSection | None = None
    """None: the pipeline does not answer HTTP."""
    notifications: NotificationsConfig | None = None
    epoch: EpochConfig = EpochConfig()
    retries: RetriesConfig = RetriesConfig()
    types: TypeOptions = DEFAULT_TYPES
    evolution: SchemaConfig = Field(SchemaConfig(), alias="schema")
    cascades: Literal["park", "apply", "ignore"] = "park"
    """What to do with tables whose rows foreign keys change (ON DELETE or UPDATE CASCADE, SET NULL).
    Before MySQL 9.6 such changes are not in the log. `park`: park the table. `apply`: compute the changes
    and apply them at the target (iceberg, delta). `ignore`: follow the table without them."""
    completeness: CompletenessConfig = CompletenessConfig()
    verify: VerifyConfig = VerifyConfig()
    spark: SparkConfig = SparkConfig()

    @model_validator(mode="after")
    def _sinks_have_names(self) -> PipelineConfig:
        names = [one.name or one.type for one in self.sinks]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"two of `sinks` are called {twice[0]}; give each another `name`")
        if self.sinks and "sink" in self.model_fields_set:
            raise ValueError("there is `sink` and `sinks`; write all of them into `sinks`")
        if self.sinks and (self.signals.file is not None or self.http is not None):
            raise ValueError("`signals.file` and `http` serve one sink; use `signals.table` with `sinks`")
        return self

    @model_validator(mode="after")
    def _can_merge_shards(self) -> PipelineConfig:
        if self.merge_shards and not self.sink_kind.merges_shards:
            able = registry.own_names(lambda kind: kind.merges_shards)
            raise ValueError(f"`merge_shards` needs the sink {able}, not {self.sink.type}")
        if (why := contradiction(self.merge_shards, self.tables.include)) is not None:
            raise ValueError(f"`merge_shards`: {why}")
        if self.history_table in [rule.target for rule in self.merge_shards]:
            raise ValueError("`merge_shards` and `schema.history_table` name one target")
        return self

    @model_validator(mode="after")
    def _can_change_rows(self) -> PipelineConfig:
        changed_rows.check(self)
        return self

    @model_validator(mode="after")
    def _can_apply_cascades(self) -> PipelineConfig:
        if self.cascades != "apply":
            return self
        if not self.sink_kind.keeps_tables:
            able = registry.own_names(lambda kind: kind.keeps_tables)
            raise ValueError(
                f"`cascades: apply` changes rows of the target, which a sink of type {self.sink.type} "
                f"cannot; use {able}, or cascades: park"
            )
        if self.snapshot.mode == "never":
            raise ValueError(
                "`cascades: apply` needs the rows that foreign keys change at the target, and "
                "`snapshot.mode: never` leaves them out"
            )
        if self.evolution.rereads == "keep":
            raise ValueError(
                "`cascades: apply` reads tables again where it cannot work out what a foreign key did, which "
                "`schema.rereads: keep` forbids"
            )
        return self

    @model_validator(mode="after")
    def _types_are_the_formats(self) -> PipelineConfig:
        if not self.sink_kind.takes_messages:
            if not self.sink.has_lists:
                self.__dict__["types"] = replace(self.types, arrays="json")
            return self
        exact = EXACT_TYPES
        if replace(self.types, zero_dates=exact.zero_dates, arrays=exact.arrays) != exact:
            raise ValueError(
                f"`types` has no meaning for the sink {self.sink.type}, whose format decides how values are "
                "written; use `sink.options` (`penstock docs formats`)"
            )
        self.__dict__["types"] = EXACT_TYPES  # the model is frozen, and this is the last of its checks
        return self

    _staging_is_place = field_validator("staging")(check_place)

    @model_validator(mode="after")
    def _executors_reach_staging(self) -> PipelineConfig:
        if not self.spark.is_local and (self.staging is None or "://" not in self.staging):
            raise ValueError(
                f"on the cluster {self.spark.master}, `staging` must be a place that every executor reaches, "
                "and not a directory of the driver's disk. Write a URL of an object store, for example "
                "`staging: s3://bucket/path`; or, for a directory that all machines share, "
                "`staging: file:///path`"
            )
        return self

    @property
    def staging_url(self) -> str:
        """Where the folder of `staging` is, as the URL of a store."""
        return url_of(str(self.state / "staging") if self.staging is None else self.staging)

    @property
    def sink_kind(self) -> SinkKind[Any]:
        """The registration of the sink."""
        return registry.kind(self.sink.type)

    @property
    def history_table(self) -> TableId | None:
        """The table at the target that holds the history of definitions."""
        name = self.evolution.history_table
        if name is None or not self.sink_kind.durable or self.sink_kind.takes_messages:
            return None
        return TableId.parse(name.replace("{pipeline}", self.name))

    @property
    def complete_table(self) -> TableId | None:
        """The table at the target that says up to when targets are complete."""
        name = self.completeness.table
        return None if name is None else TableId.parse(name.replace("{pipeline}", self.name))

    @property
    def own_tables(self) -> list[TableId]:
        """Tables at the target that are the pipeline's own."""
        own = [table for table in (self.history_table, self.complete_table) if table is not None]
        return [*own, *map(view_table, self.views)]

    @property
    def rereads_max(self) -> int:
        """How often in 24 hours a table is read again automatically for one reason; 0: never."""
        may = self.evolution.rereads == "resnapshot" and self.snapshot.mode != "never"
        may = may and self.source.reads_tables
        return self.evolution.rereads_max if may else 0

    @property
    def relay_log_path(self) -> Path:
        return self.relay_log.path or self.state / "relay"

    @property
    def open_paths(self) -> list[Path]:
        """Places that other accounts may use, also if they lie inside `state`."""
        signals = self.signals.file
        answers = [] if signals is None else [signals, signals.with_name(f"{signals.name}.answers")]
        return [*answers, *([] if self.sink.directory is None else [self.sink.directory])]


def load(path: str | Path) -> PipelineConfig:
    """Reads and checks a pipeline file. Relative paths in it count from the file's folder. `FILE#NAME`: the
    pipeline of one of several sinks.

    Raises `ConfigError` naming the file, the option and the cure; also if the file has several sinks, and
    none is named.
    """
    file, sink = several.split(path)
    document, base = options_file.read(file, "pipeline file", "readme"), file.resolve().parent
    if sink is None:
        several.refuse_several(str(file), document)
        return parse(document, where=str(file), base=base)
    parse(document, where=str(file), base=base)  # its own mistakes first
    return parse(several.member(document, sink, str(file)), where=str(path), base=base)


def load_several(path: str | Path) -> tuple[PipelineConfig, dict[str, PipelineConfig]]:
    """Reads and checks a pipeline file that may have several sinks. Returns what it says for all of them, and
    the pipeline of each by its name; none, if it has one sink, or the path names one."""
    file, sink = several.split(path)
    document = options_file.read(file, "pipeline file", "readme")
    if sink is not None or not (names := several.names(document)):
        return load(path), {}
    base = file.resolve().parent
    config = parse(document, where=str(file), base=base)
    members = {name: several.member(document, name, str(file)) for name in names}
    return config, {name: parse(one, where=f"{file}#{name}", base=base) for name, one in members.items()}


@contextlib.contextmanager
def with_lent_secrets(config: PipelineConfig) -> Iterator[PipelineConfig]:
    """The same configuration. While the block lasts, its source and its stores may be sent to Spark tasks
    (`secret.py`). The state directory must exist, and this process must have its lock."""
    secrets, one_machine = secrets_of(config.source), config.spark.is_local
    with contextlib.ExitStack() as stack:
        take_back(config.state)  # a killed run may have left files; only one run uses the state at a time
        if one_machine:
            secrets = stack.enter_context(lent(secrets, config.state))
            key = stack.enter_context(lent({"key": config.transform_key}, config.state))
        else:
            stack.enter_context(set_in_environment(executor_variables(config)))
            secrets = by_variable(secrets, "source")
            key = by_variable({"key": config.transform_key}, "transform")
        store = stack.enter_context(config.store.lent(config.state, one_machine=one_machine))
        source = config.source.model_copy(update=secrets)
        yield config.model_copy(update={"source": source, "store": store, "transform_key": key["key"]})


def executor_variables(config: PipelineConfig) -> dict[str, Secret]:
    """The environment variables from which executors of other machines take secrets. Empty on one machine,
    where they are in files of the state directory."""
    if config.spark.is_local:
        return {}
    found = {variable_of("source", name): one for name, one in secrets_of(config.source).items()}
    found[variable_of("transform", "key")] = config.transform_key
    return {name: one for name, one in found.items() if one and not one.is_kept} | config.store.variables()


def save(config: PipelineConfig, path: Path) -> None:
    """Writes a file that `load` can read. Only this account can read it, because it contains passwords.
    Relative paths of `config` count from this process's working directory, wherever the file is."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    document = _rooted(config, Path.cwd()).model_dump(mode="json", by_alias=True, context=REVEALED)
    with os.fdopen(descriptor, "w") as file:
        yaml.safe_dump(document, file)


def secrets_of(source: SourceOptions) -> dict[str, Secret]:
    """The options of a source that are secret."""
    return {name: value for name, value in source if isinstance(value, Secret)}


def parse(document: dict[str, Any], *, where: str = "pipeline", base: Path | None = None) -> PipelineConfig:
    """The configuration from options that are already a dictionary, as in `Pipeline(...)` in Python."""
    try:
        config = PipelineConfig.model_validate(document)
    except ValidationError as error:
        raise ConfigError(f"{where}: {options_file.explained(error, PipelineConfig, document)}.") from None
    return config if base is None else _rooted(config, base)


def _rooted(config: PipelineConfig, base: Path) -> PipelineConfig:
    def absolute(path: Path | None) -> Path | None:
        return None if path is None else (base / path.expanduser()).resolve()

    def paths_of(section: Section) -> dict[str, Path | None]:
        return {name: absolute(value) for name, value in section if isinstance(value, Path)}

    def rooted(place: str | None) -> str | None:
        return place if place is None or "://" in place else str(absolute(Path(place)))

    relay_log = {"path": absolute(config.relay_log.path), "archive": rooted(config.relay_log.archive)}
    return config.model_copy(
        update={
            "state": absolute(config.state),
            "staging": rooted(config.staging),
            "relay_log": config.relay_log.model_copy(update=relay_log),
            "source": config.source.model_copy(update=paths_of(config.source)),
            "sink": config.sink.model_copy(update=paths_of(config.sink)),
            "dimensions": {
                name: rule.model_copy(update={"file": rooted(rule.file)})
                for name, rule in config.dimensions.items()
            },
            "signals": config.signals.model_copy(update={"file": absolute(config.signals.file)}),
            "http": config.http and config.http.rooted(absolute),
        }
    )
