"""Errors of the server as Penstock's: who acts, and what to do."""

from __future__ import annotations

from penstock.connections.answers import NoAnswer
from penstock.connections.http import is_outage
from penstock.errors import ConfigError, PenstockError, TableError, TransientError
from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sinks.opensearch.client import Refused

TOO_LARGE = 413
BLOCKED = "cluster_block_exception"
"""An index or the cluster takes no writes: its disk is nearly full, or it starts."""
NO_INDEX = "index_not_found_exception"


def passes(status: int, kind: str) -> bool:
    return is_outage(status) or kind == BLOCKED


def explained(error: Exception, what: str, table: TableId | None) -> PenstockError:
    """The error without values of rows. `what` begins the message."""
    if isinstance(error, NoAnswer):
        return TransientError(f"{what}: {error}.", hint="It is tried again until the server answers.")
    assert isinstance(error, Refused)
    return refused(error.status, error.kind, what, table)


def refused(status: int, kind: str, what: str, table: TableId | None) -> PenstockError:
    said = f"{status}{f', {kind}' if kind else ''}"
    if kind == BLOCKED:
        return TransientError(
            f"{what}: the server takes no writes ({said}).",
            hint="Is its disk nearly full? It is tried again. Remove `index.blocks.read_only_allow_delete` "
            "if the server does not do that by itself.",
        )
    if status in (401, 403):
        return ConfigError(
            f"{what}: the server refuses this account ({said}).",
            hint="Check `sink.user` and `sink.password`, or `sink.api_key`. The account needs to create, "
            "read, write and delete its tables' indexes and the index `sink.control`, and to change aliases.",
        )
    if passes(status, kind):
        return TransientError(f"{what}: the server answers {said}.", hint="It is tried again.")
    if table is not None:
        return TableError(
            f"{what}: the server refuses it ({said}).",
            hint="Look for the reason in the server's log. Give the column another mapping "
            f"(`sink.mappings`), and run `penstock resnapshot --recreate FILE {argument(table)}`.",
            table=str(table),
        )
    return ConfigError(f"{what}: the server refuses it ({said}).", hint="Check the section `sink`.")


def too_large(table: TableId) -> TableError:
    return TableError(
        f"A row of {table} is larger than the server takes (413).",
        hint=f"Raise its `http.max_content_length`, then run `penstock unpark FILE {argument(table)}`.",
        table=str(table),
    )
