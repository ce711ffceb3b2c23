"""Rows of a step as operations on documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.connections.answers import STRANGE, NoAnswer
from penstock.model.change import DELETED, PRESENT, SEQUENCE
from penstock.model.schema import TableId
from penstock.sinks.names import source_columns
from penstock.sinks.opensearch.bulk import Gone, Operation, deletion, put
from penstock.sinks.opensearch.client import Client, quoted
from penstock.sinks.opensearch.records import Record
from penstock.sinks.opensearch.values import documents, field_name, ids
from penstock.sinks.refusals import missing_row
from penstock.sinks.rows import Incomplete, Rows

LOOKED_UP_MAX = 1000
"""Documents of one look-up."""


def operations(
    client: Client, table: TableId, record: Record, batch: pa.RecordBatch, rows: Rows, key: Sequence[str]
) -> list[Operation]:
    """The operations for rows. Rows that lack columns are completed from their present documents, which no
    other driver changes meanwhile."""
    names = source_columns(batch.schema.names)
    found = documents(batch, names)
    identities = ids(batch, key)
    sequences = batch.column(SEQUENCE).to_pylist()
    deleted = batch.column(DELETED).to_pylist() if DELETED in batch.schema.names else [False] * len(found)
    if rows.incomplete is not None:
        present = batch.column(PRESENT).to_pylist()
        partial = [n for n, one in enumerate(present) if one is not None and not deleted[n]]
        held = _held(client, record.backing, [identities[n] for n in partial])
        for number in partial:
            own = held.get(identities[number])
            if own is None and rows.incomplete.target_is_complete:
                raise missing_row(table, sequences[number])
            found[number] = {} if own is None else _completed(
                own, found[number], names, present[number], rows.incomplete
            )  # fmt: skip
    made = []
    for number, document in enumerate(found):
        if deleted[number]:
            made.append(deletion(identities[number], sequences[number]))
        elif document:  # else it lacks columns, and comes with the snapshot
            made.append(put(identities[number], sequences[number], document))
    return made


_DOCUMENT = ({"_id": str, "_source": dict}, {"_id": str, "found": bool}, {"error": object})
"""Of answers: what is read here."""


def _held(client: Client, index: str, identities: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Documents by their ids, as they are now."""
    found = {}
    for start in range(0, len(identities), LOOKED_UP_MAX):
        body = {"ids": list(identities[start : start + LOOKED_UP_MAX])}
        answer = client.ask("POST", f"/{quoted(index)}/_mget", body, shape={"docs": [_DOCUMENT]})
        if len(answer["docs"]) != len(body["ids"]):
            raise NoAnswer(STRANGE)
        if any("error" in one for one in answer["docs"]):
            raise Gone
        found.update({one["_id"]: one["_source"] for one in answer["docs"] if one.get("found")})
    return found


def _completed(
    own: dict[str, Any], logged: dict[str, Any], names: Sequence[str], present: str, incomplete: Incomplete
) -> dict[str, Any]:
    merged = {**own, SEQUENCE: logged[SEQUENCE]}
    for name in names:
        if present[incomplete.places[name]] == "1":
            field = field_name(name)
            merged.pop(field, None)
            if field in logged:
                merged[field] = logged[field]
    return merged
