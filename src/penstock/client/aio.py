"""The client for programs with an event loop. Each stream has a thread that waits for its entries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from typing_extensions import Self

from penstock.client.batches import Batch, TableBatch
from penstock.client.connection import SIZE_DEFAULT, Server, connect

T = TypeVar("T")
B = TypeVar("B", bound="Batch | TableBatch")
B_co = TypeVar("B_co", bound="Batch | TableBatch", covariant=True)


def connect_async(
    address: str,
    *,
    token: str | None = None,
    user: str | None = None,
    password: str = "",
    tls: bool = False,
    certificates: str | Path | None = None,
) -> AsyncServer:
    """Like `connect`."""
    return AsyncServer(
        connect(address, token=token, user=user, password=password, tls=tls, certificates=certificates)
    )


class AsyncServer:
    """`Server`, with coroutines. Use it as `async with`."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-client")

    async def destinations(self) -> dict[str, Any]:
        return await _in(self._thread, self._server.destinations)

    async def unsubscribe(self, destination: str, client: str, *, table: str | None = None) -> None:
        await _in(self._thread, lambda: self._server.unsubscribe(destination, client, table=table))

    def subscribe(
        self, destination: str, client: str, *, filter: str = "", size: int = SIZE_DEFAULT
    ) -> AsyncStream[Batch]:
        return AsyncStream(lambda: self._server.subscribe(destination, client, filter=filter, size=size))

    def read(self, destination: str, *, start: Any = "latest", filter: str = "") -> AsyncStream[Batch]:
        return AsyncStream(lambda: self._server.read(destination, start=start, filter=filter))

    def subscribe_table(self, destination: str, client: str, table: str) -> AsyncStream[TableBatch]:
        return AsyncStream(lambda: self._server.subscribe_table(destination, client, table))

    async def acknowledge(self, batch: Batch | TableBatch) -> None:
        """See `Batch.acknowledge`."""
        await _in(self._thread, batch.acknowledge)

    async def roll_back(self, batch: Batch | TableBatch) -> None:
        await _in(self._thread, batch.roll_back)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _in(self._thread, self._server.close)
        self._thread.shutdown(wait=False)


class _Batches(Protocol[B_co]):
    def __next__(self) -> B_co: ...

    def __iter__(self) -> Iterator[B_co]: ...

    def close(self) -> None: ...


class AsyncStream(Generic[B]):
    """`Stream` or `TableStream` for `async with` and `async for`. It begins with the first of them."""

    def __init__(self, begin: Callable[[], _Batches[B]]) -> None:
        self._begin = begin
        self._stream: _Batches[B] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-stream")

    def __aiter__(self) -> AsyncIterator[B]:
        return self

    async def __anext__(self) -> B:
        try:
            batch = await _in(self._thread, self._next)
        except asyncio.CancelledError:
            self._end()
            raise
        if batch is None:
            raise StopAsyncIteration
        return batch

    def _next(self) -> B | None:
        if self._stream is None:
            self._stream = self._begin()
        return next(self._stream, None)

    async def __aenter__(self) -> Self:
        def begin() -> None:
            self._stream = self._begin()

        await _in(self._thread, begin)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._thread.shutdown(wait=False)


async def _in(thread: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(thread, work)
