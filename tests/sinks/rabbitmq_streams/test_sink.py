"""What the sink `rabbitmq-streams` promises besides what all sinks of messages do
(`conformance/test_messages.py`). The judge is RabbitMQ's own client."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rstream
from tests.sinks.certificates import certificate
from tests.sinks.conformance.brokers import RabbitMq
from tests.sinks.conformance.test_messages import Case, Writer
from tests.sinks.kafka.epoch_writer import schema

from penstock.commands.doctor_sink import sink_findings
from penstock.config import parse
from penstock.errors import ConfigError, TableError, TransientError
from penstock.model.schema import TableId
from penstock.sinks.base import Commit, LogMessage
from penstock.sinks.rabbitmq_streams import lanes
from penstock.testing import servers
from penstock.testing.proxy import Proxy
from penstock.testing.servers import RabbitMq310Server

BASE = {"name": "shop", "source": {"user": "cdc"}, "tables": ["shop.*"], "state": "state"}


@pytest.fixture(scope="module")
def broker() -> Iterator[RabbitMq]:
    made = RabbitMq()
    yield made
    made.close()


@pytest.fixture
def case(broker: RabbitMq) -> Iterator[Case]:
    made = Case(broker)
    yield made
    for sink in made.sinks:
        sink.close()


def test_a_table_that_an_earlier_driver_left_out_is_left_out_again(case: Case) -> None:
    """Else the messages of the others would be in another order than those that are there."""
    name = f"{case.database}.all"
    case.more = case.broker.shared(name)
    numbers = [str(number) for number in range(3000)]

    def both(until: int) -> Iterator[list[LogMessage]]:
        for number in numbers[:until]:
            yield from case.messages(number)
            yield from case.messages("other", table="other")

    def failing(until: int, error: Exception) -> Iterator[list[LogMessage]]:
        yield from both(until)
        raise error

    def ending(until: int) -> Iterator[list[LogMessage]]:
        yield from case.messages(*numbers[:until])
        raise ConfigError("A driver ends here.", hint="")

    left_out = TableError("It cannot be encoded.", hint="", table=str(case.table("other")))
    with pytest.raises(TableError):
        case.write(first := case.sink(), 1, failing(600, left_out))
    with pytest.raises(ConfigError):
        case.write(first, 1, ending(2000))
    sink = case.sink()
    with pytest.raises(TableError, match="cannot be encoded") as told:
        case.write(sink, 1, both(3000))
    assert told.value.details["table"] == str(case.table("other"))
    case.write(sink, 1, case.messages(*numbers), "note")
    case.write(sink, 2, case.messages("last"))
    found = case.values(place=name)
    assert [one for one in found if one != "other"] == [*numbers, "last"]
    assert found.count("other") == 600


def test_an_epoch_may_have_more_streams_than_a_connection_publishers(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "PUBLISHERS_MAX", 3)
    tables = [f"t{number}" for number in range(5)]
    sink = case.sink()
    for epoch in (1, 2):
        messages = [case.messages(f"{epoch}/{n}", table=table)[0] for n in range(20) for table in tables]
        schemas = [schema(case.database, table) for table in tables]
        assert sink.write_epoch(Commit(case.pipeline, epoch), schemas, messages) is None
    expected = [f"{epoch}/{n}" for epoch in (1, 2) for n in range(20)]
    assert {table: case.values(table) for table in tables} == dict.fromkeys(tables, expected)


def test_what_is_still_on_its_way_from_a_killed_driver_comes_once(broker: RabbitMq, case: Case) -> None:
    with Proxy(broker.server.host, broker.server.port) as proxy:
        url = f"rabbitmq-stream://127.0.0.1:{proxy.port}"
        earlier = Case(broker, case.pipeline, case.database, {"timeout": "1s", "url": url}, case.sinks)
        sink = earlier.sink()
        earlier.write(sink, 1, case.messages("a"))

        def stalled() -> Iterator[list[LogMessage]]:
            proxy.stall()
            yield from case.messages("b", "c")

        with pytest.raises(TransientError):
            earlier.write(sink, 2, stalled())

        def with_release() -> Iterator[list[LogMessage]]:
            yield from case.messages("b")
            proxy.pass_on()
            deadline = time.monotonic() + 20
            while case.values() != ["a", "b", "c"]:
                assert time.monotonic() < deadline
            yield from case.messages("c", "d")

        case.write(case.sink(), 2, with_release())
    assert case.values() == ["a", "b", "c", "d"]


def test_a_connection_that_was_cut_or_stalled_is_made_again(broker: RabbitMq, case: Case) -> None:
    with Proxy(broker.server.host, broker.server.port) as proxy:
        case.more |= {"timeout": "500ms", "url": f"rabbitmq-stream://127.0.0.1:{proxy.port}"}
        sink, sent = case.sink(), []
        for epoch, fault in enumerate([proxy.cut, proxy.stall, proxy.drop, proxy.refuse, proxy.cut], start=1):
            sent += [f"{epoch}/{number}" for number in range(1000)]
            fault()
            heal = threading.Timer(0.8, proxy.pass_on)
            heal.start()
            tries = 0
            while True:
                try:
                    case.write(sink, epoch, case.messages(*sent[-1000:]))
                    break
                except TransientError:
                    tries += 1
                    assert tries < 1000
            heal.join()
    assert case.values() == sent


def test_a_connection_that_was_idle_while_the_server_restarted_is_made_again(case: Case) -> None:
    sink = case.sink()
    case.write(sink, 1, case.messages("a"))
    case.broker.kill9()
    case.broker.start()
    deadline = time.monotonic() + 60
    while True:
        try:
            case.write(sink, 2, case.messages("b"))
            break
        except TransientError:
            assert time.monotonic() < deadline
    assert case.values() == ["a", "b"]


def test_a_message_that_is_too_large_parks_its_table(case: Case) -> None:
    sink = case.sink()
    big: list[list[LogMessage]] = [[(case.table(), b"k", b"x" * 1024**2, 1)]]
    with pytest.raises(TableError, match="takes at most"):
        case.write(sink, 1, [*case.messages("a", table="other"), *big])
    case.write(sink, 1, case.messages("a", "b", table="other"))
    case.write(sink, 2, [[(case.table(), b"k", b"x" * (1024**2 - 200), 1)]])
    assert case.values("other") == ["a", "b"] and len(case.values()) == 1


def test_streams_are_not_made_if_that_is_not_wanted_and_names_have_a_limit(case: Case) -> None:
    case.more["create_streams"] = False
    with pytest.raises(TableError, match="the stream does not exist"):
        case.write(case.sink(), 1, case.messages("a"))
    other = Case(case.broker, more={"stream": "x" * 200 + "{database}.{table}"}, sinks=case.sinks)
    long = TableId(other.database, "t" * 60)
    with pytest.raises(TableError, match="more than 255 bytes"):
        other.write(other.sink(), 1, [[(long, b"k", b"v", 1)]])


def test_a_server_that_lost_what_was_written_is_refused(broker: RabbitMq, case: Case) -> None:
    sink = case.sink()
    case.write(sink, 1, case.messages("a"))

    async def deleted() -> None:
        account: dict[str, Any] = {"username": broker.server.user, "password": broker.server.password}
        async with rstream.Producer(broker.server.host, broker.server.port, **account) as producer:
            await producer.delete_stream(f"penstock-{case.pipeline}")

    asyncio.run(deleted())
    with pytest.raises((ConfigError, TransientError)):
        case.write(sink, 2, case.messages("b"))
    with pytest.raises(ConfigError, match="has lost"):
        case.write(sink, 2, case.messages("b"))
    assert case.values() == ["a"]


def test_doctor_says_what_is_wrong(broker: RabbitMq) -> None:
    def found(**more: Any) -> str:
        config = parse({**BASE, "sink": broker.section(**{"timeout": "5s", **more})})
        *_, one = sink_findings(config)
        return f"{one.level}: {one.message}"

    assert found() == "ok: The server answers in the stream protocol."
    assert "rabbitmq_stream" in found(url="rabbitmq-stream://127.0.0.1:1")
    assert "cannot be resolved" in found(url="rabbitmq-stream://nowhere.invalid")
    assert "refuses this account" in found(password="wrong")
    assert "virtual host" in found(url=f"{broker.server.url}/other")
    assert "error" in found(url=broker.server.amqp_url)
    assert "error" in found(url=broker.server.url.replace("stream:", "stream+tls:"))


@pytest.mark.slow
def test_tls(case: Case, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    port = servers.process.free_port()
    lines = [
        f"stream.listeners.ssl.1 = 127.0.0.1:{port}",
        f"ssl_options.certfile = {cert}",
        f"ssl_options.keyfile = {key}",
        f"ssl_options.cacertfile = {cert}",
    ]
    with servers.rabbitmq("\n".join(lines)) as server:
        case.more = {"url": f"rabbitmq-stream+tls://localhost:{port}", "ca": str(cert)}
        case.write(case.sink(), 1, case.messages("a"))
        assert RabbitMq(server).entries({}, f"{case.database}.orders") == [(b"k", b"a")]
        case.more["ca"] = None
        with pytest.raises(ConfigError, match="certificate is not valid"):
            case.sink()


@pytest.mark.slow
def test_the_oldest_server_that_was_tried_keeps_the_promise_too(tmp_path: Path) -> None:
    """It is not killed: a RabbitMQ 3.10 that is, does not find streams again that are minutes old."""
    broker = RabbitMq(RabbitMq310Server())
    writer = Writer(broker.section(), tmp_path, seed=7)
    process = writer.start()
    try:
        for _ in range(4):
            time.sleep(1)  # when the next one dies is a matter of chance
            process.kill()
            process.wait()
            process = writer.start()
        assert process.wait(120) == 0
        writer.check(broker)
    finally:
        process.kill()
        broker.close()
