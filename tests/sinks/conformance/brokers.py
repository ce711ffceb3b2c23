"""Brokers for sinks that take messages, each with a reader that is not Penstock's."""

from __future__ import annotations

import asyncio
import base64
import time
import uuid
from collections.abc import Mapping
from typing import Any, Protocol

import nats
import redis
import rstream
from rstream import AMQPMessage, MessageContext, amqp_decoder

from penstock.testing import servers, topics
from penstock.testing.servers import KafkaCluster, NatsServer, RabbitMqServer, ValkeyServer

Entry = tuple[bytes | None, bytes | None]
"""Key and value of a message."""


class Broker(Protocol):
    """One server. `section`: the section `sink` for it, with messages of the format `json`. `faults_max`: how
    often it or a writer may be killed in a test, depending on how long it takes to start."""

    faults_max: int

    def section(self, **more: Any) -> dict[str, Any]: ...

    def entries(self, section: Mapping[str, Any], place: str) -> list[Entry]:
        """All messages of a place, in order. `section`: that of the sink that has written them."""

    def shared(self, name: str) -> dict[str, str]:
        """Options with which all tables have one place of this name."""

    def kill9(self) -> None: ...

    def start(self) -> None: ...

    def close(self) -> None: ...


class Valkey:
    faults_max = 30

    def __init__(self) -> None:
        self.server: ValkeyServer = servers.valkey()
        self.kill9, self.start, self.close = self.server.kill9, self.server.start, self.server.close

    def section(self, **more: Any) -> dict[str, Any]:
        own = {"type": "redis-streams", "url": self.server.url, "password": self.server.password}
        return {**own, "format": "json", **more}

    def shared(self, name: str) -> dict[str, str]:
        return {"stream": name}

    def entries(self, section: Mapping[str, Any], place: str) -> list[Entry]:
        with redis.Redis(host=self.server.host, port=self.server.port, password=self.server.password) as one:
            found: Any = one.xrange(place)
            return [(fields.get(b"key"), fields.get(b"value")) for _, fields in found]


class Nats:
    faults_max = 30

    def __init__(self, server: NatsServer | None = None) -> None:
        self.server = server or servers.nats()
        self.kill9, self.start, self.close = self.server.kill9, self.server.start, self.server.close

    def section(self, **more: Any) -> dict[str, Any]:
        own = {"type": "nats", "url": self.server.url, "user": self.server.user}
        place = {"subject": "penstock.{database}.{table}"}
        return {**own, "password": self.server.password, "format": "json", **place, **more}

    def shared(self, name: str) -> dict[str, str]:
        return {"subject": f"penstock.{name}"}

    def entries(self, section: Mapping[str, Any], place: str) -> list[Entry]:
        subject = place if place.startswith("penstock.") else f"penstock.{place}"
        return asyncio.run(self._entries(str(section.get("stream", "penstock")), subject))

    async def _entries(self, stream: str, subject: str) -> list[Entry]:
        user, password = self.server.user, self.server.password
        client = await nats.connect(self.server.url, user=user, password=password)
        async with client:
            consumer = await client.jetstream().subscribe(subject, stream=stream, ordered_consumer=True)
            found: list[Entry] = []
            state = await client.jetstream().stream_info(stream, subjects_filter=subject)
            left = sum((state.state.subjects or {}).values())
            while len(found) < left:
                message = await consumer.next_msg(timeout=20)
                found.append((_key(message.headers or {}), message.data or None))
            return found


def _key(headers: Mapping[str, str]) -> bytes | None:
    if (text := headers.get("Key-Base64")) is not None:
        return base64.b64decode(text)
    return headers["Key"].encode() if "Key" in headers else None


class RabbitMq:
    faults_max = 10

    def __init__(self, server: RabbitMqServer | None = None) -> None:
        self.server = server or servers.rabbitmq()
        self.kill9, self.start, self.close = self.server.kill9, self.server.start, self.server.close

    def section(self, **more: Any) -> dict[str, Any]:
        own = {"type": "rabbitmq-streams", "url": self.server.url, "user": self.server.user}
        place = {"stream": "{database}.{table}"}
        return {**own, "password": self.server.password, "format": "json", **place, **more}

    def shared(self, name: str) -> dict[str, str]:
        return {"stream": name}

    def entries(self, section: Mapping[str, Any], place: str) -> list[Entry]:
        deadline = time.monotonic() + 60
        while True:
            try:
                return asyncio.run(self._entries(place))
            except Exception:  # a server that has just been started says no in many ways
                if time.monotonic() > deadline:
                    raise

    async def _entries(self, place: str) -> list[Entry]:
        """Up to a message of its own that it adds: nothing else says where a stream ends now."""
        account: dict[str, Any] = {"username": self.server.user, "password": self.server.password}
        found: list[Entry] = []
        token, ended = uuid.uuid4().hex.encode(), asyncio.Event()

        async def read(message: AMQPMessage, context: MessageContext) -> None:
            properties: dict[Any, Any] = message.application_properties or {}
            if (end := properties.get(b"end")) is None:
                body: Any = message.body
                data = b"".join(body) if isinstance(body, list) else body
                found.append((properties.get(b"key"), data or None))
            elif end == token:
                ended.set()

        async with rstream.Producer(self.server.host, self.server.port, **account) as producer:
            end = AMQPMessage(body=b"end", application_properties={"end": token.decode()})
            await producer.send_wait(place, end)
        async with rstream.Consumer(self.server.host, self.server.port, **account) as consumer:
            await consumer.subscribe(place, read, decoder=amqp_decoder)
            await asyncio.wait_for(ended.wait(), 60)
        return found


class Kafka:
    faults_max = 10

    def __init__(self) -> None:
        self.cluster: KafkaCluster = servers.kafka()
        self.start, self.close = self.cluster.start, self.cluster.close

    def section(self, **more: Any) -> dict[str, Any]:
        return {"type": "kafka", "bootstrap": self.cluster.bootstrap, "format": "json", **more}

    def shared(self, name: str) -> dict[str, str]:
        return {"topic": name}

    def entries(self, section: Mapping[str, Any], place: str) -> list[Entry]:
        return [(one.key, one.value) for one in topics.records(self.cluster.bootstrap, [place])]

    def kill9(self) -> None:
        for one in self.cluster.brokers:
            one.kill9()


BROKERS: dict[str, type[Any]] = {
    "redis-streams": Valkey,
    "nats": Nats,
    "rabbitmq-streams": RabbitMq,
    "kafka": Kafka,
}
"""By the name of the sink."""
