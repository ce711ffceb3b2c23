"""Tables whose targets keep every version of a row: `history` of the pipeline file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator

from penstock.model.change import CHANGE_TYPE, COMMIT_TIMESTAMP
from penstock.model.name import split_name
from penstock.model.pattern import TablePattern
from penstock.model.schema import TableId

HistoryKind = Literal["scd2", "changelog"]
"""`scd2`: the target's rows are versions, with the times from which and up to which each was valid.
`changelog`: its rows are changes."""

VALID_FROM, VALID_TO, IS_CURRENT = "_valid_from", "_valid_to", "_is_current"
HISTORY_COLUMNS = (VALID_FROM, VALID_TO, IS_CURRENT)
"""Columns of a target with history: when the version began and ended (TIMESTAMP; NULL: it has not ended), and
whether it is the row's present version."""


def _for_all(value: Any) -> Any:
    return {"*.*": value} if isinstance(value, str) else value


def _dotted(value: dict[str, HistoryKind]) -> dict[str, HistoryKind]:
    for pattern in value:
        if not all(part.text for part in split_name(pattern)):
            raise ValueError(f"{pattern!r} names no database; write it as database.table, for example shop.*")
    return value


Versions = Annotated[
    dict[str, HistoryKind],
    BeforeValidator(_for_all, json_schema_input_type=HistoryKind | dict[str, HistoryKind]),
    AfterValidator(_dotted),
]
"""`history` of the pipeline file. One word means all tables."""


class History:
    """Decides which targets keep versions. Keys of `rules` are patterns of tables. `untouched`: tables of the
    pipeline's own."""

    def __init__(self, rules: Mapping[str, HistoryKind], untouched: Iterable[TableId] = ()) -> None:
        self.rules = dict(rules)
        self._untouched = frozenset(untouched)

    def __bool__(self) -> bool:
        return bool(self.rules)

    @cached_property
    def _compiled(self) -> list[tuple[TablePattern, HistoryKind]]:
        return [(TablePattern.of(pattern), kind) for pattern, kind in self.rules.items()]

    def kind(self, table: TableId) -> HistoryKind | None:
        """What the target keeps: by the first pattern that matches. None: present rows only."""
        if table in self._untouched:
            return None
        return next((kind for pattern, kind in self._compiled if pattern.matches(table)), None)

    def adds(self, table: TableId) -> tuple[str, ...]:
        """The columns that a history adds to the table's target, or to the rows that it is made of."""
        changes = (CHANGE_TYPE, COMMIT_TIMESTAMP)
        return {"scd2": (*HISTORY_COLUMNS, *changes), "changelog": changes, None: ()}[self.kind(table)]

    def __contains__(self, table: TableId) -> bool:
        return self.kind(table) is not None
