"""Many writes of documents in one request."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.backoff import Schedule
from penstock.connections.answers import STRANGE, NoAnswer
from penstock.model.schema import TableId
from penstock.sinks.opensearch.client import Client, Refused
from penstock.sinks.opensearch.faults import NO_INDEX, TOO_LARGE, passes, refused, too_large
from penstock.sinks.opensearch.values import as_line

ROWS_MAX = 5000
"""Operations of one request. More would not be faster."""
ATTEMPTS_MAX = 6
"""Attempts of a request, or of its part that a busy server has refused. Then the epoch is tried again."""
_PAUSES = Schedule(0.2, 5.0, jitter=0.3)
_OLDER = 409
_NOTHING_THERE = 404


class Gone(Exception):
    """The index, or the alias for writing, is not there any more."""


@dataclass(frozen=True)
class Operation:
    """One document that is put (`body`) or deleted (None). `lines`: as the server reads it."""

    action: bytes
    body: bytes | None

    @property
    def size(self) -> int:
        return len(self.action) + len(self.body or b"") + 2

    @property
    def lines(self) -> bytes:
        return self.action + b"\n" + (b"" if self.body is None else self.body + b"\n")


def put(identity: str, version: int, document: Mapping[str, Any]) -> Operation:
    """Stores a document, unless the server has it in this version or a later one."""
    action = {"index": {"_id": identity, "version": version, "version_type": "external"}}
    return Operation(as_line(action), as_line(document))


def deletion(identity: str, version: int, *, same: bool = False) -> Operation:
    """Deletes a document, unless the server has it in this version or a later one. `same`: also in this."""
    kind = "external_gte" if same else "external"
    action = {"delete": {"_id": identity, "version": version, "version_type": kind}}
    return Operation(as_line(action), None)


class Bulk:
    """Sends operations in requests of about `bytes_max` bytes."""

    def __init__(self, client: Client, bytes_max: int) -> None:
        self._client = client
        self._bytes_max = bytes_max

    def send(
        self, table: TableId, index: str, operations: Sequence[Operation], *, alias: bool = True
    ) -> None:
        """Sends operations to an index. `alias`: it must be an alias. Raises `Gone` if it does not exist."""
        for part in _portions(operations, self._bytes_max):
            self._send(table, index, part, alias=alias)

    def _send(self, table: TableId, index: str, part: Sequence[Operation], *, alias: bool) -> None:
        failures = 0
        while part:
            last = failures + 1 == ATTEMPTS_MAX
            try:
                found = self._client.bulk(index, b"".join(one.lines for one in part), alias=alias)
            except Refused as error:
                if error.status == TOO_LARGE:
                    self._send_halves(table, index, part, alias=alias)
                    return
                if error.kind == NO_INDEX:
                    raise Gone from None
                if last or not passes(error.status, error.kind):
                    raise
            else:
                part = _to_repeat(table, part, found, last=last)
            failures += 1
            if part:
                time.sleep(_PAUSES.seconds(failures))

    def _send_halves(self, table: TableId, index: str, part: Sequence[Operation], *, alias: bool) -> None:
        if len(part) == 1:
            raise too_large(table)
        half = len(part) // 2
        self._send(table, index, part[:half], alias=alias)
        self._send(table, index, part[half:], alias=alias)


def _to_repeat(
    table: TableId, part: Sequence[Operation], found: Sequence[Mapping[str, Any]], *, last: bool
) -> list[Operation]:
    """The operations that a busy server has refused. Raises an error for one that it refuses for good. One
    whose version is not greater was done before."""
    if len(found) != len(part):
        raise NoAnswer(STRANGE)
    again = []
    for one, answer in zip(part, found, strict=True):
        error, status = answer.get("error"), answer["status"]
        if status == _OLDER or error is None:
            continue  # 404 without an error: there was nothing to delete
        kind = str(error.get("type", "")) if isinstance(error, dict) else ""
        if kind == NO_INDEX:
            raise Gone
        if last or not passes(status, kind):
            raise refused(status, kind, f"Rows of {table} were not written", table)
        again.append(one)
    return again


def _portions(operations: Sequence[Operation], bytes_max: int) -> Iterator[Sequence[Operation]]:
    start = size = 0
    for place, one in enumerate(operations):
        if place > start and (place - start >= ROWS_MAX or size + one.size > bytes_max):
            yield operations[start:place]
            start, size = place, 0
        size += one.size
    if start < len(operations):
        yield operations[start:]
