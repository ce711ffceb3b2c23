"""A pipeline's server of HTTP, and a client of it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import time
from dataclasses import dataclass
from typing import Any

from penstock.config.http_section import PipelineHttpSection
from penstock.state import StateStore

TOKEN, READER = "0123456789abcdef-a-token", "fedcba9876543210-a-reader"
HOST = "Host: localhost"
LOG = {"id": "a", "type": "log", "data": {"message": "x"}}


def section(listen: str, **options: Any) -> PipelineHttpSection:
    tokens = {"operator": {"token": TOKEN, "role": "operator"}, "reader": {"token": READER}}
    return PipelineHttpSection.model_validate({"listen": listen, "tokens": tokens, **options})


@dataclass
class Client:
    state: StateStore
    address: str

    @property
    def place(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host.strip("[]"), int(port)

    def ask(
        self, method: str, path: str, body: Any = None, *, token: str | None = TOKEN, **headers: str
    ) -> tuple[int, Any]:
        """Status, and what the JSON of the answer says."""
        connection = http.client.HTTPConnection(*self.place, timeout=60)
        with contextlib.closing(connection):
            if token is not None:
                headers["Authorization"] = f"Bearer {token}"
            sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, sent, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def get(self, path: str) -> tuple[int, Any, str]:
        """Status, JSON, and what the header Link says."""
        connection = http.client.HTTPConnection(*self.place, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
            response = connection.getresponse()
            return response.status, json.loads(response.read()), response.headers.get("Link", "")

    def post(self, body: Any, **options: Any) -> tuple[int, Any]:
        return self.ask("POST", "/signals", body, **options)

    def say(self, head: str) -> socket.socket:
        """A connection on which this was said: lines of a request, without the empty one."""
        connection = socket.create_connection(self.place, timeout=60)
        with contextlib.suppress(ConnectionError):  # it may be refused before its end
            connection.sendall("\r\n".join([*head.split("\n"), "", ""]).encode())
        return connection

    def report(self, **fields: Any) -> None:
        """As the pipeline's loop does."""
        document = {"pid": os.getpid(), "updated": time.time(), **fields}
        (self.state.path.parent / "status.json").write_text(json.dumps(document))
