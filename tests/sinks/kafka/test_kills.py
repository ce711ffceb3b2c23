"""Whatever is killed, a `read_committed` consumer sees each message of each epoch once, and those of a key
in their order.

`PENSTOCK_KAFKA_SEEDS=0-49` chooses the runs of the slow test.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sinks.kafka import epoch_writer

from penstock.testing import servers, topics
from penstock.testing.proxy import Proxy
from penstock.testing.servers import KafkaCluster
from penstock.testing.servers.process import free_port

SEEDS = os.environ.get("PENSTOCK_KAFKA_SEEDS", "0-2").split("-")


class Writer:
    """The process that writes epochs, and what it must have written."""

    def __init__(self, bootstrap: str, folder: Path, seed: int, epochs: int, partitions: int) -> None:
        self.bootstrap, self.seed, self.epochs = bootstrap, seed, epochs
        self.pipeline = str(uuid.uuid4())
        self.state = folder / "state"
        self.options = json.dumps({
            "type": "kafka", "bootstrap": bootstrap, "format": "json", "partitions": partitions,
            "request_timeout": "20s",
        })  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = [sys.executable, epoch_writer.__file__, self.options, self.pipeline, str(self.state)]
        self.process = subprocess.Popen([*program, str(self.epochs), str(self.seed)])

    @property
    def done(self) -> int:
        return int(self.state.read_text()) if self.state.exists() else 0

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def check(self) -> None:
        database = f"d{self.pipeline[:8]}"
        expected: dict[tuple[str, bytes], list[bytes]] = defaultdict(list)
        for epoch in range(1, self.epochs + 1):
            for batch in epoch_writer.messages(database, self.seed, epoch):
                for table, key, value, _ in batch:
                    assert key is not None and value is not None
                    expected[str(table), key].append(value)
        found: dict[tuple[str, bytes], list[bytes]] = defaultdict(list)
        names = [f"{database}.{table}" for table in epoch_writer.TABLES]
        for record in topics.records(self.bootstrap, names):
            assert record.key is not None and record.value is not None
            found[record.topic, record.key].append(record.value)
        assert found == expected


def run(writer: Writer, cluster: KafkaCluster, random_: random.Random, *, brokers: bool) -> int:
    """Lets the writer write all epochs, and kills it, and brokers, meanwhile. Returns the number of kills."""
    kills, kills_max = 0, random_.randrange(2, 6)
    writer.start()
    deadline = time.monotonic() + 400
    while writer.done < writer.epochs and kills < kills_max:
        assert time.monotonic() < deadline, f"only {writer.done} epochs are written"
        assert writer.process is not None
        until = writer.done + random_.randrange(writer.epochs // 4)
        while writer.done <= until and writer.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)  # polls a condition, with a limit
        time.sleep(random_.uniform(0, 0.01))  # the random moment itself
        if writer.process.poll() is not None:
            assert writer.process.returncode == 0
            break
        if brokers and random_.random() < 0.3:
            broker = random_.choice(cluster.brokers)
            broker.kill9()
            broker.start()
        else:
            writer.kill()
            writer.start()
        kills += 1
    assert writer.process is not None and writer.process.wait(120) == 0
    return kills


@pytest.fixture(scope="module")
def three() -> Iterator[KafkaCluster]:
    with servers.kafka(brokers=3) as cluster:
        yield cluster


def test_a_writer_that_is_killed_again_and_again_writes_each_message_once(
    kafka: KafkaCluster, tmp_path: Path
) -> None:
    writer = Writer(kafka.bootstrap, tmp_path, 7, 40, 3)
    assert run(writer, kafka, random.Random(7), brokers=False) > 0
    writer.check()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(int(SEEDS[0]), int(SEEDS[-1]) + 1))
def test_kills_of_the_writer_and_of_brokers_lose_and_repeat_nothing(
    three: KafkaCluster, tmp_path: Path, seed: int
) -> None:
    random_ = random.Random(seed)
    writer = Writer(three.bootstrap, tmp_path, seed, random_.randrange(20, 60), random_.randrange(1, 5))
    run(writer, three, random_, brokers=True)
    writer.check()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_network_that_is_cut_and_stalls_loses_and_repeats_nothing(tmp_path: Path, seed: int) -> None:
    random_, port = random.Random(seed), free_port()
    with (
        servers.KafkaCluster(1, clients_port=port) as cluster,
        Proxy("127.0.0.1", cluster.brokers[0].port, port=port) as proxy,
    ):
        writer = Writer(f"127.0.0.1:{port}", tmp_path, seed, 60, 2)
        writer.start()
        assert writer.process is not None
        for _ in range(8):
            time.sleep(random_.uniform(0.2, 3))  # when a fault comes is part of the run
            random_.choice((proxy.cut, proxy.stall, proxy.refuse, proxy.drop))()
            time.sleep(random_.uniform(0.1, 4))
            proxy.pass_on()
        assert writer.process.wait(400) == 0
        writer.check()
