from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.serve.serving import Serving, serving

from penstock.testing.servers import Database, MySqlServer


@pytest.fixture(scope="session")
def source() -> Iterator[MySqlServer]:
    """A server for tests of subscriptions, which write to databases of their own."""
    with MySqlServer() as server:
        yield server


@dataclass
class Shop:
    """A database with the table `orders (id, note)`, and a server that serves it."""

    database: Database
    serving: Serving

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


@pytest.fixture
def shop(source: MySqlServer, tmp_path: Path) -> Iterator[Shop]:
    database = Database(source, None)
    database.execute("CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(2000))")
    account = {"host": source.host, "port": source.port, "user": source.user, "password": source.password}
    options = {
        "source": {**account, "start": "latest", "heartbeat": "1s"},
        "destinations": {
            "example": {"filter": rf"{database.name}\..*", "start": "earliest"},
            "later": {"filter": rf"{database.name}\..*", "start": "latest"},
            "kib": {"filter": rf"{database.name}\..*", "start": "earliest", "batch": "bytes"},
        },
    }
    with serving(source, tmp_path, **options) as made:
        yield Shop(database, made)
    database.drop()
