"""The types of signals and their data. Names and layout follow Debezium where it has the same signal."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from penstock.errors import ConfigError
from penstock.model.name import split_name
from penstock.model.partial_snapshot import KeyValues
from penstock.model.pattern import matches
from penstock.model.schema import TableId
from penstock.model.signal import VERIFY

DATA_BYTES_MAX = 1024 * 1024
"""Most bytes of a signal's data as JSON. The state stores thousands of signals."""
DATA_DEPTH_MAX = 32
"""Levels of nesting of a signal's data. Parsers recurse, and no type of signal needs more than four."""
ID_LENGTH_MAX = 255
"""Characters of a signal's id: the state stores it as a key, and ids are usually UUIDs."""
KEYS_MAX = 100_000
"""Keys that a signal may name. The driver has them in memory, and each chunk reads a few hundred."""
ERROR_CHARACTERS_MAX = 2000
"""Characters of an error text. It repeats names from the data, which may be long."""


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Condition(_Data):
    collection: str = Field(alias="data-collection")
    filter: str = Field(min_length=1, max_length=10_000)


class ExecuteSnapshot(_Data):
    """Reads tables again: whole tables, or a partial snapshot of the rows that meet a condition, lie in a
    range of keys, or have the given keys. Only whole tables and given keys also delete at the target what no
    longer exists at the source."""

    collections: list[str] = Field(alias="data-collections", min_length=1)
    type: Literal["incremental", "INCREMENTAL", "blocking", "BLOCKING"] = "incremental"
    """Accepted and ignored: no snapshot ever blocks the stream."""
    conditions: list[Condition] = Field([], alias="additional-conditions")
    keys: list[KeyValues] = Field([], max_length=KEYS_MAX)
    lower: KeyValues | None = Field(None, alias="from")
    upper: KeyValues | None = Field(None, alias="to")
    target: Literal["merge", "recreate"] = "merge"
    """For whole tables. `merge`: rows are merged into the target, and rows that no longer exist at the source
    are deleted at the end. `recreate`: the target is dropped and created again first."""

    @field_validator("keys", mode="before")
    @classmethod
    def _as_tuples(cls, value: Any) -> Any:
        """A key of one column may be written without brackets."""
        if not isinstance(value, list):
            return value
        return [item if isinstance(item, list | tuple) else [item] for item in value]

    @model_validator(mode="before")
    @classmethod
    def _bounds(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        plain = {name: value[name] for name in ("from", "to") if name in value}
        return value | {name: v if isinstance(v, list) else [v] for name, v in plain.items() if v is not None}

    @model_validator(mode="after")
    def _one_way(self) -> ExecuteSnapshot:
        ways = [bool(self.conditions), bool(self.keys), self.lower is not None or self.upper is not None]
        if self.target == "recreate" and any(ways):
            raise ValueError("target: recreate is for whole tables, not for partial snapshots")
        if sum(ways) > 1:
            raise ValueError("give only one of: additional-conditions, keys, from and to")
        if (ways[1] or ways[2]) and len(self.collections) > 1:
            raise ValueError("keys, from and to apply to one table: name only one in data-collections")
        return self


class SnapshotSelection(_Data):
    """The tables and rows that a signal selects. `collections` None: all tables."""

    collections: list[str] | None = Field(None, alias="data-collections")
    type: str = "incremental"


class AddTable(_Data):
    tables: list[str] = Field(min_length=1)
    """Names or patterns, as in the pipeline file."""
    snapshot: bool = True
    """Whether existing rows are read."""

    @field_validator("tables")
    @classmethod
    def _dotted(cls, value: list[str]) -> list[str]:
        for name in value:
            if not all(part.text for part in split_name(name)):
                raise ValueError(f"{name!r} has no database; write it as database.table")
        return value


class Tables(_Data):
    tables: list[str] = Field(min_length=1)
    reason: str = ""


class Log(_Data):
    message: str = Field(max_length=10_000)


class Verify(_Data):
    """Only from `penstock verify`: see `comparisons.py`. `tables`: each with its database."""

    tables: list[tuple[str, str]] = []
    position: dict[str, Any] | None = None
    stay: bool = False


RATE_MAX = 1 << 50
"""Rows or bytes per second: more than any server delivers, and small enough for 64-bit arithmetic."""


class SetLimits(_Data):
    """0: no limit."""

    parallel: int | None = Field(None, ge=1, le=256)
    rows_per_second: int | None = Field(None, ge=0, le=RATE_MAX)
    bytes_per_second: int | None = Field(None, ge=0, le=RATE_MAX)


TYPES: dict[str, type[_Data]] = {
    "execute-snapshot": ExecuteSnapshot,
    "stop-snapshot": SnapshotSelection,
    "pause-snapshot": SnapshotSelection,
    "resume-snapshot": SnapshotSelection,
    "add-table": AddTable,
    "remove-table": Tables,
    "park": Tables,
    "unpark": Tables,
    "set-limits": SetLimits,
    "log": Log,
    VERIFY: Verify,
}


def check_id(signal_id: Any) -> str:
    """Raises `ConfigError`."""
    if not isinstance(signal_id, str) or not 0 < len(signal_id) <= ID_LENGTH_MAX:
        raise ConfigError(f"A signal's id must be a text of 1 to {ID_LENGTH_MAX} characters.")
    return signal_id


def parse_data(text: str) -> dict[str, Any]:
    """Raises `ConfigError`."""
    if len(text) > DATA_BYTES_MAX:
        raise ConfigError(f"The data of a signal is longer than {DATA_BYTES_MAX} characters.")
    try:
        data = json.loads(text or "{}")
    except ValueError as error:
        raise ConfigError(f"The data of a signal is not JSON: {error}.") from None
    except RecursionError:
        raise ConfigError("The data of a signal is nested too deeply.") from None
    if not isinstance(data, dict):
        raise ConfigError("The data of a signal is not a JSON object.")
    return data


def parse(kind: str, data: dict[str, Any]) -> Any:
    """The data as a validated model. Raises `ConfigError`, which names what is wrong."""
    model = TYPES.get(kind)
    if model is None:
        raise ConfigError(f"Unknown signal type {kind!r}.", hint=f"Known types: {', '.join(TYPES)}.")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        said = "; ".join(
            f"{'.'.join(map(str, item['loc'])) or 'data'}: {item['msg'].removeprefix('Value error, ')}"
            for item in error.errors()[:5]
        )
        raise ConfigError(f"{kind}: {said[:ERROR_CHARACTERS_MAX]}.") from None


def matching(patterns: Iterable[str], tables: Iterable[TableId]) -> dict[str, list[TableId]]:
    """For each pattern, the tables that match it, with `*` and `?` as wildcards. Simple regular expressions
    as written for Debezium, such as `shop\\.orders_.*`, mean the same."""
    known = sorted(tables)
    found: dict[str, list[TableId]] = {}
    for pattern in patterns:
        quoted = any(part.quoted for part in split_name(pattern))
        plain = pattern if quoted else pattern.replace(".*", "*").replace("\\.", ".")
        ways = [way for way in (pattern, plain) if "." in way]
        found[pattern] = [table for table in known if any(matches(way, table) for way in ways)]
    return found
