"""Arrow Flight, which is a gRPC service: for `penstock.client`, and for any other client of Flight.

    DoGet     ticket {"destination", "filter", "start"}               changes; the reader keeps its place
              ticket {"destination", "filter", "client", "size"}      batches, which are acknowledged
              ticket {"destination", "table", "client"}               the same of one table, with its columns
    DoAction  acknowledge, roll_back {"destination", "client", "session", "batch"}; unsubscribe; destinations

Tickets and bodies are JSON. A stream has the column `change`: a row's change, or a statement, as JSON. The
metadata of its messages is JSON, too: `session` first, then `batch` and `position` (the place behind it);
`more` says that the batch goes on in the next message. A message without rows says that the server is there.

Flight calls come in threads of gRPC. What they need of subscriptions is done in the event loop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import TimeoutError as NotDone
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import flight

from penstock.errors import PenstockError, TransientError
from penstock.serve.batches import Block
from penstock.serve.destination import OF_ARROW, OF_FLIGHT, Destination, Destinations
from penstock.serve.filters import BadFilter
from penstock.serve.listeners import typed_stream
from penstock.serve.listeners.access import Access, Denied
from penstock.serve.listeners.events import READ_BYTES
from penstock.serve.listeners.rates import TooMany
from penstock.serve.log.mysql import start_of
from penstock.serve.log.origin import AnyReader
from penstock.serve.subscription import NotYet, Refused, Subscription

log = logging.getLogger(__name__)
T = TypeVar("T")

SCHEMA = pa.schema([pa.field("change", pa.string(), nullable=False)])
REQUEST_BYTES_MAX = 64 * 1024
"""Bytes of a ticket or a body. The longest field is a filter."""
STREAMS_MAX = 200
"""Streams at the same time. Each has a thread."""
WAIT_S = 1.0
"""Seconds between two checks whether the client of a quiet stream is still connected."""
QUIET_S = 10.0
"""How often something is sent when nothing changes."""
CALL_S = 60.0
"""How long the event loop may take for a request."""
SIZE_DEFAULT = 1000
"""Changes in a batch for clients that ask for no size, as in Canal."""

_NOTHING = pa.RecordBatch.from_arrays([pa.array([], pa.string())], schema=SCHEMA)


def _rows(block: Block) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(list(block.entries()), pa.binary()).cast(pa.string())], schema=SCHEMA
    )


class _Headers(flight.ServerMiddleware):  # type: ignore[misc]
    def __init__(self, authorization: str) -> None:
        self.authorization = authorization


class _HeaderFactory(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    def start_call(self, info: Any, headers: Mapping[str, list[str]]) -> _Headers:
        found = [values for name, values in headers.items() if name.lower() == "authorization"]
        return _Headers(str(found[0][0]) if found and found[0] else "")


class _Stream:
    """The `Owner` of a subscription. `session` proves that an acknowledgement comes from its client."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.session = secrets.token_hex(8)
        self.gone = asyncio.Event()
        self.subscription: Subscription | None = None
        self._waiting_since: float | None = None

    @property
    def idle_seconds(self) -> float:
        return 0.0 if self._waiting_since is None else time.monotonic() - self._waiting_since

    def given(self, waiting: bool) -> None:
        """Says whether a batch waits to be taken by the client. It gets no more until it has taken it."""
        self._waiting_since = time.monotonic() if waiting else None

    def dismiss(self) -> None:
        self.gone.set()
        if self.subscription is not None:
            self.subscription.wake()


