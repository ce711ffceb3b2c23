"""Private PostgreSQL servers of all versions, whose log has what changes rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.sources.postgresql.pg_log import connected

from penstock.testing.servers.postgresql import PostgreSqlServer

VERSIONS = [
    pytest.param(version, id=f"postgresql{version}", marks=[pytest.mark.slow] if version != 17 else [])
    for version in PostgreSqlServer.RELEASES
]
"""A test that asks for `version` or `server` runs on each (but for 17: in `make test-all`)."""


@pytest.fixture(scope="package", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="package")
def server(version: int) -> Iterator[PostgreSqlServer]:
    settings = {"wal_level": "logical", "max_wal_senders": "20", "max_replication_slots": "20"}
    with PostgreSqlServer(settings=settings, version=version) as server:
        with connected(server) as connection:
            connection.execute('CREATE PUBLICATION "all" FOR ALL TABLES')
            connection.execute("CREATE TYPE happy AS ENUM ('fine', 'so so')")
            connection.execute("CREATE DOMAIN positive AS integer CHECK (VALUE > 0)")
        yield server


@pytest.fixture
def connection(server: PostgreSqlServer) -> Iterator[psycopg.Connection[Any]]:
    with connected(server) as connection:
        yield connection
