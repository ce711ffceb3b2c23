"""A connection to a subscription server, and its streams."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from types import TracebackType
from typing import Any

from pyarrow import flight
from typing_extensions import Self

from penstock.client.errors import as_ours
from penstock.client.streams import Stream, TableStream
from penstock.errors import ConfigError

CALL_S = 60.0
"""How long a request may take that is no stream."""
SIZE_DEFAULT = 1000
"""Changes in a batch if the caller does not say, as in Canal."""

_TOKEN = re.compile("[ -~]*")
"""The characters that gRPC accepts in the value of a header."""


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
    if the system does not know them; then `tls` is meant. Nothing is sent before the first request.

    Raises `ConfigError` for a token that no header can have."""
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
            if not _TOKEN.fullmatch(token):
                # gRPC would say no more than that it failed.
                raise ConfigError(
                    "`token` has characters that no header can have.",
                    hint="It has printable ASCII characters only. A token that was read from a file may have "
                    "a line end: `token.strip()` removes it.",
                )
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
        return Stream(self, destination, None, {"filter": filter, "start": start})

    def subscribe_table(self, destination: str, client: str, table: str) -> TableStream:
        """The changes of one table (`database.table`) with its columns, behind what `client` has
        acknowledged. The stream has the table's `schema`, and ends when that changes: the next one goes on
        with the new one."""
        return TableStream(self, destination, client, table)

    def unsubscribe(self, destination: str, client: str, *, table: str | None = None) -> None:
        """Has the server forget a client. Until then it keeps the log for it. `table`: the client is one of
        `subscribe_table`."""
        named = {} if table is None else {"table": table}
        self.ask("unsubscribe", destination=destination, client=client, **named)

    def ask(self, action: str, **fields: Any) -> Any:
        """Sends an action. Raises `PenstockError`."""
        with as_ours(self.address):
            request = flight.Action(action, json.dumps(fields).encode())
            [answer] = self._client.do_action(request, self._asking)
            return json.loads(answer.body.to_pybytes())

    def open(self, ticket: dict[str, Any]) -> Any:
        """Begins a stream of Flight."""
        with as_ours(self.address):
            return self._client.do_get(flight.Ticket(json.dumps(ticket).encode()), self._streaming)

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
