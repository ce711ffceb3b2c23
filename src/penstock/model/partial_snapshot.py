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
    """Rows within a range of keys `[lower, upper)` (SQL literals), those for which `condition` (SQL) is true,
    both, or those with the `keys`."""

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
    """Rows of one table that are read beside its log, at somebody's request (`signal`).

    since: an offset from which on every epoch carries the table; its chunks show all that the log holds up to
    there. status: `splitting`, `reading`, `done` (all placed), or `stopped`, for `reason`. chunks and rows:
    those placed, once it has ended.
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
