from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.serve.serving import Serving, serving

from penstock.testing.servers import Database, MySqlServer

SHARED_MAX = 30
"""Tests of one run that may share a server."""


@pytest.fixture(scope="session")
def source() -> Iterator[MySqlServer]:
    """A server for tests of subscriptions, which write to databases of their own."""
    with MySqlServer() as server:
        yield server


@dataclass
class Shop:
    """A database with the table `orders (id, note)`, and a server that serves it: from the beginning, from
    the latest change, and in batches of so many KiB."""

    database: Database
    serving: Serving
    destination: str

    @property
    def later(self) -> str:
        return f"{self.destination}-later"

    @property
    def kib(self) -> str:
        return f"{self.destination}-kib"

    @property
    def address(self) -> str:
        return self.serving.address

    def execute(self, *statements: str) -> None:
        self.database.execute(*statements)

    def insert(self, first: int, last: int | None = None, *, width: int = 5) -> None:
        """One transaction with a row event for each row."""
        rows = range(first, (last or first) + 1)
        inserts = [f"INSERT INTO orders VALUES ({number}, REPEAT('x', {width}))" for number in rows]
        self.execute("BEGIN", *inserts, "COMMIT")


def options_of(source: MySqlServer, names: dict[str, str]) -> dict[str, Any]:
    """`names`: databases, by the destinations that serve them."""
    account = {"host": source.host, "port": source.port, "user": source.user, "password": source.password}
    destinations: dict[str, Any] = {}
    for name, database in names.items():
        tables = {"filter": rf"{database}\..*", "start": "earliest"}
        destinations |= {
            name: tables, f"{name}-later": {**tables, "start": "latest"},
            f"{name}-kib": {**tables, "batch": "bytes"},
        }  # fmt: skip
    return {"source": {**account, "start": "latest", "heartbeat": "1s"}, "destinations": destinations}


def database_of(source: MySqlServer, name: str) -> Database:
    database = Database(source, name)
    database.execute("CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(2000))")
    return database


@pytest.fixture(scope="session")
def common(source: MySqlServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Iterator[Shop]]:
    """Shops of one server. Starting a server for each test would take most of their time."""
    names = {f"shop-{number}": f"serve_{os.getpid()}_{number}" for number in range(SHARED_MAX)}
    databases = {name: database_of(source, database) for name, database in names.items()}
    # Its log begins behind these.
    with serving(source, tmp_path_factory.mktemp("serve"), **options_of(source, names)) as made:
        yield (Shop(database, made, name) for name, database in databases.items())


@pytest.fixture
def shop(common: Iterator[Shop]) -> Shop:
    return next(common)


_OWN = itertools.count()


@pytest.fixture
def own_shop(source: MySqlServer, tmp_path: Path) -> Iterator[Shop]:
    """For tests that stop or measure the server."""
    database = database_of(source, f"serve_own_{os.getpid()}_{next(_OWN)}")
    with serving(source, tmp_path, **options_of(source, {"example": database.name})) as made:
        yield Shop(database, made, "example")
