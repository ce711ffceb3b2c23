"""The client for programs with an event loop. Waiting is done by a thread of each stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from typing_extensions import Self

from penstock.client.batches import Batch
from penstock.client.connection import SIZE_DEFAULT, Server, Stream, connect

T = TypeVar("T")


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

    async def unsubscribe(self, destination: str, client: str) -> None:
        await _in(self._thread, lambda: self._server.unsubscribe(destination, client))

    def subscribe(
        self, destination: str, client: str, *, filter: str = "", size: int = SIZE_DEFAULT
    ) -> AsyncStream:
        return AsyncStream(lambda: self._server.subscribe(destination, client, filter=filter, size=size))

    def read(self, destination: str, *, start: Any = "latest", filter: str = "") -> AsyncStream:
        return AsyncStream(lambda: self._server.read(destination, start=start, filter=filter))

    async def acknowledge(self, batch: Batch) -> None:
        """See `Batch.acknowledge`."""
        await _in(self._thread, batch.acknowledge)

    async def roll_back(self, batch: Batch) -> None:
        await _in(self._thread, batch.roll_back)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _in(self._thread, self._server.close)
        self._thread.shutdown(wait=False)


class AsyncStream:
    """`Stream` for `async with` and `async for`. The stream begins with the first of them."""

    def __init__(self, begin: Callable[[], Stream]) -> None:
        self._begin = begin
        self._stream: Stream | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-stream")

    def __aiter__(self) -> AsyncIterator[Batch]:
        return self

    async def __anext__(self) -> Batch:
        try:
            batch = await _in(self._thread, self._next)
        except asyncio.CancelledError:
            self._end()
            raise
        if batch is None:
            raise StopAsyncIteration
        return batch

    def _next(self) -> Batch | None:
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
