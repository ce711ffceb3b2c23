"""Which entries of the log subscribers get, and what is in them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

from penstock.serve.filters import Filter
from penstock.serve.settings import DestinationSection

EntryFormat = Literal["canal-entry", "json", "arrow"]
"""`arrow`: see `typed_scan`."""


@dataclass(frozen=True)
class View:
    """Decides which entries of the log subscribers get, and what is in them. Equal views have equal
    entries."""

    tables: Filter
    format: EntryFormat
    ddl: bool
    row_statements: bool
    transaction_entries: bool
    faithful: bool
    columns: tuple[tuple[str, bool, tuple[str, ...]], ...]
    """For a table, the columns that its rows have (True), or those that are left out (False)."""

    @classmethod
    def of(cls, options: DestinationSection, tables: Filter, format: EntryFormat = "canal-entry") -> View:
        canal = format == "canal-entry"
        pairs = ((True, options.columns), (False, options.exclude_columns))
        columns = ((name, keep, tuple(names)) for keep, chosen in pairs for name, names in chosen.items())
        return cls(
            tables, format, options.ddl, options.row_statements, canal and options.transaction_entries,
            canal and options.faithful, tuple(columns),
        )  # fmt: skip

    @property
    def digest(self) -> str:
        """A digest of the options that change the number of entries in a transaction. Equal views have equal
        ones, in every process."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]
