"""Brokers for sinks that take messages, each with a reader that is not Penstock's."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from typing import Any, Protocol

import nats
import redis

from penstock.testing import servers, topics
from penstock.testing.servers import KafkaCluster, NatsServer, ValkeyServer

Entry = tuple[bytes | None, bytes | None]
"""Key and value of a message."""


class Broker(Protocol):
    """One server. `section`: the section `sink` for it, with messages of the format `json`."""

    def section(self, **more: Any) -> dict[str, Any]: ...

    def entries(self, section: Mapping[str, Any], place: str) -> list[Entry]:
        """All messages of a place, in order. `section`: that of the sink that has written them."""

    def shared(self, name: str) -> dict[str, str]:
        """Options with which all tables have one place of this name."""

    def kill9(self) -> None: ...

    def start(self) -> None: ...

    def close(self) -> None: ...


class Valkey:
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


class Kafka:
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


BROKERS: dict[str, type[Any]] = {"redis-streams": Valkey, "nats": Nats, "kafka": Kafka}
"""By the name of the sink."""
