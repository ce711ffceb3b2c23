"""What the sink `nats` promises besides what all sinks of messages do
(`conformance/test_messages.py`). The judge is the client of NATS."""

from __future__ import annotations

import asyncio
import base64
import binascii
import itertools
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import nats
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nats.aio.client import Client
from nats.js.api import RetentionPolicy, StreamConfig
from nats.js.errors import NotFoundError
from tests.sinks.certificates import certificate
from tests.sinks.conformance.brokers import Nats
from tests.sinks.conformance.test_messages import Case, Writer

from penstock.commands.doctor_sink import sink_findings
from penstock.config import parse
from penstock.errors import ConfigError, TableError, TransientError
from penstock.sinks.base import LogMessage, Ours
from penstock.sinks.nats import window
from penstock.testing import servers
from penstock.testing.proxy import Proxy
from penstock.testing.servers import Nats29Server, NatsServer

T = TypeVar("T")
BASE = {"name": "shop", "source": {"user": "cdc"}, "tables": ["shop.*"], "state": "state"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Nats]:
    made = Nats()
    yield made
    made.close()


@pytest.fixture
def case(broker: Nats) -> Iterator[Case]:
    """Its stream is its own, and the sink makes it."""
    made = Case(broker)
    made.more = {"source": made.database, "stream": made.database, "subject": "{source}.{table}"}
    yield made
    for sink in made.sinks:
        sink.close()


def by_client(server: NatsServer, do: Callable[[Client], Awaitable[T]]) -> T:
    async def run() -> T:
        client = await nats.connect(server.url, user=server.user, password=server.password)
        async with client:
            return await do(client)

    return asyncio.run(run())


def make_stream(broker: Nats, case: Case, **config: Any) -> None:
    async def made(client: Client) -> None:
        subjects = [case.database, f"{case.database}.>"]
        await client.jetstream().add_stream(StreamConfig(name=case.database, subjects=subjects, **config))

    by_client(broker.server, made)


def values(case: Case, broker: Nats, table: str = "orders") -> list[str]:
    section = broker.section(**case.more)
    found = asyncio.run(broker._entries(section["stream"], f"{case.database}.{table}"))
    return [(value or b"(none)").decode() for _, value in found]


def test_the_stream_has_the_limits_of_the_options(broker: Nats, case: Case) -> None:
    case.more |= {"messages_max": 100, "age_max": "1h", "bytes_max": "10MB", "discard": "new"}
    case.write(case.sink(), 1, case.messages("a"))

    async def looked(client: Client) -> StreamConfig:
        return (await client.jetstream().stream_info(case.database)).config

    found = by_client(broker.server, looked)
    assert (found.max_msgs, found.max_age, found.max_bytes) == (100, 3600, 10_000_000)
    assert found.discard == "new" and found.storage == "file" and found.num_replicas == 1


def test_the_message_with_which_a_driver_begins_does_not_stay(broker: Nats, case: Case) -> None:
    for _ in range(3):
        case.write(case.sink(), 1, case.messages("a"))

    async def counted(client: Client) -> tuple[int, int]:
        state = (await client.jetstream().stream_info(case.database)).state
        return state.messages, state.last_seq

    assert by_client(broker.server, counted) == (1, 4)
    broker.kill9()
    broker.start()
    case.write(case.sink(), 2, case.messages("b"))
    assert values(case, broker) == ["a", "b"]


@pytest.mark.parametrize("batch", [3, 500])
def test_others_may_publish_into_the_stream_all_the_time(
    broker: Nats, case: Case, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "MESSAGES_MAX", batch)
    sink, ended, others = case.sink(), threading.Event(), 0

    async def published(client: Client) -> None:
        nonlocal others
        while not ended.is_set():
            await client.jetstream().publish(f"{case.database}.stranger", b"x")
            others += 1
            await asyncio.sleep(0.001)  # as fast as another program that works

    stranger = threading.Thread(target=by_client, args=(broker.server, published))
    stranger.start()
    try:
        sent: list[str] = []
        for epoch in itertools.takewhile(lambda epoch: epoch <= 30 or others <= 30, range(1, 1001)):
            sent += [f"{epoch}/{number}" for number in range(40)]
            case.write(sink, epoch, case.messages(*sent[-40:]))
    finally:
        ended.set()
        stranger.join()
    assert values(case, broker) == sent
    assert others > 30 and len(values(case, broker, "stranger")) == others


