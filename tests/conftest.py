"""Fixtures: real servers. See `penstock.testing.servers`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from penstock.testing import servers


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[servers.MySqlServer | servers.ExternalMySqlServer]:
    """One MySQL for the whole run, shared: leave its settings as they are. `mysql` gives a database in it."""
    with servers.mysql() as server:
        yield server


@pytest.fixture
def mysql(mysql_server: servers.MySqlServer | servers.ExternalMySqlServer) -> Iterator[servers.Database]:
    """A fresh database on the shared server, dropped afterwards."""
    database = servers.Database(mysql_server)
    yield database
    database.drop()


@pytest.fixture
def mysql_factory() -> Iterator[Callable[..., servers.MySqlServer]]:
    """`mysql_factory(option=value, …)`: a private server of the test's own, closed after it."""
    with ExitStack() as stack:

        def start(**options: Any) -> servers.MySqlServer:
            return stack.enter_context(servers.MySqlServer(options))

        yield start
