"""Checks at the start of a run that targets have what `transforms`, `history` and `types` say now.

The state remembers the rules of the last run. A target that was filled under other rules has rows of two
kinds as soon as something is written to it, so that is refused. Recreating the target is the cure.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import Any

from penstock._core import arrow_schema
from penstock.config import PipelineConfig
from penstock.errors import ConfigError, TableError
from penstock.model.history import History
from penstock.model.schema import TableId, TableSchema, TypeOptions
from penstock.model.table import TableState, is_reading
from penstock.model.transforms import TransformRule, Transforms
from penstock.printable import argument
from penstock.sinks.base import Sink, table_sink
from penstock.spark.transformed_sink import TransformedSink
from penstock.state import StateStore

RULES = "shape_of_targets"
"""Key of the rules in the state."""
CHANGED = "`transforms`, `history` or `types` changed"


def check(
    sink: Sink,
    config: PipelineConfig,
    state: StateStore,
    asked: Collection[TableId],
    renewed: Collection[TableId],
    *,
    types: TypeOptions,
) -> None:
    """Raises `ConfigError` if a target was filled under other rules. Targets that are going to be `renewed`
    are emptied and get the columns of the present rules, because a plan may still be pending for them.
    Messages of tables that are `asked` for follow the present rules: they get all rows again."""
    now, was = Shape.of(config), remembered(state)
    for table in state.tables().values():
        section = "" if table.gone else now.differs(was, table.schema)
        if not section:
            continue  # of tables that are gone: a new table of this name begins with an empty target
        if not table.last_epoch:
            if section == "types" and is_reading(table):  # chunks that are staged have the types of before
                state.put_table(table.read_again(CHANGED))
        elif config.sink_kind.takes_messages and (table.table in asked or table.resnapshot_pending):
            continue
        elif table.table in renewed:
            _renew(sink, state, table, types)
        else:
            raise _other_rules(section, table.table, config)
    if now.to_json() != was.to_json():
        state.set_meta(RULES, json.dumps(now.to_json()))


def check_new(sink: Sink, state: StateStore, *, types: TypeOptions) -> None:
    """Raises `ConfigError` if rules cannot be applied to a table that has no target yet. Tells the sink the
    keys of all tables."""
    if not isinstance(sink, TransformedSink):
        return
    for table in state.tables().values():
        sink.knows(table.schema)
        if table.status == "live" and not table.last_epoch:
            try:
                sink.fits(table.schema, arrow_schema(table.schema.to_json(), "rows", types.to_json()))
            except TableError as error:
                raise ConfigError(
                    error.message, hint="Correct `transforms` in the pipeline file.", table=str(table.table)
                ) from error


@dataclass(frozen=True)
class Shape:
    """The options that make the rows of targets differ from those of their tables."""

    transforms: Transforms
    history: History
    types: TypeOptions | None
    """How values were written. None: not known, because an earlier version wrote the state."""

    @classmethod
    def of(cls, config: PipelineConfig) -> Shape:
        return cls(Transforms(config.transforms), History(config.history), config.types)

    def differs(self, other: Shape, table: TableSchema) -> str:
        """The section of the pipeline file by which rows of this table get another form. Empty: none."""
        if self.transforms.digest(table.table) != other.transforms.digest(table.table):
            return "transforms"
        if self.history.kind(table.table) != other.history.kind(table.table):
            return "history"
        if self.types is None or other.types is None or self.types == other.types:
            return ""
        return "" if _value_forms(table, self.types) == _value_forms(table, other.types) else "types"

    def to_json(self) -> dict[str, Any]:
        rules = [rule.model_dump(mode="json") for rule in self.transforms.rules]
        return {
            "transforms": rules,
            "history": self.history.rules,
            "types": None if self.types is None else asdict(self.types),
        }


def remembered(state: StateStore) -> Shape:
    """The options that the last run used."""
    known = json.loads(state.meta(RULES) or '{"transforms": [], "history": {}}')
    rules = [TransformRule.model_validate(one) for one in known["transforms"]]
    types = known.get("types")
    return Shape(
        Transforms(rules), History(known["history"]), None if types is None else TypeOptions(**types)
    )


def _value_forms(table: TableSchema, types: TypeOptions) -> tuple[str, str]:
    """Identifies the forms of the table's values. Types do not: Base64 and hexadecimal digits are both
    texts."""
    columns = str(arrow_schema(table.to_json(), "rows", types.to_json()))
    as_bytes = str(arrow_schema(table.to_json(), "rows", replace(types, binary="bytes").to_json()))
    return columns, "" if columns == as_bytes else types.binary


def _renew(sink: Sink, state: StateStore, table: TableState, types: TypeOptions) -> None:
    state.put_table(replace(table.read_again(CHANGED), target_reset="recreate"))
    table_sink(sink).clear(table.table)
    sink.create(table.schema, arrow_schema(table.schema.to_json(), "rows", types.to_json()))


def _other_rules(section: str, table: TableId, config: PipelineConfig) -> ConfigError:
    hint = (
        f"Run `penstock resnapshot FILE {argument(table)} --recreate` and then the pipeline: the target is "
        "made again as the pipeline file says now. Or change the file back."
    )
    if config.sink_kind.takes_messages:
        hint = (
            f"Run `penstock resnapshot FILE {argument(table)}` and then the pipeline: messages have the rows "
            "again, as the pipeline file says now. Earlier messages stay. Or change the file back."
        )
    elif not config.sink_kind.keeps_tables:
        hint = (
            "A change log cannot be made again. Use another `state` and `sink.path`, or change the file back."
        )
    return ConfigError(
        f"`{section}` says something else for {table} than when its target was filled.",
        hint=hint,
        table=str(table),
    )
