"""The messages of Arrow Flight (Flight.proto) that the server reads and writes. Pure.

A `FlightData` has the head and the body of an Arrow IPC message, and metadata of ours: JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.serve.listeners import protobuf

SERVICE = "/arrow.flight.protocol.FlightService/"
_HEAD, _METADATA, _BODY = 2, 3, 1000
"""Numbers of the fields of `FlightData`."""


def ticket(message: bytes) -> bytes:
    """The content of a `Ticket`. Raises `BadPacket`."""
    return protobuf.fields(message)[1].get(1, b"")


def action(message: bytes) -> tuple[str, bytes]:
    """Type and body of an `Action`. Raises `BadPacket`."""
    _, texts = protobuf.fields(message)
    return texts.get(1, b"").decode(errors="replace"), texts.get(2, b"")


def result(document: Any) -> bytes:
    """A `Result`."""
    return protobuf.text(1, json.dumps(document).encode())


def schema(of: pa.Schema) -> bytes:
    """The first `FlightData` of a stream."""
    return protobuf.text(_HEAD, _parts(of.serialize())[0])


def rows(of: pa.RecordBatch) -> bytes:
    """A `FlightData` without metadata. Those of `about` may be appended to it."""
    head, body = _parts(of.serialize())
    return protobuf.text(_HEAD, head) + protobuf.text(_BODY, body)


def about(**fields: Any) -> bytes:
    """The metadata of a `FlightData`."""
    return metadata(json.dumps(fields).encode())


def metadata(document: bytes) -> bytes:
    return protobuf.text(_METADATA, document)


def _parts(message: pa.Buffer) -> tuple[bytes, bytes]:
    found = pa.ipc.read_message(message)
    return found.metadata.to_pybytes(), b"" if found.body is None else found.body.to_pybytes()


def request(data: bytes, known: set[str]) -> dict[str, Any]:
    """The JSON object of a ticket or a body. Its values are texts and numbers; only `start` may be an object
    of such. Raises `ValueError`."""
    try:
        found = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.keys() - known or not all(map(_is_flat, _values(found))):
        fields = ", ".join(sorted(known))
        raise ValueError(f"This is no JSON object with some of the fields {fields}.")
    return found


def _values(document: Mapping[str, Any]) -> list[Any]:
    start = document.get("start")
    inner = list(start.values()) if isinstance(start, dict) else [start]
    return [*(value for name, value in document.items() if name != "start"), *inner]


def _is_flat(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)
