"""What a stream of changes yields."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from penstock.errors import ConfigError


@dataclass(frozen=True)
class TableBatch:
    """Rows of one table, in the order of the source. `rows` has the table's columns, then `_change_type`
    (`insert`, `update_preimage`, `update_postimage`, `delete`), `_sequence` and `_commit_timestamp`.
    `statement`: what has defined or emptied the table behind these rows: `{kind, database, table, sql}`.
    `position`: the place behind them. `id`: the batch's number in its subscription."""

    id: int
    position: str
    rows: pa.Table
    statement: dict[str, Any] | None
    _note: Callable[[str, int], None] = field(repr=False, compare=False)

    def acknowledge(self) -> None:
        """See `Batch.acknowledge`."""
        self._note("acknowledge", self.id)

    def roll_back(self) -> None:
        """See `Batch.roll_back`."""
        self._note("roll_back", self.id)


@dataclass(frozen=True)
class Batch:
    """Changes in the order of the source. A transaction is in one batch, unless it is larger than that.

    `position`: the place behind them, where `Server.read` can go on. `id`: the batch's number in its
    subscription; None: of `Server.read`, whose batches are not acknowledged."""

    id: int | None
    position: str
    parts: Sequence[pa.RecordBatch]
    _note: Callable[[str, int], None] = field(repr=False, compare=False)

    @cached_property
    def changes(self) -> list[dict[str, Any]]:
        """Each change of a row, and each statement, as the format `json` has it (docs/formats.md)."""
        return [json.loads(text) for text in self.texts]

    @property
    def texts(self) -> list[str]:
        """The changes as texts of JSON, one for each."""
        return [text for part in self.parts for text in part.column("change").to_pylist()]

    @property
    def arrow(self) -> pa.Table:
        """The changes as a table with one column, `change`, that has their JSON."""
        return pa.Table.from_batches(self.parts)

    def acknowledge(self) -> None:
        """The server remembers that this batch was processed before the call returns. Batches are
        acknowledged in their order. Raises `ConfigError` if it was acknowledged before, or if its stream has
        ended."""
        self._note("acknowledge", self._number)

    def roll_back(self) -> None:
        """Makes the server give this batch and all later ones again."""
        self._note("roll_back", self._number)

    @property
    def _number(self) -> int:
        if self.id is None:
            raise ConfigError(
                "Batches of `read` are not acknowledged.",
                hint="Keep `position`, and give it as `start`; or use `subscribe`.",
            )
        return self.id
