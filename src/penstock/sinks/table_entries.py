"""Entries of `sink.tables` and `sink.topics`: what they have in common in all sinks, the tables that they
match. Pure."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, field_validator

from penstock.model.pattern import TablePattern
from penstock.model.schema import TableId
from penstock.model.section import Section


def _as_list(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def as_text(value: Any) -> Any:
    """Properties are texts. YAML reads `true` and `3` as other types."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float)) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_as_list, json_schema_input_type=str | tuple[str, ...])]
Property = Annotated[str, BeforeValidator(as_text, json_schema_input_type=str | bool | int | float)]


class TableEntry(Section):
    """An entry is about the tables that it matches. For a table, the first entry that matches counts."""

    match: Texts
    """Patterns as in `tables`. For `merge_shards`, the name of the target (`into`) must match."""

    @field_validator("match")
    @classmethod
    def _is_patterns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("name at least one table")
        for pattern in value:
            if "." not in pattern:
                raise ValueError(f"{pattern!r} names no database; write it as database.table")
        return value

    def matches(self, table: TableId) -> bool:
        return any(TablePattern.of(pattern).matches(table) for pattern in self.match)