class FlightService(flight.FlightServerBase):  # type: ignore[misc]
    """Serves from its construction until `end`."""

    def __init__(
        self,
        address: str,
        destinations: Destinations,
        access: Access,
        loop: asyncio.AbstractEventLoop,
        tls: tuple[Path, Path] | None,
    ) -> None:
        scheme = "grpc" if tls is None else "grpc+tls"
        certificates = [] if tls is None else [(tls[0].read_bytes(), tls[1].read_bytes())]
        super().__init__(
            f"{scheme}://{address}", tls_certificates=certificates, middleware={"headers": _HeaderFactory()}
        )
        self._destinations = destinations
        self._access = access
        self._loop = loop
        self._streams: set[_Stream] = set()
        self._ended = loop.create_future()

    async def end(self) -> None:
        """Ends all streams, and then the server."""
        if not self._ended.done():
            self._ended.set_result(None)
        for stream in list(self._streams):
            stream.dismiss()
        await self._loop.run_in_executor(None, self.shutdown)

    # requests, in threads of gRPC ---------------------------------------------------------------------------

    def do_get(self, context: Any, ticket: Any) -> Any:
        asked = _document(ticket.ticket, {"destination", "filter", "start", "client", "size", "table"})
        destination = self._allowed(context, asked)
        if len(self._streams) >= STREAMS_MAX:
            raise flight.FlightUnavailableError("The server has too many streams.")
        stream = _Stream(context.peer())
        if asked.get("table"):
            return self._begin_typed(context, stream, destination, asked)
        batches = self._given if "client" in asked else self._read
        return flight.GeneratorStream(SCHEMA, batches(context, stream, destination, asked))

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        asked = _document(action.body.to_pybytes(), {"destination", "client", "session", "batch", "table"})
        if action.type == "destinations":
            rights = self._rights(context)
            names = rights.of(self._destinations)
            report = self._call(self._reports(names))
            return [json.dumps(report).encode()]
        destination = self._allowed(context, asked)
        if action.type not in ("acknowledge", "roll_back", "unsubscribe"):
            raise flight.FlightServerError(
                "Known actions: acknowledge, roll_back, unsubscribe, destinations."
            )
        return [json.dumps(self._call(self._note(destination, action.type, asked))).encode()]

    def _rights(self, context: Any) -> Any:
        address = _host(context.peer())
        try:
            if not self._access.needs_login:
                rights = self._access.anybody(address)
            else:
                headers = context.get_middleware("headers")
                rights = self._access.header(headers.authorization, address=address)
            rights.take()
            return rights
        except TooMany as error:
            raise flight.FlightUnavailableError(str(error)) from None
        except Denied as error:
            raise flight.FlightUnauthenticatedError(str(error)) from None

    def _allowed(self, context: Any, asked: Mapping[str, Any]) -> Destination:
        name = str(asked.get("destination", ""))
        rights = self._rights(context)
        if name in rights and name not in self._destinations and (absent := self._destinations.absent(name)):
            raise flight.FlightUnavailableError(absent)
        if name not in rights.of(self._destinations):
            raise flight.FlightUnauthorizedError(f"There is no destination {name[:100]!r} for this client.")
        try:
            return self._destinations[name]
        except KeyError:
            raise flight.FlightUnavailableError(f"{name} is not served here any more.") from None

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a call in the event loop. Raises errors of Flight."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(CALL_S)
        except NotDone:
            future.cancel()
            raise flight.FlightTimedOutError("The server is too busy.") from None
        except (NotYet, TransientError) as error:
            raise flight.FlightUnavailableError(str(error)) from None
        except (Refused, BadFilter, ValueError, PenstockError) as error:
            raise flight.FlightServerError(str(error)) from None
        except OSError as error:
            log.error("positions cannot be stored: %s", error)
            raise flight.FlightUnavailableError(f"positions cannot be stored: {error.strerror}") from None

    # streams, in threads of gRPC ----------------------------------------------------------------------------

    def _given(
        self, context: Any, stream: _Stream, destination: Destination, asked: Mapping[str, Any]
    ) -> Iterator[tuple[pa.RecordBatch, bytes]]:
        """The batches of a subscription."""
        size = _size(asked)
        try:
            self._call(self._claim(stream, destination, asked))
            subscription = stream.subscription
            assert subscription is not None
            yield _NOTHING, _metadata(session=stream.session)
            said = time.monotonic()
            while not context.is_cancelled():
                stream.given(waiting=False)
                batch, blocks = self._call(subscription.get(size, WAIT_S, stream.gone))
                stream.given(waiting=True)
                if stream.gone.is_set():
                    raise flight.FlightUnavailableError("The server is ending, or another client has come.")
                if blocks or time.monotonic() > said + QUIET_S:
                    yield from self._messages(blocks, batch)
                    said = time.monotonic()
        finally:
            self._loop.call_soon_threadsafe(self._release, stream)

    def _begin_typed(
        self, context: Any, stream: _Stream, destination: Destination, asked: Mapping[str, Any]
    ) -> Any:
        """Batches of one table. Its schema is that of the first rows, or of the table."""
        try:
            if not asked.get("client") or asked.keys() & {"filter", "start"}:
                raise flight.FlightServerError("`table` needs `client`, and neither `filter` nor `start`.")
            first, schema = self._call(self._first_typed(stream, destination, asked))
        except BaseException:
            self._loop.call_soon_threadsafe(self._release, stream)
            raise
        stream.given(waiting=True)
        batches = self._typed(context, stream, destination, schema, first)
        return flight.GeneratorStream(schema, batches)

    async def _first_typed(
        self, stream: _Stream, destination: Destination, asked: Mapping[str, Any]
    ) -> tuple[tuple[int, list[Block]], pa.Schema]:
        filter = typed_stream.filter_of(str(asked["table"]))
        is_new = not destination.subscribed(_client(asked)).client.filter
        await self._claim(stream, destination, {**asked, "filter": filter})
        subscription = stream.subscription
        assert subscription is not None
        first = await subscription.get(1, None, stream.gone)
        try:
            return first, typed_stream.schema_of_stream(destination, str(asked["table"]), first[1])
        except BaseException:
            if is_new:
                subscription.filter_by("")  # it may still become one of another table
            raise

    def _typed(
        self,
        context: Any,
        stream: _Stream,
        destination: Destination,
        schema: pa.Schema,
        first: tuple[int, list[Block]],
    ) -> Iterator[typed_stream.Message]:
        subscription = stream.subscription
        assert subscription is not None
        nothing = pa.RecordBatch.from_pylist([], schema)
        try:
            yield nothing, _metadata(session=stream.session)
            said, (batch, blocks) = time.monotonic(), first
            while not context.is_cancelled():
                if stream.gone.is_set():
                    raise flight.FlightUnavailableError("The server is ending, or another client has come.")
                if blocks:
                    place = self._destinations.text_of(blocks[-1].place)
                    for rows, about in typed_stream.messages(blocks, schema, batch, place):
                        yield rows, about
                        if typed_stream.is_end(about):
                            return
                elif time.monotonic() > said + QUIET_S:
                    yield nothing, _metadata()
                said = time.monotonic() if blocks else said
                stream.given(waiting=False)
                batch, blocks = self._call(subscription.get(1, WAIT_S, stream.gone))
                stream.given(waiting=True)
        finally:
            self._loop.call_soon_threadsafe(self._release, stream)

    def _read(
        self, context: Any, stream: _Stream, destination: Destination, asked: Mapping[str, Any]
    ) -> Iterator[tuple[pa.RecordBatch, bytes]]:
        """Changes for a client that remembers its own place."""
        self._streams.add(stream)
        changes: AnyReader | None = None
        try:
            changes = self._call(self._reader(destination, asked))
            yield _NOTHING, _metadata(session=stream.session)
            said = time.monotonic()
            while not context.is_cancelled():
                blocks = self._call(self._next(destination, changes))
                if self._ended.done():
                    raise flight.FlightUnavailableError("The server is ending.")
                if blocks or time.monotonic() > said + QUIET_S:
                    yield from self._messages(blocks, None)
                    said = time.monotonic()
        finally:
            self._streams.discard(stream)
            if changes is not None:
                self._loop.call_soon_threadsafe(changes.close)

    def _messages(self, blocks: list[Block], batch: int | None) -> Iterator[tuple[pa.RecordBatch, bytes]]:
        if not blocks:
            yield _NOTHING, _metadata()
        for number, block in enumerate(blocks, 1):
            position = self._destinations.text_of(block.place)
            more = number < len(blocks)
            yield block.rendered(_rows), _metadata(batch=batch, position=position, more=more)

    # in the event loop --------------------------------------------------------------------------------------

    async def _claim(self, stream: _Stream, destination: Destination, asked: Mapping[str, Any]) -> None:
        filter = str(asked.get("filter", ""))
        destination.options.tables.narrowed(filter)  # one that cannot be used begins nothing
        subscription = destination.subscribed(_client(asked))
        self._streams.add(stream)
        stream.subscription = subscription
        if asked.get("table") and subscription.client.filter.lower() not in ("", filter.lower()):
            raise Refused("this client reads another table; each table needs a client of its own")
        await subscription.claim(stream, destination.takeover_seconds)
        subscription.filter_by(filter)
        await destination.settled()

    def _release(self, stream: _Stream) -> None:
        self._streams.discard(stream)
        if stream.subscription is not None:
            stream.subscription.release(stream)

    async def _note(self, destination: Destination, what: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        client = _client(asked)
        subscription = destination.existing(client)
        if what == "unsubscribe":
            if subscription.owner is not None:
                raise Refused("a client with this id is connected")
            destination.unsubscribe(client)
            await destination.settled()
            return {}
        owner, batch = subscription.owner or subscription.last_owner, asked.get("batch", 0)
        if owner is None:  # the stream was one of another server, or of this one before it was started again
            raise NotYet("this stream has ended: its batches are given again to the next one")
        if not isinstance(owner, _Stream) or owner.session != asked.get("session"):
            raise Refused("this stream has ended: its batches are given again to the next one")
        if not isinstance(batch, int):
            raise Refused("`batch` is the number of a batch")
        subscription.acknowledge(batch) if what == "acknowledge" else subscription.roll_back(batch)
        await destination.settled()
        return {"given": subscription.outstanding.given}

    async def _reports(self, names: list[str]) -> dict[str, Any]:
        return {name: self._destinations[name].report() for name in names}

    async def _reader(self, destination: Destination, asked: Mapping[str, Any]) -> AnyReader:
        start, filter = asked.get("start", "latest"), str(asked.get("filter", ""))
        if isinstance(start, str) and start[:1].isdigit():
            return destination.reader(filter, self._destinations.place_of(start), "json")
        return destination.reader(filter, start_of(start), "json")

    async def _next(self, destination: Destination, changes: AnyReader) -> list[Block]:
        """The next entries. Empty: none came within a second."""
        destination.check()
        blocks = changes.ready()
        if blocks is None and not changes.level:
            block = await changes.read(READ_BYTES)
            return [] if block is None else [block]
        if not blocks:
            await changes.wait(WAIT_S, self._ended)
            blocks = changes.ready()
        return blocks or []


def _client(asked: Mapping[str, Any]) -> str:
    """The id of a client among those of the destination."""
    return (OF_ARROW if asked.get("table") else OF_FLIGHT) + str(asked.get("client", ""))


def _metadata(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def _document(data: bytes, known: set[str]) -> dict[str, Any]:
    try:
        found = json.loads(data) if 0 < len(data) <= REQUEST_BYTES_MAX else {} if not data else None
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.keys() - known:
        fields = ", ".join(sorted(known))
        raise flight.FlightServerError(f"This is no JSON object with some of the fields {fields}.")
    return found


def _size(asked: Mapping[str, Any]) -> int:
    size = asked.get("size", SIZE_DEFAULT)
    if not isinstance(size, int) or not 0 < size <= 1_000_000:
        raise flight.FlightServerError("`size` is the most changes of a batch, from 1 to 1,000,000.")
    return size


def _host(peer: str) -> str:
    """The address without its port, of gRPC's `ipv4:127.0.0.1:1234`."""
    return peer.partition(":")[2].rpartition(":")[0]