def test_what_is_still_on_its_way_from_a_replaced_driver_is_not_taken(broker: Nats, case: Case) -> None:
    with Proxy(broker.server.host, broker.server.port) as proxy:
        earlier = Case(broker, case.pipeline, case.database, {**case.more, "timeout": "1s"}, case.sinks)
        earlier.more["url"] = f"nats://127.0.0.1:{proxy.port}"
        sink = earlier.sink()
        earlier.write(sink, 1, case.messages("a"))
        proxy.stall()
        with pytest.raises(TransientError):
            earlier.write(sink, 2, case.messages("b", "c"))
        later = case.sink()
        proxy.pass_on()
        case.write(later, 2, case.messages("other"))
    assert values(case, broker) == ["a", "other"]


def test_a_connection_that_was_cut_or_stalled_is_made_again(broker: Nats, case: Case) -> None:
    with Proxy(broker.server.host, broker.server.port) as proxy:
        case.more |= {"timeout": "500ms", "url": f"nats://127.0.0.1:{proxy.port}"}
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
        case.more["url"] = broker.server.url
        assert values(case, broker) == sent


def test_an_idle_connection_that_the_server_has_closed_is_made_again(case: Case, broker: Nats) -> None:
    sink = case.sink()
    case.write(sink, 1, case.messages("a"))
    broker.server.stop()
    broker.start()
    case.write(sink, 2, case.messages("b"))
    assert values(case, broker) == ["a", "b"]


def test_a_full_stream_is_waited_for(broker: Nats, case: Case) -> None:
    case.more |= {"messages_max": 4, "discard": "new"}
    sink = case.sink()
    with pytest.raises(TransientError, match="is full"):
        case.write(sink, 1, case.messages(*"abcdef"))
    with pytest.raises(TransientError, match="is full"):
        case.write(sink, 1, case.messages(*"abcdef"))
    assert values(case, broker) == list("abcd")

    async def emptied(client: Client) -> None:
        await client.jetstream().purge_stream(case.database)

    by_client(broker.server, emptied)
    assert case.write(sink, 1, case.messages(*"abcdef")) is None
    assert values(case, broker) == ["e", "f"]


def test_a_stream_whose_messages_are_gone_is_continued(broker: Nats, case: Case) -> None:
    case.write(case.sink(), 1, case.messages("a", "b"), "note")

    async def emptied(client: Client) -> None:
        await client.jetstream().purge_stream(case.database)

    by_client(broker.server, emptied)
    sink = case.sink()
    assert case.write(sink, 1, case.messages("a", "b")) == "note"
    case.write(sink, 2, case.messages("c"))
    assert values(case, broker) == ["c"]


def test_a_stream_that_was_deleted_ends_the_pipeline(broker: Nats, case: Case) -> None:
    sink = case.sink()
    case.write(sink, 1, case.messages(*map(str, range(10))))

    async def deleted(client: Client) -> None:
        await client.jetstream().delete_stream(case.database)

    by_client(broker.server, deleted)
    with pytest.raises((ConfigError, TransientError)):
        case.write(sink, 2, case.messages("a"))
    with pytest.raises(ConfigError, match="has lost"):
        case.sink()


def test_a_bucket_that_was_deleted_ends_the_pipeline(broker: Nats, case: Case) -> None:
    case.more["control"] = f"c{case.database}"
    sink = case.sink()
    case.write(sink, 1, case.messages("a"))

    async def deleted(client: Client) -> None:
        await client.jetstream().delete_key_value(case.more["control"])

    by_client(broker.server, deleted)
    for number in range(2):
        with pytest.raises(TransientError if number == 0 else ConfigError, match=r"not written|has lost"):
            case.write(sink, 2, case.messages("b"))


def test_a_message_that_the_server_does_not_take_parks_its_table(broker: Nats, case: Case) -> None:
    sink = case.sink()
    big: list[list[LogMessage]] = [[(case.table(), b"k", b"x" * 1024**2, 1)]]
    with pytest.raises(TableError, match="at most 1048576"):
        case.write(sink, 1, [*case.messages("a", table="other"), *big])
    case.write(sink, 1, case.messages("a", "b", table="other"))
    case.write(sink, 2, [[(case.table(), b"k", b"x" * (1024**2 - 300), 1)]])
    assert values(case, broker, "other") == ["a", "b"] and len(values(case, broker)) == 1


def test_a_subject_that_the_stream_does_not_take_parks_its_table(case: Case) -> None:
    case.more["subject"] = "elsewhere.{table}"
    with pytest.raises(TableError, match=r"does not take the subject elsewhere\.orders"):
        case.write(case.sink(), 1, case.messages("a"))


def test_a_stream_that_would_forget_what_was_written_is_refused(broker: Nats, case: Case) -> None:
    make_stream(broker, case, retention=RetentionPolicy.WORK_QUEUE)
    with pytest.raises(ConfigError, match="when they are consumed"):
        case.sink()


