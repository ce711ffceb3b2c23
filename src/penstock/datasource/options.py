"""The options of the data source `penstock`. Names may be written as `relay_log` or as `relayLog`.

The options of the section `source` of a pipeline file (`host`, `port`, `user`, `password`, `tls` …) are
options of the data source, too.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import Field, ValidationError, field_validator

from penstock.config import PipelineConfig, TablesConfig, expanded
from penstock.config import parse as parse_config
from penstock.config.source_section import options_model
from penstock.errors import ConfigError
from penstock.model.pattern import exactly
from penstock.model.schema import TableId, TypeOptions
from penstock.model.section import Section, TableName
from penstock.model.units import Bytes
from penstock.sinks.console.registration import CONSOLE
from penstock.sources import registry

NAME = "penstock"
RELAY_FOLDER = "relay"
"""The relay log of a source that is given by `host`, in `state`."""
_PATTERN = re.compile(r"(?:`(?:[^`]|``)*`|[^,`])+")
"""A pattern in a list with commas. Names in backticks may have commas."""
_TYPES = tuple(field.name for field in fields(TypeOptions))


class CdcOptions(Section):
    """The options of a query."""

    type: str = registry.DEFAULT
    """With `host`: the kind of the source, `mysql` or `postgresql`."""
    table: TableName | None = None
    """The table, as `database.table`."""
    tables: tuple[str, ...] = ()
    """Instead of `table`: patterns of names, with commas between them. Rows come as JSON then."""
    rows: Literal["json", "variant"] = "json"
    """With `tables`: what the columns `key` and `row` are, texts or VARIANT."""
    relay_log: str | None = None
    """The folder of a relay log that somebody else writes, or the URL of its archive: `s3://bucket/path`."""
    state: Path | None = None
    """Folder on a local disk for what a stream remembers besides Spark's checkpoint. One stream has it
    alone."""
    snapshot: Literal["initial", "never"] = "initial"
    """With `host`: whether a stream begins with the rows that the table has."""
    start: str = Field("earliest", alias="from")
    """With `relay_log`: where to begin. `earliest`, `latest`, an offset of the relay log, or a time (ISO
    8601)."""
    to: str = "latest"
    """The place where a batch query ends. It is written as `from` is."""
    before_images: bool = True
    """Whether an update also gives the row before it, as `update_preimage`."""
    partition_bytes: Bytes = Field(32 * 1024**2, ge=1024)
    """Bytes of log that one task decodes."""
    max_bytes_per_trigger: Bytes | None = Field(None, ge=1024)
    """Bytes of log in one micro-batch, or one transaction if that is larger. None: all that there is."""
    chunk_rows: int = Field(50_000, ge=1)
    """Rows in one chunk of the snapshot."""
    snapshot_parallel: int = Field(2, ge=1, le=256)
    """Chunks that are read at the same time."""
    types: TypeOptions = TypeOptions()
    server: dict[str, str] = Field({}, repr=False)
    """The options of the source section that were given."""

    @field_validator("tables", mode="before")
    @classmethod
    def _patterns(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        found = tuple(one.strip() for one in _PATTERN.findall(value) if one.strip())
        TablesConfig(include=[*found])  # raises for a name without a database
        return found

    @property
    def is_envelope(self) -> bool:
        """Whether the query has rows of many tables."""
        return bool(self.tables)

    @property
    def what(self) -> str:
        """A name for what the query reads, for messages."""
        return self.table or ", ".join(self.tables)

    @property
    def captured(self) -> TablesConfig:
        return TablesConfig(include=[*self.tables] or [exactly(self.table_id)])

    @property
    def table_id(self) -> TableId:
        assert self.table is not None, "a query of one table"
        return TableId.parse(self.table)

    def pipeline(self) -> PipelineConfig:
        """The options as a pipeline whose target is the query."""
        needs_state(self)
        assert self.state is not None
        state = self.state.absolute()
        config = parse_config(
            {
                "name": NAME,
                "source": {"type": self.type, **expanded(self.server, NAME)},
                "tables": self.captured.model_dump(),
                "sink": {"type": CONSOLE.name},
                "state": str(state),
                "relay_log": {"path": str(state / RELAY_FOLDER)},
                "snapshot": {
                    "mode": self.snapshot, "chunk_rows": self.chunk_rows, "parallel": self.snapshot_parallel
                },
                "schema": {"rereads": "resnapshot" if self.snapshot == "initial" else "fail"},
                "types": {name: getattr(self.types, name) for name in _TYPES},
            },
            where=NAME,
        )  # fmt: skip
        if missing := config.source.named_after_pipeline:
            raise ConfigError(
                f"{NAME} needs the option `{missing[0]}` for a source of `type: {self.type}`.",
                hint="Each stream needs a slot of its own. `penstock docs postgresql` says how to make a "
                "publication.",
            )
        return config


def parse(options: Mapping[str, str]) -> CdcOptions:
    """Reads the options. Raises `ConfigError` for a missing, unknown or invalid one."""
    own = {
        _plain(field.alias or name): field.alias or name for name, field in CdcOptions.model_fields.items()
    }
    chosen = next((value for name, value in options.items() if _plain(name) == "type"), registry.DEFAULT)
    source = options_model({"type": chosen})
    if "host" not in source.model_fields:
        raise ConfigError(
            f"{NAME} cannot read a source of `type: {chosen}`.",
            hint="It reads servers, or with `relay_log` the log that a pipeline has of any source.",
        )
    server = {_plain(name): name for name in source.model_fields}
    types = {_plain(name): name for name in _TYPES}
    for name in ("server", "types"):
        own.pop(name)
    for name in ("type", "start"):
        server.pop(name, None)
    found: dict[str, Any] = {}
    found_types: dict[str, str] = {}
    found_server: dict[str, str] = {}
    for name, value in options.items():
        plain = _plain(name)
        if plain in own:
            found[own[plain]] = value
        elif plain in types:
            found_types[types[plain]] = value
        elif plain in server:
            found_server[server[plain]] = value
        else:
            known = own | types | server
            near = difflib.get_close_matches(plain, known, 1)
            hint = (
                f"Did you mean `{known[near[0]]}`?"
                if near
                else f"Options: {', '.join(sorted(known.values()))}."
            )
            raise ConfigError(f"`{name}` is not an option of {NAME}.", hint=hint)
    try:
        parsed = CdcOptions(**found, types=cast(Any, found_types), server=found_server)
    except ValidationError as error:
        raise _explained(error) from None
    return _checked(parsed)


def _checked(options: CdcOptions) -> CdcOptions:
    if (options.table is None) == (not options.tables):
        raise ConfigError(
            f"{NAME} needs the option `table`, or `tables`.",
            hint="`table` names one table, whose columns are those of the query. `tables` has patterns: rows "
            "of many tables come as JSON.",
        )
    if options.rows != "json" and not options.is_envelope:
        raise ConfigError(f"`rows` of {NAME} has a meaning only with `tables`.")
    if options.relay_log is None and "host" not in options.server:
        raise ConfigError(
            f"{NAME} needs the option `host`, or `relay_log`.",
            hint="`host` names a server, and `relay_log` the folder of a relay log that exists.",
        )
    if options.relay_log is not None and options.server:
        raise ConfigError(
            f"{NAME} has the option `relay_log`, so `{next(iter(options.server))}` has no meaning.",
            hint="Leave one of them out.",
        )
    if options.relay_log is None and "user" not in options.server:
        raise ConfigError(f"{NAME} needs the option `user`.")
    return options


def needs_state(options: CdcOptions) -> Path:
    if options.state is None:
        raise ConfigError(
            f"{NAME} needs the option `state`.",
            hint="Give a folder on a local disk that no other stream has. A batch query (`spark.read`) needs "
            "the `state` of a stream, or `relay_log`.",
        )
    return options.state


def _explained(error: ValidationError) -> ConfigError:
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"] if part not in ("types", "server"))
    if first["type"] == "missing":
        return ConfigError(f"{NAME} needs the option `{name}`.")
    return ConfigError(f"`{name}` of {NAME}: {first['msg']}.")


def _plain(name: str) -> str:
    return name.replace("_", "").lower()
