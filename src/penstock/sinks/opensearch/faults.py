"""Errors of the server as Penstock's: who acts, and what to do."""

from __future__ import annotations

from penstock.connections.answers import NoAnswer
from penstock.connections.verdicts import Codes, Verdict
from penstock.errors import ConfigError, PenstockError, TableError, TransientError
from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sinks.opensearch.client import Refused
from penstock.sinks.refusals import refusal

TOO_LARGE = 413
BLOCKED = "cluster_block_exception"
"""An index or the cluster takes no writes: its disk is nearly full, or it starts."""
CODES = Codes(
    "https://docs.opensearch.org/latest/api-reference/document-apis/bulk/, and the classes of exceptions in "
    "https://github.com/opensearch-project/OpenSearch (OpenSearchException)",
    outage=frozenset({
        BLOCKED, 408, 425, 429, *range(100, 200), *range(300, 400), *range(500, 600),
        "process_cluster_event_timeout_exception", "cluster_manager_not_discovered_exception",
        "master_not_discovered_exception", "no_shard_available_action_exception", "node_closed_exception",
        "unavailable_shards_exception", "rejected_execution_exception",
        "opensearch_rejected_execution_exception",
        "es_rejected_execution_exception", "circuit_breaking_exception", "index_closed_exception",
        "node_not_connected_exception", "receive_timeout_transport_exception",
        "snapshot_in_progress_exception",
        "concurrent_snapshot_execution_exception", "search_context_missing_exception",
        "index_create_block_exception",  # disks are nearly full
        "illegal_index_shard_state_exception", "index_shard_closed_exception",
        "index_shard_not_started_exception", "index_shard_recovering_exception",
        "index_shard_relocated_exception", "index_shard_started_exception",
        "index_shard_not_recovering_exception", "shard_not_found_exception",
        "shard_not_in_primary_mode_exception", "primary_shard_closed_exception", "no_such_node_exception",
        "node_weighed_away_exception", "task_cancelled_exception", "timeout_exception",
    }),
    configuration=frozenset({401, 403, 407, "security_exception"}),
)  # fmt: skip
"""By the name of the exception, and by the status."""
NO_INDEX = "index_not_found_exception"


def passes(status: int, kind: str) -> bool:
    return CODES.verdict(kind, status) is Verdict.OUTAGE


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
    verdict = CODES.verdict(kind, status)
    if verdict is Verdict.CONFIGURATION:
        refused, details = refusal(table, of_table=status == 403)
        return refused(
            f"{what}: the server refuses this account ({said}).",
            hint="Check `sink.user` and `sink.password`, or `sink.api_key`. The account needs to create, "
            "read, write and delete its tables' indexes and the index `sink.control`, and to change aliases.",
            **details,
        )
    if verdict is Verdict.OUTAGE:
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
