"""Arrow Flight, which is a gRPC service: for `penstock.client`, and for any other client of Flight.

    DoGet     ticket {"destination", "filter", "start"}               changes; the reader keeps its place
              ticket {"destination", "filter", "client", "size"}      batches, which are acknowledged
              ticket {"destination", "table", "client"}               the same of one table, with its columns
    DoAction  acknowledge, roll_back {"destination", "client", "session", "batch"}; unsubscribe; destinations

Tickets and bodies are JSON. A stream has the column `change`: a row's change, or a statement, as JSON. The
metadata of its messages is JSON, too: `session` first, then `batch` and `position` (the place behind it);
`more` says that the batch goes on in the next message. A message without rows says that the server is there.

gRPC gives a call to this module once its headers are here. Nothing else of it is read before they show who
asks. Then one message is read, which gRPC refuses by its head if it is too long or compressed. The server of
PyArrow itself reads messages of any length first, and has no way to limit them.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import grpc
import pyarrow as pa

from penstock.access.credentials import Denied
from penstock.access.rates import TooMany
from penstock.access.tokens import Rights
from penstock.errors import ConfigError, PenstockError, TransientError
from penstock.serve.batches import READ_BYTES, Block
from penstock.serve.destination import OF_ARROW, OF_FLIGHT, Destination, Destinations
from penstock.serve.listeners import flight_messages as messages
from penstock.serve.listeners import typed_stream
from penstock.serve.listeners.access import Access
from penstock.serve.log.destination_log import AnyReader
from penstock.serve.start import start_of
from penstock.serve.subscription import NotYet, Refused, Subscription

log = logging.getLogger(__name__)
T = TypeVar("T")

SCHEMA = pa.schema([pa.field("change", pa.string(), nullable=False)])
REQUEST_BYTES_MAX = 64 * 1024
"""Bytes of a ticket or an action. The longest field is a filter."""
HEADER_BYTES_MAX = 16 * 1024
"""Bytes of the headers of a call."""
REQUEST_S = 10.0
"""Time from the headers of a call to the end of its request, and for a connection to begin. Clients need some
milliseconds."""
STREAMS_MAX = 200
"""Streams at the same time. Each may have some MiB in memory."""
ACTIONS_MAX = 200
"""Other calls at the same time."""
IDLE_S = 60.0
"""A connection without a call is closed after this time. Clients open another one by themselves."""
DEAD_S = 30.0
"""How long a connection may be silent before its client has to answer a ping, and how long that may take."""
WAIT_S = 1.0
"""Seconds between two checks how far the log is read for a quiet stream."""
QUIET_S = 10.0
"""How often something is sent when nothing changes."""
CALL_S = 60.0
"""How long an action may take."""
STOP_S = 2.0
"""How long calls may take to end."""
SIZE_DEFAULT = 1000
"""Changes in a batch for clients that ask for no size, as in Canal."""
TEXT_CHARACTERS_MAX = 1000
"""Of an error. gRPC sends it as a header, and clients limit these."""

_ACTIONS = ("acknowledge", "roll_back", "unsubscribe", "destinations")
_BEGIN = messages.schema(SCHEMA)
_NOTHING = messages.rows(pa.RecordBatch.from_arrays([pa.array([], pa.string())], schema=SCHEMA))
_Answer = Callable[[Any, Rights, bytes], Awaitable[None]]


def _options(connections_max: int) -> list[tuple[str, int]]:
    """Settings of gRPC (`grpc/impl/channel_arg_names.h`)."""
    return [
        ("grpc.max_receive_message_length", REQUEST_BYTES_MAX),
        ("grpc.max_send_message_length", -1),
        ("grpc.compression_enabled_algorithms_bitset", 1),  # only the one that does nothing
        ("grpc.internal.per_message_decompression", 0),
        ("grpc.max_metadata_size", HEADER_BYTES_MAX),
        ("grpc.absolute_max_metadata_size", HEADER_BYTES_MAX),
        ("grpc.max_concurrent_streams", STREAMS_MAX + ACTIONS_MAX),
        ("grpc.max_allowed_incoming_connections", connections_max),
        ("grpc.server_handshake_timeout_ms", int(REQUEST_S * 1000)),
        ("grpc.max_connection_idle_ms", int(IDLE_S * 1000)),
        ("grpc.keepalive_time_ms", int(DEAD_S * 1000)),
        ("grpc.keepalive_timeout_ms", int(DEAD_S * 1000)),
        ("grpc.http2.bdp_probe", 0),  # would let more of a request wait here, unread
        ("grpc.so_reuseport", 0),
    ]


def _rows(block: Block) -> bytes:
    texts = pa.array(list(block.entries()), pa.binary()).cast(pa.string())
    return messages.rows(pa.RecordBatch.from_arrays([texts], schema=SCHEMA))


class _Refusal(Exception):
    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


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

    async def give(self, context: Any, *parts: bytes) -> None:
        """Sends a message of a batch. Returns once the client takes it; it gets no more until then."""
        self._waiting_since = time.monotonic()
        await context.write(b"".join(parts))
        self._waiting_since = None

    def dismiss(self) -> None:
        self.gone.set()
        if self.subscription is not None:
            self.subscription.wake()

    def check(self) -> None:
        if self.gone.is_set():
            raise NotYet("The server is ending, or another client has come.")


class _Calls(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, handlers: Mapping[str, Any]) -> None:
        self._handlers = handlers

    def service(self, call: Any) -> Any:
        return self._handlers.get(call.method)


class FlightService:
    """Made in the event loop. `begin` binds the address, and `end` ends all streams and then the server."""

    def __init__(self, destinations: Destinations, access: Access, connections_max: int) -> None:
        self._destinations = destinations
        self._access = access
        self._streams: set[_Stream] = set()
        self._ended = asyncio.get_running_loop().create_future()
        self._server = grpc.aio.server(
            options=_options(connections_max), maximum_concurrent_rpcs=STREAMS_MAX + ACTIONS_MAX
        )
        answers = {"DoGet": self._get, "DoAction": self._act}
        calls = {f"{messages.SERVICE}{name}": self._handler(one) for name, one in answers.items()}
        self._server.add_generic_rpc_handlers((_Calls(calls),))

    async def begin(self, address: str, tls: tuple[Path, Path] | None) -> int:
        """Accepts clients from now on. `tls`: files with the certificate and its key. Returns the port."""
        try:
            if tls is None:
                port = self._server.add_insecure_port(address)
            else:
                pair = (tls[1].read_bytes(), tls[0].read_bytes())
                port = self._server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
        except RuntimeError:
            raise ConfigError(
                f"`listen.grpc` is {address}, which cannot be bound.",
                hint="Choose another address of this machine.",
            ) from None
        await self._server.start()
        return int(port)

    async def end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)
        for stream in list(self._streams):
            stream.dismiss()
        await self._server.stop(STOP_S)

    # calls --------------------------------------------------------------------------------------------------

    def _handler(self, answer: _Answer) -> Any:
        async def call(_: Any, context: Any) -> None:
            try:
                rights = self._rights(context)
                message = await _within(REQUEST_S, context.read(), "The request did not come in time.")
                if message is not grpc.aio.EOF:  # gRPC has refused it, or there is none
                    await answer(context, rights, message)
                return
            except grpc.aio.BaseError:
                return  # the client has gone
            except Exception as error:
                code, said = _explained(error)
            await context.abort(code, said[:TEXT_CHARACTERS_MAX])

        # As a stream: the request is then read when it is asked for, and not before the call.
        return grpc.stream_stream_rpc_method_handler(call)

    def _rights(self, context: Any) -> Rights:
        address = _address(context).rpartition(":")[0].strip("[]")
        if not self._access.needs_login:
            rights = self._access.anybody(address)
        else:
            found = [value for name, value in context.invocation_metadata() if name == "authorization"]
            scheme, _, given = (str(found[0]) if found else "").partition(" ")
            rights = self._access.shown(scheme.lower(), given.strip(), address=address)
        rights.take()
        return rights

    async def _destination(self, rights: Rights, asked: Mapping[str, Any]) -> Destination:
        name = str(asked.get("destination", ""))
        if name in rights and name not in self._destinations and (absent := self._destinations.absent(name)):
            raise NotYet(absent)
        if name not in rights.of(self._destinations):
            raise _Refusal(
                grpc.StatusCode.PERMISSION_DENIED,
                f"There is no destination {name[:100]!r} for this client.",
            )
        found = self._destinations[name]
        await found.served()
        return found

    async def _act(self, context: Any, rights: Rights, message: bytes) -> None:
        kind, body = messages.action(message)
        asked = messages.request(body, {"destination", "client", "session", "batch", "table"})
        if kind not in _ACTIONS:
            raise Refused(f"Known actions: {', '.join(_ACTIONS)}.")
        if kind == "destinations":
            document = {name: self._destinations[name].report() for name in rights.of(self._destinations)}
        else:
            work = self._note(rights, kind, asked)
            document = await _within(CALL_S, work, "The server is too busy.")
        await context.write(messages.result(document))

    async def _note(self, rights: Rights, what: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        destination = await self._destination(rights, asked)
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

    # streams ------------------------------------------------------------------------------------------------

    async def _get(self, context: Any, rights: Rights, message: bytes) -> None:
        known = {"destination", "filter", "start", "client", "size", "table"}
        asked = messages.request(messages.ticket(message), known)
        destination = await self._destination(rights, asked)
        if len(self._streams) >= STREAMS_MAX:
            raise NotYet("The server has too many streams.")
        give = self._typed if asked.get("table") else self._given if "client" in asked else self._read
        stream = _Stream(_address(context))
        self._streams.add(stream)
        try:
            await give(context, stream, destination, asked)
        finally:
            self._streams.discard(stream)
            if stream.subscription is not None:
                stream.subscription.release(stream)

    async def _claim(
        self, stream: _Stream, destination: Destination, asked: Mapping[str, Any]
    ) -> Subscription:
        filter = str(asked.get("filter", ""))
        destination.options.tables.narrowed(filter)  # one that cannot be used begins nothing
        subscription = destination.subscribed(_client(asked))
        stream.subscription = subscription
        if asked.get("table") and subscription.client.filter.lower() not in ("", filter.lower()):
            raise Refused("this client reads another table; each table needs a client of its own")
        await subscription.claim(stream, destination.takeover_seconds)
        subscription.filter_by(filter)
        await destination.settled()
        return subscription

    async def _given(
        self, context: Any, stream: _Stream, destination: Destination, asked: Mapping[str, Any]
    ) -> None:
        """The batches of a subscription."""
        size = _size(asked)
        subscription = await self._claim(stream, destination, asked)
        await stream.give(context, _BEGIN)
        await stream.give(context, _NOTHING, messages.about(session=stream.session))
        said = time.monotonic()
        while True:
            batch, blocks = await subscription.get(size, WAIT_S, stream.gone)
            stream.check()
            if blocks or time.monotonic() > said + QUIET_S:
                await self._give(context, stream, blocks, batch)
                said = time.monotonic()

    async def _typed(
        self, context: Any, stream: _Stream, destination: Destination, asked: Mapping[str, Any]
    ) -> None:
        """Batches of one table. Its schema is that of the first rows, or of the table."""
        if not asked.get("client") or asked.keys() & {"filter", "start"}:
            raise Refused("`table` needs `client`, and neither `filter` nor `start`.")
        table = str(asked["table"])
        is_new = not destination.subscribed(_client(asked)).client.filter
        subscription = await self._claim(
            stream, destination, {**asked, "filter": typed_stream.filter_of(table)}
        )
        batch, blocks = await subscription.get(1, None, stream.gone)
        try:
            schema = typed_stream.schema_of_stream(destination, table, blocks)
        except BaseException:
            if is_new:
                subscription.filter_by("")  # it may still become one of another table
            raise
        nothing = messages.rows(pa.RecordBatch.from_pylist([], schema))
        await stream.give(context, messages.schema(schema))
        await stream.give(context, nothing, messages.about(session=stream.session))
        said = time.monotonic()
        while True:
            stream.check()
            place = self._destinations.text_of(blocks[-1].place) if blocks else ""
            found = typed_stream.messages(blocks, schema, batch, place) if blocks else iter(())
            # The rows of a large transaction are one batch: the loop goes on while they are written.
            while (message := await asyncio.to_thread(_next, found)) is not None:
                data, about = message
                await stream.give(context, data, messages.metadata(about))
                if typed_stream.is_end(about):
                    return
                said = time.monotonic()
            if time.monotonic() > said + QUIET_S:
                await stream.give(context, nothing, messages.about())
                said = time.monotonic()
            batch, blocks = await subscription.get(1, WAIT_S, stream.gone)

    async def _read(
        self, context: Any, stream: _Stream, destination: Destination, asked: Mapping[str, Any]
    ) -> None:
        """Changes for a client that remembers its own place."""
        changes = self._reader(destination, asked)
        try:
            await stream.give(context, _BEGIN)
            await stream.give(context, _NOTHING, messages.about(session=stream.session))
            said = time.monotonic()
            while True:
                blocks = await self._next(destination, changes)
                stream.check()
                if blocks or time.monotonic() > said + QUIET_S:
                    await self._give(context, stream, blocks, None)
                    said = time.monotonic()
        finally:
            changes.close()

    def _reader(self, destination: Destination, asked: Mapping[str, Any]) -> AnyReader:
        start, filter = asked.get("start", "latest"), str(asked.get("filter", ""))
        if isinstance(start, str) and start[:1].isdigit():
            return destination.reader(filter, self._destinations.place_of(start), "json")
        return destination.reader(filter, start_of(start), "json")

    async def _next(self, destination: Destination, changes: AnyReader) -> list[Block]:
        """The next entries. Empty: none came within a second."""
        await destination.served()
        blocks = changes.ready()
        if blocks is None and not changes.level:
            block = await changes.read(READ_BYTES)
            return [] if block is None else [block]
        if not blocks:
            await changes.wait(WAIT_S, self._ended)
            blocks = changes.ready()
        return blocks or []

    async def _give(self, context: Any, stream: _Stream, blocks: list[Block], batch: int | None) -> None:
        if not blocks:
            await stream.give(context, _NOTHING, messages.about())
        for number, block in enumerate(blocks, 1):
            position = self._destinations.text_of(block.place)
            about = messages.about(batch=batch, position=position, more=number < len(blocks))
            await stream.give(context, block.rendered(_rows), about)


def _next(found: Any) -> tuple[bytes, bytes] | None:
    """The next message of a typed stream, and its metadata."""
    one = next(found, None)
    return None if one is None else (messages.rows(one[0]), one[1])


async def _within(seconds: float, work: Awaitable[T], said: str) -> T:
    try:
        return await asyncio.wait_for(work, seconds)
    except asyncio.TimeoutError:
        raise _Refusal(grpc.StatusCode.DEADLINE_EXCEEDED, said) from None


def _explained(error: Exception) -> tuple[grpc.StatusCode, str]:
    """The status of a call that has failed, and what its client is told."""
    match error:
        case _Refusal():
            return error.code, str(error)
        case Denied():
            return grpc.StatusCode.UNAUTHENTICATED, str(error)
        case TooMany() | NotYet() | TransientError():
            return grpc.StatusCode.UNAVAILABLE, str(error)
        case Refused() | ValueError() | PenstockError():
            return grpc.StatusCode.INVALID_ARGUMENT, str(error)
        case OSError():
            log.error("positions cannot be stored: %s", error)
            return grpc.StatusCode.UNAVAILABLE, f"positions cannot be stored: {error.strerror}"
        case _:
            log.error("a bug ended a call", exc_info=error)
            return grpc.StatusCode.INTERNAL, "This is a bug in Penstock. The server's log has the details."


def _client(asked: Mapping[str, Any]) -> str:
    """The id of a client among those of the destination."""
    return (OF_ARROW if asked.get("table") else OF_FLIGHT) + str(asked.get("client", ""))


def _size(asked: Mapping[str, Any]) -> int:
    size = asked.get("size", SIZE_DEFAULT)
    if not isinstance(size, int) or not 0 < size <= 1_000_000:
        raise Refused("`size` is the most changes of a batch, from 1 to 1,000,000.")
    return size


def _address(context: Any) -> str:
    """The client's address and port, of gRPC's `ipv4:127.0.0.1:1234` or `ipv6:%5B::1%5D:1234`."""
    return unquote(context.peer()).partition(":")[2]
