"""What a source adds to the pipeline file that `penstock init` writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.model.schema import TableId


@dataclass(frozen=True, kw_only=True)
class FirstFile:
    """Of one kind of servers. The lines are comments in the file."""

    server: str
    """What such a server is called."""
    port: int
    """On which such servers listen unless they are told otherwise."""
    schemas: str
    """What a table's name begins with: `database`, or `schema`."""
    one_database: bool = False
    """Whether `source.database` is needed."""
    account: tuple[str, ...]
    """SQL that makes the account, and what else the server needs."""
    hints: tuple[str, ...]
    """Further options of the section `source`, each a line of YAML with a remark."""
    replicas: str
    """What `snapshot.hosts` can name."""
    tables: Callable[[Any], list[TableId]]
    """`tables(options)` connects, and returns the tables that the account sees, ordered. Raises the errors
    of a connection."""
