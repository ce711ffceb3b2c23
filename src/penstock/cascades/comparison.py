"""How a source compares the values of foreign keys."""

from __future__ import annotations

from typing import Literal, Protocol

from penstock.model.schema import Column

Comparison = Literal["exact", "padded", "folded", "folded padded", "unknown"]
"""How the source compares values of a column. `exact`: by bytes. `padded`: ignoring trailing spaces.
`folded`: ignoring case. `unknown`: in a way that we do not know. `folded` is only right for plain ASCII."""


class Comparisons(Protocol):
    """The source's rules for comparing values, by the column's definition. Asks nothing."""

    def of(self, column: Column) -> Comparison:
        """How values of the column are compared."""

    def is_case_sensitive(self, column: Column) -> bool:
        """Whether only identical texts are equal, also beyond ASCII."""
