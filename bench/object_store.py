"""A private S3 server that is as far away as one in a cloud, and what its requests would cost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from bench.light_store import LightStore
from penstock.testing.faulty_proxy import Request

REQUEST_S = 0.02
"""How long each request takes at least."""
BUCKET = "lake"
DOLLARS = {"PUT": 5e-6, "POST": 5e-6, "LIST": 5e-6, "GET": 4e-7, "HEAD": 4e-7, "DELETE": 0.0}
"""Of one request to S3 Standard in us-east-1, by its public price list."""
_KEY_ID, _SECRET = "any", "any"  # the server checks none


class ObjectStore:
    """`sink`: the section of a pipeline file for Iceberg tables there, in a catalog in SQLite. `shared`: the
    sections that put there what tasks on other machines need."""

    def __init__(self, server: LightStore, folder: Path) -> None:
        self._server = server
        self.sink: dict[str, Any] = {
            "type": "iceberg",
            "catalog": {
                "type": "jdbc",
                "uri": f"jdbc:sqlite:{folder}/catalog.sqlite",
                "warehouse": f"s3://{BUCKET}/warehouse",
                "properties": {
                    "s3.endpoint": server.url,
                    "s3.path-style-access": "true",
                    "s3.access-key-id": _KEY_ID,
                    "s3.secret-access-key": _SECRET,
                    "client.region": "us-east-1",
                },
            },
        }
        keys = {"access_key_id": _KEY_ID, "secret_access_key": _SECRET}
        self.shared: dict[str, Any] = {
            "store": {"endpoint": server.url, **keys},
            "staging": f"s3://{BUCKET}/staging",
        }

    def processes(self) -> list[psutil.Process]:
        """The process in which the store runs: this one."""
        return [psutil.Process()]

    def forget(self) -> None:
        """Counts from now on."""
        self._server.requests.clear()

    def bytes_read(self, folder: str) -> int:
        """Of the objects in a folder of the bucket, by requests for ranges."""
        below = f"/{BUCKET}/{folder}/"
        return sum(
            _range(request) for request in list(self._server.requests) if request.path.startswith(below)
        )

    def requests(self) -> Counter[str]:
        """How many there were of each kind, so far."""
        return Counter(kind_of(request) for request in list(self._server.requests))


@contextmanager
def far_away(folder: Path) -> Iterator[ObjectStore]:
    with LightStore(REQUEST_S) as server:
        yield ObjectStore(server, folder)


def kind_of(request: Request) -> str:
    return "LIST" if request.method == "GET" and "list-type=" in request.path else request.method


def _range(request: Request) -> int:
    found = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("range", ""))
    return int(found[2]) - int(found[1]) + 1 if found and request.method == "GET" else 0


def dollars(requests: Counter[str]) -> float:
    return sum(DOLLARS.get(kind, 0.0) * count for kind, count in requests.items())