def test_a_stream_with_other_settings_is_refused_and_one_without_named_ones_is_used(
    broker: Nats, case: Case
) -> None:
    make_stream(broker, case, max_msgs=7)
    case.more["messages_max"] = 8
    with pytest.raises(ConfigError, match="max_msgs is 7, not 8"):
        case.sink()
    del case.more["messages_max"]
    case.write(case.sink(), 1, case.messages("a"))
    assert values(case, broker) == ["a"]


def test_a_stream_is_not_made_if_that_is_not_wanted(broker: Nats, case: Case) -> None:
    case.more["create_stream"] = False
    with pytest.raises(ConfigError, match="There is no stream"):
        case.sink()

    async def looked(client: Client) -> None:
        await client.jetstream().stream_info(case.database)

    with pytest.raises(NotFoundError):
        by_client(broker.server, looked)


def test_doctor_says_what_is_wrong(broker: Nats, case: Case) -> None:
    def found(**more: Any) -> str:
        config = parse({**BASE, "sink": broker.section(**{**case.more, **more})})
        *_, one = sink_findings(config)
        return f"{one.level}: {one.message}"

    assert found() == f"ok: JetStream answers; the stream {case.database} can be used."
    assert "refuses connections" in found(url="nats://127.0.0.1:1")
    assert "cannot be resolved" in found(url="nats://nowhere.invalid:4222")
    assert "Authorization Violation" in found(password="wrong")
    assert "has no TLS" in found(url=broker.server.url.replace("nats:", "tls:"))
    with servers.valkey() as other:
        assert "answer in time" in found(url=f"nats://127.0.0.1:{other.port}", timeout="500ms")
    with servers.nats("jetstream: false") as without:
        assert "switched off" in found(url=without.url)


def seed() -> tuple[str, str]:
    """The seed of a user's NKey, and the public key, as the tool `nk` writes them."""
    raw = os.urandom(32)
    public = Ed25519PrivateKey.from_private_bytes(raw).public_key().public_bytes_raw()

    def text(data: bytes) -> str:
        data += binascii.crc_hqx(data, 0).to_bytes(2, "little")
        return base64.b32encode(data).rstrip(b"=").decode()

    user = 20 << 3
    return text(bytes([(18 << 3) | user >> 5, (user & 31) << 3]) + raw), text(bytes([user]) + public)


def test_tls_and_a_key_instead_of_a_password(case: Case, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    private, public = seed()
    (tmp_path / "user.nk").write_text(private + "\n")
    tls = f'tls: {{cert_file: "{cert}", key_file: "{key}"}}'
    with servers.nats(f"{tls}\nauthorization: {{users: [{{nkey: {public}}}]}}") as server:
        url = f"tls://localhost:{server.port}"
        case.more |= {"url": url, "user": "", "password": "", "ca": str(cert)}
        with pytest.raises(ConfigError, match="Authorization Violation"):
            case.sink()
        case.more["credentials"] = str(tmp_path / "user.nk")
        case.write(case.sink(), 1, case.messages("a"))
        assert isinstance(case.sink().open(case.table()), Ours)
        case.more["ca"] = None
        with pytest.raises(ConfigError, match="certificate is not valid"):
            case.sink()
        # Not the last character, which has bits that mean nothing.
        other = "A" if private[30] != "A" else "B"
        (tmp_path / "user.nk").write_text(private[:30] + other + private[31:])
        case.more["ca"] = str(cert)
        with pytest.raises(ConfigError, match="has no seed"):
            case.sink()


def test_an_account_that_may_not_publish_is_told_so(case: Case) -> None:
    allowed = '"$JS.API.>", "$KV.>"'
    user = f'{{user: u, password: p, permissions: {{publish: [{allowed}], subscribe: ["_INBOX.>"]}}}}'
    with servers.nats(f"authorization: {{users: [{user}]}}") as server:
        case.more |= {"url": server.url, "user": "u", "password": "p"}
        with pytest.raises(ConfigError, match="Permissions Violation for Publish"):
            case.sink()


@pytest.mark.slow
def test_the_oldest_server_that_was_tried_keeps_the_promise_too(tmp_path: Path) -> None:
    broker = Nats(Nats29Server())
    try:
        writer = Writer(broker.section(), tmp_path, seed=7)
        process = writer.start()
        for _ in range(8):
            time.sleep(0.3)  # when the next one dies is a matter of chance
            process.kill()
            process.wait()
            broker.kill9()
            broker.start()
            process = writer.start()
        assert process.wait(120) == 0
        writer.check(broker)
    finally:
        broker.close()
