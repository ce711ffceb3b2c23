"""A connection to a subscription server, and its streams."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
from pyarrow import flight
from typing_extensions import Self

from penstock.client.batches import Batch
from penstock.errors import ConfigError, PenstockError, TransientError
from penstock.printable import printable

CALL_S = 60.0
"""How long a request may take that is no stream."""
SIZE_DEFAULT = 1000


def connect(
    address: str,
    *,
    token: str | None = None,
    user: str | None = None,
    password: str = "",
    tls: bool = False,
    certificates: str | Path | None = None,
) -> Server:
    """Connects to `listen.grpc` of a server, at `host:port`, with a token or a user of the server's file.

    `tls`: encrypts, and checks the server's certificate. `certificates`: the PEM file of those that sign it,
    if the system does not know them; then `tls` is meant. Nothing is sent before the first request."""
    return Server(address, token=token, user=user, password=password, tls=tls, certificates=certificates)


class Server:
    """See `connect`. Its methods may be called by any thread."""

    def __init__(
        self,
        address: str,
        *,
        token: str | None,
        user: str | None,
        password: str,
        tls: bool,
        certificates: str | Path | None,
    ) -> None:
        self.address = address
        headers = []
        if token is not None:
            headers = [(b"authorization", b"Bearer " + token.encode())]
        elif user is not None:
            pair = base64.b64encode(f"{user}:{password}".encode())
            headers = [(b"authorization", b"Basic " + pair)]
        self._streaming = flight.FlightCallOptions(headers=headers)
        self._asking = flight.FlightCallOptions(timeout=CALL_S, headers=headers)
        more: dict[str, Any] = {}
        if certificates is not None:
            more["tls_root_certs"] = Path(certificates).read_bytes()
        scheme = "grpc+tls" if tls or certificates is not None else "grpc"
        self._client = flight.FlightClient(f"{scheme}://{address}", **more)

    def destinations(self) -> dict[str, Any]:
        """The destinations that may be read, with their clients and how far these are."""
        found: dict[str, Any] = self.ask("destinations")
        return found

    def subscribe(
        self, destination: str, client: str, *, filter: str = "", size: int = SIZE_DEFAULT
    ) -> Stream:
        """The changes behind what `client` has acknowledged, in batches of at most `size` changes. A client
        has one stream at a time. The first one of a new client begins at the destination's `start`. `filter`
        narrows the destination's (docs/serve.md)."""
        return Stream(self, destination, client, {"filter": filter, "size": size})

    def read(self, destination: str, *, start: Any = "latest", filter: str = "") -> Stream:
        """Changes from `start` on: the `position` of a batch, `latest`, `earliest`, or what else a
        destination's `start` can be. The server remembers nothing of it."""
        return Stream(self, destination, "", {"filter": filter, "start": start})

    def unsubscribe(self, destination: str, client: str) -> None:
        """Has the server forget a client. Until then it keeps the log for it."""
        self.ask("unsubscribe", destination=destination, client=client)

    def ask(self, action: str, **fields: Any) -> Any:
        """Sends an action. Raises `PenstockError`."""
        with _errors(self.address):
            request = flight.Action(action, json.dumps(fields).encode())
            [answer] = self._client.do_action(request, self._asking)
            return json.loads(answer.body.to_pybytes())

    def open(self, ticket: dict[str, Any]) -> Any:
        """Begins a stream of Flight."""
        with _errors(self.address):
            return self._client.do_get(flight.Ticket(json.dumps(ticket).encode()), self._streaming)

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Stream:
    """An iterator over `Batch`es, which waits for changes until it is closed. It raises `TransientError` when
    the connection is lost; another stream then goes on."""

    def __init__(self, server: Server, destination: str, client: str, options: dict[str, Any]) -> None:
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
        with _errors(self._server.address):
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


@contextlib.contextmanager
def _errors(address: str) -> Iterator[None]:
    """Turns errors of Flight into ours."""
    try:
        yield
    except (flight.FlightUnauthenticatedError, flight.FlightUnauthorizedError) as error:
        raise ConfigError(
            f"The server at {address} refuses: {_said(error)}",
            hint="Give a `token`, or `user` and `password`.",
        ) from None
    except flight.FlightServerError as error:
        raise ConfigError(f"The server at {address} refuses: {_said(error)}") from None
    except (flight.FlightError, pa.ArrowException) as error:
        raise TransientError(
            f"The connection to the server at {address} failed: {_said(error)}",
            hint="Connect again. Without TLS on one side only, a connection ends at once, too.",
        ) from None


def _said(error: Exception) -> str:
    """What the server said, without what Flight adds."""
    text = str(error).partition(". Detail: ")[0].partition(". gRPC client debug context")[0]
    return printable(text)
