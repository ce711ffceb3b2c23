"""Streams of a subscription server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa
from typing_extensions import Self

from penstock.client import silence
from penstock.client.batches import Batch, TableBatch
from penstock.client.errors import as_ours
from penstock.errors import PenstockError, TransientError


class Connection(Protocol):
    """A server (`connection.Server`)."""

    address: str

    def ask(self, action: str, **fields: Any) -> Any: ...

    def open(self, ticket: dict[str, Any]) -> Any: ...


Kind = TypeVar("Kind", Batch, TableBatch)


class _Messages(Generic[Kind]):
    """What both kinds of streams do. A batch comes in several messages of Flight."""

    def __init__(self, server: Connection, names: dict[str, str], options: dict[str, Any], void: int) -> None:
        self._server = server
        self._names = names
        self._session = ""
        self._closed = False
        self._void = void
        """Batches up to this one were rolled back."""
        self.reading_since: float | None = None
        self._is_silent = False
        self._reader = server.open({**names, **options})
        self._parts: list[pa.RecordBatch] = []
        """The parts of a batch that is not complete yet."""
        self._parts_of: int | None = None
        """The number of this batch."""
        silence.watch(self)

    def __iter__(self) -> Iterator[Kind]:
        return self

    def __next__(self) -> Kind:
        try:
            while not self._ended:
                batch = self._read()
                if batch is not None:
                    return batch
        except PenstockError:
            if not self._closed:
                raise
        raise StopIteration

    @property
    def _ended(self) -> bool:
        return False

    def _read(self) -> Kind | None:
        """Reads the next message. None: the batch is not complete."""
        raise NotImplementedError

    def _message(self) -> tuple[pa.RecordBatch, dict[str, Any]]:
        """The rows of the next message, and what the server says of them."""
        self.reading_since = time.monotonic()
        try:
            with as_ours(self._server.address):
                chunk = self._reader.read_chunk()
        except StopIteration:
            raise TransientError(f"The server at {self._server.address} has ended the stream.") from None
        except PenstockError:
            if self._is_silent:
                raise TransientError(
                    f"The server at {self._server.address} has said nothing for {silence.SILENT_S:g} s.",
                    hint="Connect again.",
                ) from None
            raise
        finally:
            self.reading_since = None
        said: dict[str, Any] = json.loads(chunk.app_metadata.to_pybytes()) if chunk.app_metadata else {}
        self._session = said.get("session", self._session)
        return chunk.data, said

    def _add(self, batch: int | None, rows: pa.RecordBatch) -> None:
        if batch != self._parts_of:
            # Another thread may roll a batch back while a part of it is being read here.
            self._parts, self._parts_of = [], batch
        self._parts.append(rows)

    def _taken(self) -> list[pa.RecordBatch]:
        parts, self._parts = self._parts, []
        return parts

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

    def end_silent(self) -> None:
        """Ends a read whose server says nothing. Called by another thread."""
        self._is_silent = True
        self._reader.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Stream(_Messages[Batch]):
    """An iterator over `Batch`es, which waits for changes until it is closed. It raises `TransientError` when
    the connection is lost; another stream then goes on."""

    def __init__(
        self, server: Connection, destination: str, client: str | None, options: dict[str, Any]
    ) -> None:
        """`client`: None for a reader that keeps its own place."""
        names = {"destination": destination} | ({} if client is None else {"client": client})
        super().__init__(server, names, options, -1 if client is None else 0)
        self._read()  # refusals come now

    def _read(self) -> Batch | None:
        rows, said = self._message()
        if not rows.num_rows or (said.get("batch") or 0) <= self._void:
            return None
        self._add(said.get("batch"), rows)
        if said.get("more"):
            return None
        return Batch(said.get("batch"), said["position"], self._taken(), self._note)


class TableStream(_Messages[TableBatch]):
    """An iterator over `TableBatch`es of one table, which waits for changes until it is closed. It ends when
    the table's `schema` changes; `schema_changed` then says so. It raises `TransientError` when the
    connection is lost. In both cases another stream goes on behind what was acknowledged."""

    def __init__(self, server: Connection, destination: str, client: str, table: str) -> None:
        names = {"destination": destination, "client": client, "table": table}
        super().__init__(server, names, {}, 0)
        self.schema_changed = False
        with as_ours(server.address):
            self.schema: pa.Schema = self._reader.schema  # refusals come now

    @property
    def _ended(self) -> bool:
        return self.schema_changed

    def _read(self) -> TableBatch | None:
        rows, said = self._message()
        self.schema_changed = "ends" in said
        if said.get("batch", 0) <= self._void:
            return None
        if rows.num_rows:
            self._add(said["batch"], rows)
        if said["more"]:
            return None
        table = pa.Table.from_batches(self._taken(), self.schema)
        return TableBatch(said["batch"], said["position"], table, said.get("statement"), self._note)
