"""`penstock.client` against a server: what is read, remembered, and refused."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import os
import re
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.serve.conftest import database_of
from tests.serve.serving import Serving, eventually, serving

from penstock.client import Batch, Server, connect, connect_async, silence
from penstock.errors import ConfigError, TransientError
from penstock.testing.servers import Database, MySqlServer
from penstock.testing.servers.process import free_port

TOKEN, OTHER = "0123456789abcdef", "fedcba9876543210"
_NUMBERS = itertools.count()
DATABASES: dict[str, Database] = {}
"""By their destinations."""


@pytest.fixture(scope="module")
def source() -> Iterator[MySqlServer]:
    with MySqlServer() as server:
        yield server


@dataclass
class Shop:
    database: Database
    serving: Serving
    server: Server
    destination: str

    def insert(self, first: int, last: int) -> None:
        """One transaction."""
        rows = ", ".join(f"({number}, 'x')" for number in range(first, last + 1))
        self.database.execute(f"INSERT INTO orders VALUES {rows}")


@pytest.fixture(scope="module")
def served(source: MySqlServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """With a destination for each test, `shop-N`."""
    names = {f"shop-{number}": f"client_{os.getpid()}_{number}" for number in range(14)}
    for name, database in names.items():
        DATABASES[name] = database_of(source, database)
    options: dict[str, Any] = {
        "listen": {"canal": "127.0.0.1:0", "grpc": f"127.0.0.1:{free_port()}"},
        "tokens": {
            "all": {"token": TOKEN},
            "one": {"token_sha256": hashlib.sha256(OTHER.encode()).hexdigest(), "destinations": ["shop-0"]},
        },
        "users": {"reader": {"password": "secret", "destinations": ["shop-0", "shop-1"]}},
        "destinations": {
            name: {"filter": rf"{database}\..*", "start": "earliest", "ddl": False}
            for name, database in names.items()
        },
    }
    with serving(source, tmp_path_factory.mktemp("client"), **options) as made:
        yield made


@pytest.fixture
def shop(served: Serving) -> Iterator[Shop]:
    destination = f"shop-{next(_NUMBERS)}"
    with connect(served.listening["grpc"], token=TOKEN) as server:
        yield Shop(DATABASES[destination], served, server, destination)


def ids(batch: Batch) -> list[int]:
    return [one["after"]["id"] for one in batch.changes]


def test_a_client_goes_on_behind_what_it_has_acknowledged(shop: Shop) -> None:
    shop.insert(1, 3)
    shop.insert(4, 5)
    with shop.server.subscribe(shop.destination, "billing", size=3) as stream:
        first, second = next(stream), next(stream)
        assert (ids(first), ids(second)) == ([1, 2, 3], [4, 5])
        assert first.changes[0]["op"] == "c" and first.arrow.num_rows == 3
        with pytest.raises(ConfigError, match="not the first"):
            second.acknowledge()
        first.acknowledge()
        with pytest.raises(ConfigError, match="before"):
            first.acknowledge()
    with shop.server.subscribe(shop.destination, "billing") as stream:
        again = next(stream)
        assert ids(again) == [4, 5]
        with pytest.raises(ConfigError, match="ended"):
            second.acknowledge()
        again.acknowledge()
        shop.insert(6, 6)
        assert ids(next(stream)) == [6]
    report = shop.server.destinations()[shop.destination]["clients"]["flight:billing"]
    assert report["behind_transactions"] == 1


def test_a_rollback_gives_everything_from_that_batch_on_again(shop: Shop) -> None:
    for number in range(1, 7):
        shop.insert(number, number)
    with shop.server.subscribe(shop.destination, "back", size=1) as stream:
        batches = [next(stream) for _ in range(4)]
        batches[0].acknowledge()
        batches[2].roll_back()
        assert [ids(next(stream)) for _ in range(4)] == [[3], [4], [5], [6]]
        batches[1].acknowledge()


def test_a_reader_keeps_its_own_place_and_its_filter(shop: Shop) -> None:
    shop.database.execute("CREATE TABLE others LIKE orders", "INSERT INTO others VALUES (9, 'y')")
    shop.insert(1, 2)
    with shop.server.read(shop.destination, start="earliest", filter=r".*\.orders") as stream:
        batch = next(stream)
        assert ids(batch) == [1, 2]
        with pytest.raises(ConfigError, match="position"):
            batch.acknowledge()
    shop.insert(3, 3)
    with shop.server.read(shop.destination, start=batch.position, filter=r".*\.orders") as stream:
        assert ids(next(stream)) == [3]
    with shop.server.read(shop.destination) as stream:
        shop.insert(4, 4)
        assert ids(next(stream)) == [4]
    assert "flight:" not in str(shop.server.destinations()[shop.destination])


def test_a_stream_ends_when_it_is_closed_by_another_thread(shop: Shop) -> None:
    stream = shop.server.subscribe(shop.destination, "closing")
    timer = threading.Timer(0.2, stream.close)
    timer.start()
    assert list(stream) == []
    timer.join()
    # Its place is free soon.
    with shop.server.subscribe(shop.destination, "closing") as again:
        shop.insert(1, 1)
        assert ids(next(again)) == [1]


def test_programs_with_an_event_loop_read_several_streams_at_once(shop: Shop) -> None:
    async def read(name: str) -> list[int]:
        found: list[int] = []
        async with (
            connect_async(shop.serving.listening["grpc"], token=TOKEN) as server,
            server.subscribe(shop.destination, name, size=2) as stream,
        ):
            async for batch in stream:
                found += ids(batch)
                await server.acknowledge(batch)
                if len(found) >= 5:
                    break
        return found

    async def both() -> list[list[int]]:
        return list(await asyncio.gather(read("one"), read("two")))

    shop.insert(1, 5)
    assert asyncio.run(asyncio.wait_for(both(), 30)) == [[1, 2, 3, 4, 5]] * 2


def test_a_client_reads_only_what_its_token_or_user_may(shop: Shop) -> None:
    address = shop.serving.listening["grpc"]
    for token, user in (("wrong", None), (None, None), (None, "reader")):
        with (
            connect(address, token=token, user=user, password="wrong") as server,
            pytest.raises(ConfigError, match="token"),
        ):
            server.destinations()
    with connect(address, token=OTHER) as server:
        assert list(server.destinations()) == ["shop-0"]
        with pytest.raises(ConfigError, match="no destination"):
            server.read("shop-2")
    with connect(address, user="reader", password="secret") as server:
        assert list(server.destinations()) == ["shop-0", "shop-1"]
    with pytest.raises(ConfigError, match="regular expression"):
        shop.server.read(shop.destination, filter="[")
    for client in ("a/b", ""):
        with pytest.raises(ConfigError, match="id has"):
            shop.server.subscribe(shop.destination, client)
    for wrong in (f"{TOKEN}\n", "schlüssel"):
        with pytest.raises(ConfigError, match="token"):
            connect(address, token=wrong)
    with connect("127.0.0.1:1") as server, pytest.raises(TransientError, match="failed"):
        server.destinations()


def test_a_client_that_is_forgotten_begins_anew(shop: Shop) -> None:
    shop.insert(1, 1)
    with shop.server.subscribe(shop.destination, "leaving") as stream:
        next(stream).acknowledge()
        with pytest.raises(ConfigError, match="connected"):
            shop.server.unsubscribe(shop.destination, "leaving")

    def forgotten() -> bool:
        try:
            shop.server.unsubscribe(shop.destination, "leaving")
        except ConfigError:
            return False
        return True

    eventually(forgotten, "end of the stream")
    with shop.server.subscribe(shop.destination, "leaving") as stream:
        assert ids(next(stream)) == [1]


def test_the_example_of_the_documentation_runs(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    page = Path("docs/client.md").read_text("utf-8")
    [example, *_] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    for said, meant in (
        ("127.0.0.1:8192", shop.serving.listening["grpc"]),
        ('"example"', repr(shop.destination)),
        (r"shop\.orders", rf"{shop.database.name}\.orders"),
        ("batch.acknowledge()", "batch.acknowledge(); break"),
    ):
        assert said in example
        example = example.replace(said, meant)
    shop.insert(1, 2)
    exec(example, {"token": TOKEN})
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["c", "c"]


def test_a_server_that_stops_ends_streams_and_the_next_one_goes_on(served: Serving) -> None:
    address, database = served.listening["grpc"], DATABASES["shop-11"]
    database.execute("INSERT INTO orders VALUES (1, 'a')")
    with connect(address, token=TOKEN) as server, server.subscribe("shop-11", "steady") as stream:
        next(stream).acknowledge()
        assert served.stop() == 0
        with pytest.raises(TransientError):
            next(stream)
    served.start()
    database.execute("INSERT INTO orders VALUES (2, 'a')")
    with (
        connect(served.listening["grpc"], token=TOKEN) as server,
        server.subscribe("shop-11", "steady") as stream,
    ):
        assert ids(next(stream)) == [2]


@pytest.mark.slow
def test_a_server_that_is_suspended_ends_streams_and_one_without_changes_does_not(
    served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "SILENT_S", 14)  # longer than the pauses of a server without changes
    address, database, process = served.listening["grpc"], DATABASES["shop-13"], served.process
    assert process is not None
    database.execute("INSERT INTO orders VALUES (1, 'a')")
    with connect(address, token=TOKEN) as server:
        with server.subscribe("shop-13", "patient") as stream, ThreadPoolExecutor(1) as pool:
            next(stream).acknowledge()
            waiting = pool.submit(next, stream)
            with pytest.raises(FutureTimeout):
                waiting.result(30)
            process.send_signal(signal.SIGSTOP)
            try:
                with pytest.raises(TransientError, match="has said nothing"):
                    waiting.result(60)
            finally:
                process.send_signal(signal.SIGCONT)
        database.execute("INSERT INTO orders VALUES (2, 'a')")
        with server.subscribe("shop-13", "patient") as stream:
            assert ids(next(stream)) == [2]


def test_a_batch_of_a_server_that_was_started_again_is_no_refusal_but_comes_again(served: Serving) -> None:
    address, database = served.listening["grpc"], DATABASES["shop-12"]
    database.execute("INSERT INTO orders VALUES (1, 'a')")
    with connect(address, token=TOKEN) as server:
        with server.subscribe("shop-12", "slow") as stream:
            batch = next(stream)
            assert served.stop() == 0
            served.start()

            def answers() -> bool:
                try:
                    return bool(server.destinations())
                except TransientError:
                    return False

            eventually(answers, "answer of the server")
            with pytest.raises(TransientError, match="given again"):
                batch.acknowledge()
        with server.subscribe("shop-12", "slow") as stream:
            assert ids(next(stream)) == [1]
