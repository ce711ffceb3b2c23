"""A receiver process under test, and topics on a real broker."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]
from tests.sources.debezium.topic_log import changes_of

from penstock.relaylog.reader import RelayLog
from penstock.relaylog.status import read_status
from penstock.sources.debezium import positions

TIMEOUT_S = 60.0
Pair = tuple[bytes | None, bytes | None]


class Topics:
    """Topics of a broker, made and filled by a test."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.producer = Producer({"bootstrap.servers": bootstrap})

    def create(self, name: str, partitions: int = 1, **config: str) -> None:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        for future in self.admin.create_topics([NewTopic(name, partitions, config=settings)]).values():
            future.result()

    def send(self, name: str, pairs: Iterable[Pair], *, partition: int = 0) -> None:
        """Returns when all messages are there."""
        for key, value in pairs:
            self.producer.produce(name, key=key, value=value, partition=partition)
            self.producer.poll(0)
        assert self.producer.flush(TIMEOUT_S) == 0

    def has_messages(self, name: str) -> bool:
        topics = self.admin.list_topics(timeout=TIMEOUT_S).topics
        if name not in topics or topics[name].error is not None:
            return False
        asked = {TopicPartition(name, number): OffsetSpec.latest() for number in topics[name].partitions}
        try:
            return any(one.result().offset > 0 for one in self.admin.list_offsets(asked).values())
        except KafkaException:
            return False  # a new topic has no leader yet


class Receiving:
    """A pipeline file in `folder`, and any number of receiver processes for it, one after the other."""

    def __init__(self, bootstrap: str, folder: Path, topics: str, **source: Any) -> None:
        self.log_path = folder / "relay"
        relay = source.pop("relay_log", {})
        document = {
            "name": "test",
            "source": {"type": "debezium", "bootstrap": bootstrap, "topics": topics, **source},
            "tables": ["*.*"],
            "state": str(folder),
            "relay_log": {"disk_free_min": 0, **relay},
        }
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "pipeline.yaml"
        self.file.write_text(yaml.safe_dump(document))
        self.errors = folder / "stderr"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self.errors, "ab") as errors:
            command = [sys.executable, "-m", "penstock", "receive", str(self.file)]
            self.process = subprocess.Popen(command, stderr=errors, stdout=errors)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(20)

    def wait_for(self, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert self.process is not None
            assert self.process.poll() is None, self.errors.read_text()
            assert time.monotonic() < deadline, (read_status(self.log_path), self.errors.read_text())
            time.sleep(0.02)  # polls a condition, with a limit

    def wait_until_level(self) -> None:
        """Until the log has everything that is in the topics now."""
        now = positions.position(positions.now_us())
        self.wait_for(lambda: self.log is not None and self.log.reached(now))

    def fails(self) -> str:
        """What the receiver says when it ends by itself."""
        assert self.process is not None
        self.process.wait(TIMEOUT_S)
        assert self.process.returncode == 1, self.errors.read_text()
        error = read_status(self.log_path)["error"]
        return f"{error['error']}: {error['message']} {error['hint']}"

    @property
    def log(self) -> RelayLog | None:
        return RelayLog.open(self.log_path) if RelayLog.exists(self.log_path) else None

    def changes(self, table: str) -> list[dict[str, Any]]:
        return changes_of(self.log_path, table)
