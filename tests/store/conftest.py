"""Stores to test: a local directory, and S3 servers of different makers.

The environment may name another one: `PENSTOCK_TEST_STORE=az://container`, and where it needs them
`PENSTOCK_TEST_STORE_ENDPOINT`, `…_KEY_ID` (the account of Azure), `…_SECRET`, and `…_FLAWS`, with `;` in
between.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.backoff import Schedule
from penstock.store.base import Store
from penstock.store.credentials import Ambient, GivenKeys, Keys
from penstock.store.opening import open_store
from penstock.store.options import Retries, StoreOptions
from penstock.testing.faulty_proxy import FaultyProxy
from penstock.testing.servers.s3 import KEY_ID, SECRET, Moto, S3Proxy, S3Server

S3_SERVERS: dict[str, type[Moto] | type[S3Proxy]] = {"moto": Moto, "s3proxy": S3Proxy}
OTHER = os.environ.get("PENSTOCK_TEST_STORE")
OTHER_FLAWS = frozenset(os.environ.get("PENSTOCK_TEST_STORE_FLAWS", "").split(";")) - {""}
KINDS = [*(["other"] if OTHER else []), "local", "moto", pytest.param("s3proxy", marks=pytest.mark.slow)]


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Callable[[str], S3Server]]:
    """`s3_server(name)`: started once in a run, with a bucket `lake`."""
    running: dict[str, S3Server] = {}

    def get(name: str) -> S3Server:
        if name not in running:
            running[name] = S3_SERVERS[name]()
            running[name].make_bucket("lake")
        return running[name]

    yield get
    for server in running.values():
        server.close()


def options(endpoint: str, *, seconds: float = 20, attempts: int = 20, request: float = 20) -> StoreOptions:
    """Quick retries: what takes long in a test is the machine."""
    return StoreOptions(
        credentials=GivenKeys(Keys(KEY_ID, SECRET)),
        endpoint=endpoint,
        retries=Retries(Schedule(first_s=0.01, max_s=0.1), seconds_max=seconds, attempts_max=attempts),
        request_seconds_max=request,
    )


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def flaws(kind: str) -> frozenset[str]:
    """What the server of this kind is known to do wrong. A test that it cannot pass skips that part."""
    if kind == "other":
        return OTHER_FLAWS
    return S3_SERVERS[kind].flaws if kind in S3_SERVERS else frozenset()


@pytest.fixture
def store(kind: str, s3_server: Callable[[str], S3Server], tmp_path: Path) -> Store:
    """An empty store of each kind."""
    if kind == "local":
        return open_store((tmp_path / "a store").as_uri())
    if kind == "other":
        given = {name: os.environ.get(f"PENSTOCK_TEST_STORE_{name}", "") for name in ("KEY_ID", "SECRET")}
        keys = GivenKeys(Keys(given["KEY_ID"], given["SECRET"])) if any(given.values()) else Ambient()
        reached = options(os.environ.get("PENSTOCK_TEST_STORE_ENDPOINT", ""))
        reached = replace(reached, credentials=keys, account=given["KEY_ID"])
        return open_store(f"{OTHER}/{uuid.uuid4().hex}/a store", reached)
    server = s3_server(kind)
    return open_store(f"s3://lake/{uuid.uuid4().hex}/a store", options(server.url))


@pytest.fixture(params=["moto"])
def proxy(request: pytest.FixtureRequest, s3_server: Callable[[str], S3Server]) -> Iterator[FaultyProxy]:
    """In front of an S3 server. S3Proxy does not end its answer 412 in a way that the proxy understands."""
    server = s3_server(request.param)
    with FaultyProxy(server.host, server.port) as proxy:
        yield proxy


@pytest.fixture
def url() -> str:
    """Of an empty place in the bucket."""
    return f"s3://lake/{uuid.uuid4().hex}"


@pytest.fixture
def faulty_store(request: pytest.FixtureRequest, proxy: FaultyProxy, url: str) -> Store:
    """A store whose requests go through `proxy`. A request has 5 seconds, or 2 where the test waits for
    them to pass."""
    return open_store(url, options(proxy.url, request=2 if "silent" in request.node.name else 5))
