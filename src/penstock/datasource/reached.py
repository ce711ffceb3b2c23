"""How far a stream has got, and how a query hears that its columns have changed.

At a change of the table's columns a stream ends, for the query's definition. The query must first have every
row before the change, for good, and then fail. Spark does not say when a batch is done, and with the trigger
`availableNow` it asks for a last offset only once in each run. So the offset at which a definition ends has a
`mark`, which is another one in each run, and another one after Spark has asked for the rows before it. If the
query has everything, then to Spark there is one more batch, from that offset to the same offset with another
mark. Asking for the rows of this batch is what fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_MARK = "end_of_definition"


@dataclass(frozen=True)
class Reached:
    """`mark`: the query's definition ends here."""

    offset: int
    mark: int | None = None

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Reached:
        return cls(fields["offset"], fields.get(_MARK))

    @property
    def fields(self) -> dict[str, Any]:
        return {"offset": self.offset} if self.mark is None else {"offset": self.offset, _MARK: self.mark}


class Marks:
    """`opened`: how often the stream was opened, this time included."""

    def __init__(self, opened: int) -> None:
        self._opened = opened
        self._given = False

    def given(self) -> None:
        """Spark has asked for the rows up to the end of the definition."""
        self._given = True

    def next(self) -> int:
        return 2 * self._opened + self._given
