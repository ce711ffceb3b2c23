from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator

import pytest
from tests.runtime.http_client import Client, section

from penstock.runtime import http as served
from penstock.state import StateStore


@pytest.fixture(scope="module")
def pipeline_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    state = StateStore(tmp_path_factory.mktemp("http"))
    with served.serving(section("127.0.0.1:0"), state) as address:
        yield Client(state, address)
    state.close()


@pytest.fixture
def client(pipeline_server: Client) -> Client:
    """Of a server that knows no signal and no report."""
    with contextlib.closing(sqlite3.connect(pipeline_server.state.path)) as database, database:
        database.execute("DELETE FROM signals")
    (pipeline_server.state.path.parent / "status.json").unlink(missing_ok=True)
    return pipeline_server
