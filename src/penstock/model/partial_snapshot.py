"""Which rows of a table a partial snapshot reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from penstock.model.offset import Offset
from penstock.model.schema import TableId

KeyValues = tuple[Any, ...]
"""One value for each column of the key, as JSON holds them."""

PartStatus = Literal["splitting", "reading", "done", "stopped"]


@dataclass(frozen=True)
class Part:
    """The rows within a range of keys `[lower, upper)` (SQL literals), the rows for which `condition` (SQL)
    is true, both together, or the rows with the `keys`."""

    lower: tuple[str, ...] | None = None
    upper: tuple[str, ...] | None = None
    condition: str = ""
    keys: tuple[KeyValues, ...] = ()

    def to_json(self) -> dict[str, Any]:
        fields = {"lower": self.lower, "upper": self.upper, "condition": self.condition, "keys": self.keys}
        return {name: value for name, value in fields.items() if value}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Part:
        def bound(value: list[str] | None) -> tuple[str, ...] | None:
            return None if value is None else tuple(value)

        keys = tuple(tuple(key) for key in fields.get("keys", ()))
        return cls(bound(fields.get("lower")), bound(fields.get("upper")), fields.get("condition", ""), keys)


@dataclass(frozen=True)
class PartialSnapshot:
    """A snapshot of some rows of one table, at somebody's request (`signal`).

    since: every epoch from this offset on has the table, and the chunks show all that the log has up to
    there. status: `splitting`, `reading`, `done` (all chunks are placed), or `stopped` because of `reason`.
    chunks and rows: the numbers of placed ones, once it has ended.
    """

    number: int
    signal: str
    table: TableId
    since: Offset
    part: Part
    status: PartStatus = "splitting"
    reason: str = ""
    chunks: int = 0
    rows: int = 0
