"""A step that failed because images lack something is done again once, in the way that takes it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from penstock.epochs.incomplete_images import IncompleteImages
from penstock.errors import TableError, TransientError
from penstock.model.plan import ApplyEvents, CreateTarget
from penstock.model.schema import DEFAULT_TYPES, CascadingKey, Column, TableId, TableSchema, TypeOptions

T = TableId("shop", "t")
SCHEMA = TableSchema(T, (Column("id", "int"),), ("id",))
EVENTS = ApplyEvents((), "merge", 1)
NOTHING: Any = None


@dataclass
class Source:
    """Of which is asked how generated columns are computed."""

    asked: list[TableSchema] = field(default_factory=list)

    def omitted(self, schema: TableSchema, types: TypeOptions) -> Any:
        return NOTHING

    def computation(self, schema: TableSchema) -> Any:
        self.asked.append(schema)
        return NOTHING


def images(source: Source | None = None, *, everywhere: bool = False) -> IncompleteImages:
    return IncompleteImages(source or Source(), DEFAULT_TYPES, everywhere=everywhere)


def lacking(what: str) -> TableError:
    return TableError("It lacks something.", table=str(T), lacks=what)


def test_a_table_whose_images_lack_columns_is_known_by_its_first_failure() -> None:
    found = images()
    assert not found.is_partial(T)
    assert found.learns(SCHEMA, EVENTS, lacking("columns")) and found.is_partial(T)
    assert not found.learns(SCHEMA, EVENTS, lacking("columns")), "the second failure is another fault"


def test_a_source_whose_images_lack_columns_has_nothing_to_learn() -> None:
    assert images(everywhere=True).is_partial(T)
    assert not images(everywhere=True).learns(SCHEMA, EVENTS, lacking("columns"))


def test_generated_columns_are_computed_from_the_first_failure_on() -> None:
    schema, source = replace(SCHEMA, version=2), Source()
    found = images(source)
    found.computation(schema)
    assert not source.asked
    assert found.learns(SCHEMA, EVENTS, lacking("generated"))
    found.computation(schema)
    assert source.asked == [schema], "expressions are asked for anew"
    assert not found.learns(SCHEMA, EVENTS, lacking("generated"))


def test_what_no_other_way_takes_is_a_failure() -> None:
    key = CascadingKey("k", ("id",), TableId("shop", "p"), ("id",), "CASCADE")
    found = images()
    assert not found.learns(replace(SCHEMA, foreign_keys=(key,)), EVENTS, lacking("columns"))
    assert not found.learns(SCHEMA, replace(EVENTS, mode="changes"), lacking("columns"))
    assert not found.learns(SCHEMA, CreateTarget(), lacking("columns"))
    assert not found.learns(SCHEMA, EVENTS, TableError("Another.", table=str(T)))
    assert not found.learns(SCHEMA, EVENTS, TransientError("The disk is busy."))
    assert not found.is_partial(T)
