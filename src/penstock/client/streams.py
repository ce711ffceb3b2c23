"""Streams of a subscription server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Protocol

import pyarrow as pa
from typing_extensions import Self

from penstock.client.batches import Batch, TableBatch
from penstock.client.errors import as_ours
from penstock.errors import PenstockError, TransientError


class Connection(Protocol):
    """A server (`connection.Server`)."""

    address: str

    def ask(self, action: str, **fields: Any) -> Any: ...

    def open(self, ticket: dict[str, Any]) -> Any: ...


class Stream:
    """An iterator over `Batch`es, which waits for changes until it is closed. It raises `TransientError` when
    the connection is lost; another stream then goes on."""

    def __init__(self, server: Connection, destination: str, client: str, options: dict[str, Any]) -> None:
        self._server = server
        self._names = {"destination": destination} | ({"client": client} if client else {})
        self._session = ""
        self._closed = False
        self._void = 0 if client else -1
        """Batches up to this one were rolled back."""
        self._reader = server.open({**self._names, **options})
        self._parts: list[pa.RecordBatch] = []
        self._read()  # refusals come now

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        try:
            while True:
                batch = self._read()
                if batch is not None:
                    return batch
        except PenstockError:
            if self._closed:
                raise StopIteration from None
            raise

    def _read(self) -> Batch | None:
        """The next message. None: the batch is not complete."""
        with as_ours(self._server.address):
            try:
                chunk = self._reader.read_chunk()
            except StopIteration:
                raise TransientError(f"The server at {self._server.address} has ended the stream.") from None
        said: dict[str, Any] = json.loads(chunk.app_metadata.to_pybytes()) if chunk.app_metadata else {}
        self._session = said.get("session", self._session)
        if not chunk.data.num_rows or (said.get("batch") or 0) <= self._void:
            return None
        self._parts.append(chunk.data)
        if said.get("more"):
            return None
        parts, self._parts = self._parts, []
        return Batch(said.get("batch"), said["position"], parts, self._note)

    def _note(self, what: str, batch: int) -> None:
        answer = self._server.ask(what, **self._names, session=self._session, batch=batch)
        if what == "roll_back":
            # Some of them may be on their way.
            self._void, self._parts = answer["given"], []

    def close(self) -> None:
        """Ends the iteration, also one that waits in another thread. Batches that were not acknowledged are
        given again to the next stream of the client."""
        self._closed = True
        self._reader.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class TableStream:
    """An iterator over `TableBatch`es of one table, which waits for changes until it is closed. It ends when
    the table's `schema` changes; `schema_changed` then says so. It raises `TransientError` when the
    connection is lost. In both cases another stream goes on behind what was acknowledged."""

    def __init__(self, server: Connection, destination: str, client: str, table: str) -> None:
        self._server = server
        self._names = {"destination": destination, "client": client, "table": table}
        self._session = ""
        self._closed = False
        self._void = 0
        self.schema_changed = False
        self._reader = server.open(self._names)
        with as_ours(server.address):
            self.schema: pa.Schema = self._reader.schema  # refusals come now
        self._rows: list[pa.RecordBatch] = []

    def __iter__(self) -> Iterator[TableBatch]:
        return self

    def __next__(self) -> TableBatch:
        try:
            while not self.schema_changed:
                batch = self._read()
                if batch is not None:
                    return batch
        except PenstockError:
            if not self._closed:
                raise
        raise StopIteration

    def _read(self) -> TableBatch | None:
        """The next message. None: the batch is not complete."""
        with as_ours(self._server.address):
            try:
                chunk = self._reader.read_chunk()
            except StopIteration:
                raise TransientError(f"The server at {self._server.address} has ended the stream.") from None
        said: dict[str, Any] = json.loads(chunk.app_metadata.to_pybytes()) if chunk.app_metadata else {}
        self._session = said.get("session", self._session)
        self.schema_changed = "ends" in said
        if said.get("batch", 0) <= self._void:
            return None
        if chunk.data.num_rows:
            self._rows.append(chunk.data)
        if said["more"]:
            return None
        rows, self._rows = pa.Table.from_batches(self._rows, self.schema), []
        return TableBatch(said["batch"], said["position"], rows, said.get("statement"), self._note)

    def _note(self, what: str, batch: int) -> None:
        answer = self._server.ask(what, **self._names, session=self._session, batch=batch)
        if what == "roll_back":
            # Some of them may be on their way.
            self._void, self._rows = answer["given"], []

    def close(self) -> None:
        """See `Stream.close`."""
        self._closed = True
        self._reader.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
