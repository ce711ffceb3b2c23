"""What every sink that takes messages (`LogSink`) promises, on real servers: each message comes once,
whatever is killed or interrupted.

`PENSTOCK_MESSAGE_SEEDS=0-49` chooses the runs with kills.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.sinks.conformance.brokers import BROKERS, Broker
from tests.sinks.kafka import epoch_writer
from tests.sinks.kafka.epoch_writer import schema

from penstock.errors import ConfigError, DriverReplaced, TableError, TransientError
from penstock.model.schema import TableId
from penstock.model.transforms import TransformRule, Transforms
from penstock.secret import Secret
from penstock.sinks import registry
from penstock.sinks.base import Commit, LogMessage, LogSink, Missing, Ours
from penstock.spark.transformed_log import TransformedLog

SEEDS = os.environ.get("PENSTOCK_MESSAGE_SEEDS", "0-1").split("-")
TRIES_MAX = 5
_serial = itertools.count()


@pytest.fixture(
    scope="module", params=[pytest.param(one, marks=pytest.mark.slow_for("kafka")) for one in BROKERS]
)
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    made = BROKERS[request.param]()
    yield made
    made.close()


@dataclass
class Case:
    """A pipeline with tables whose places are its own."""

    broker: Broker
    pipeline: str = field(default_factory=lambda: str(uuid.uuid4()))
    database: str = field(default_factory=lambda: f"d{os.getpid()}_{next(_serial)}")
    more: dict[str, Any] = field(default_factory=dict)
    sinks: list[Any] = field(default_factory=list)
    behind_transforms: bool = False

    def sink(self, generation: int = 0) -> Any:
        section = self.broker.section(**self.more)
        kind = registry.kind(section["type"])
        no_spark: Any = None
        sink: Any = kind.open(
            kind.options.model_validate(section), no_spark, self.pipeline, registry.NO_SHARDS
        )
        if self.behind_transforms:
            rules = Transforms([TransformRule(tables="*.*", exclude=("note",))])
            sink = TransformedLog(sink, rules, no_spark, Secret(), letters=Path("/nowhere"))
        self.sinks.append(sink)
        sink.check()
        sink.begin(generation)
        return sink

    def table(self, name: str = "orders") -> TableId:
        return TableId(self.database, name)

    def messages(self, *values: str, table: str = "orders") -> list[list[LogMessage]]:
        return [[(self.table(table), b"k", value.encode(), 1)] for value in values]

    def write(self, sink: Any, epoch: int, messages: Any, note: str = "") -> str | None:
        schemas = [schema(self.database, name) for name in ("orders", "other")]
        written: str | None = sink.write_epoch(Commit(self.pipeline, epoch), schemas, messages, note)
        return written

    def write_again(self, sink: Any, epoch: int, messages: Any) -> str | None:
        """As a pipeline does after errors that pass."""
        for _ in range(TRIES_MAX):
            try:
                return self.write(sink, epoch, messages)
            except TransientError as error:
                failed = error
        raise failed

    def values(self, table: str = "orders", place: str | None = None) -> list[str]:
        name = place or f"{self.database}.{table}"
        found = self.broker.entries(self.broker.section(**self.more), name)
        return ["(none)" if value is None else value.decode() for _, value in found]


@pytest.fixture(params=["plain", pytest.param("transforms", marks=pytest.mark.slow)])
def case(broker: Broker, request: pytest.FixtureRequest) -> Iterator[Case]:
    made = Case(broker, behind_transforms=request.param == "transforms")
    yield made
    for sink in made.sinks:
        sink.close()


def test_an_epoch_is_written_once_and_its_commit_is_known_to_the_next_driver(case: Case) -> None:
    sink = case.sink()
    assert isinstance(sink, LogSink)
    assert sink.open(case.table()) == Missing()
    assert case.write(sink, 1, case.messages("a", "b"), "left out") is None
    assert case.write(sink, 1, case.messages("a", "b")) == "left out"
    again = case.sink()
    assert again.open(case.table()) == Ours(Commit(case.pipeline, 1), (), empty=False)
    assert case.write(again, 1, case.messages("a", "b")) == "left out"
    assert case.write(again, 2, [[(case.table(), b"k", None, 2)]]) is None
    assert case.values() == ["a", "b", "(none)"]


def test_keys_and_values_arrive_as_they_are(case: Case) -> None:
    keys = [b'{"id":1}', None, '{"id":"ä€𝄞"}'.encode(), b'{"id":"a:b\\n"}']
    values = [b"x" * 100_000, "ä€𝄞".encode(), b'{"a": [1]}\n', b"%0d%0a\r\n"]
    sent = list(zip(keys, values, strict=True))
    case.write(case.sink(), 1, [[(case.table(), key, value, 1) for key, value in sent]])
    found = case.broker.entries(case.broker.section(), f"{case.database}.orders")
    assert [value for _, value in found] == values
    assert [key and json.loads(key) for key, _ in found] == [key and json.loads(key) for key in keys]


def test_an_epoch_without_messages_has_a_commit(case: Case) -> None:
    assert case.write(case.sink(), 1, [], "note") is None
    assert case.write(case.sink(), 1, []) == "note"


def test_an_epoch_of_thousands_of_messages_keeps_their_order(case: Case) -> None:
    values = [f"{number} {'x' * (number % 300)}" for number in range(7000)]
    case.write(case.sink(), 1, case.messages(*values))
    assert case.values() == values


def test_an_epoch_that_is_interrupted_again_and_again_is_written_once(case: Case) -> None:
    values = [str(number) for number in range(3000)]

    def failing(after: int) -> Iterator[list[LogMessage]]:
        yield from case.messages(*values[:after])
        raise ConfigError("A driver ends here.", hint="")

    for after in (1, 600, 700, 2500):
        with pytest.raises(ConfigError):
            case.write(case.sink(), 1, failing(after))
    case.write(case.sink(), 1, case.messages(*values))
    sink = case.sink()
    case.write(sink, 2, case.messages("last"))
    assert case.values() == [*values, "last"]


def test_a_table_that_is_left_out_in_the_middle_takes_nothing_from_the_others(case: Case) -> None:
    """Tables that share a place are counted apart."""
    name = f"{case.database}.all"
    case.more = case.broker.shared(name)
    numbers = [str(number) for number in range(2000)]

    def mixed(until: int) -> Iterator[list[LogMessage]]:
        for number in numbers[:until]:
            yield from case.messages(number)
            yield from case.messages(f"other {number}", table="other")

    def failing(until: int, error: Exception) -> Iterator[list[LogMessage]]:
        yield from mixed(until)
        raise error

    left_out = TableError("It cannot be encoded.", hint="", table=str(case.table("other")))
    with pytest.raises(TableError):
        case.write(sink := case.sink(), 1, failing(900, left_out))
    with pytest.raises(ConfigError):
        case.write(sink, 1, failing(0, ConfigError("A driver ends here.", hint="")))
    sink = case.sink()
    with pytest.raises(TableError):  # a sink may know that the table was left out, and say so first
        case.write(sink, 1, failing(0, left_out))
    case.write(sink, 1, case.messages(*numbers))
    found = case.values(place=name)
    assert [one for one in found if one.isdigit()] == numbers
    others = [one for one in found if not one.isdigit()]
    assert others == [f"other {number}" for number in numbers[: len(others)]]


def test_two_pipelines_write_to_one_place(case: Case) -> None:
    other = Case(case.broker, database=case.database, sinks=case.sinks)
    one, two = case.sink(), other.sink()
    expected = []
    for epoch in range(1, 6):
        case.write(one, epoch, case.messages(f"one {epoch}"))
        other.write(two, epoch, case.messages(f"two {epoch}"))
        expected += [f"one {epoch}", f"two {epoch}"]
    assert case.values() == expected


def test_a_driver_that_was_replaced_writes_nothing(case: Case) -> None:
    earlier = case.sink(generation=1)
    case.write(earlier, 1, case.messages("a"))
    later = case.sink(generation=2)
    with pytest.raises(DriverReplaced):
        case.write_again(earlier, 2, case.messages("b"))
    with pytest.raises(DriverReplaced):
        case.sink(generation=1)
    case.write_again(later, 2, case.messages("c"))
    assert case.values() == ["a", "c"]


def test_a_driver_with_a_copy_of_the_state_ends_when_another_has_begun(case: Case) -> None:
    one = case.sink()
    case.write(one, 1, case.messages("a"))
    two = case.sink()
    with pytest.raises(DriverReplaced):
        case.write_again(one, 2, case.messages("b"))
    case.write_again(two, 2, case.messages("c"))
    assert case.values() == ["a", "c"]


@dataclass
class Writer:
    """A process that writes epochs, and what it must have written."""

    section: dict[str, Any]
    folder: Path
    seed: int
    epochs: int = 60
    pipeline: str = field(default_factory=lambda: str(uuid.uuid4()))

    def start(self) -> subprocess.Popen[bytes]:
        options, state = json.dumps(self.section), str(self.folder / "state")
        program = [sys.executable, epoch_writer.__file__, options, self.pipeline, state]
        return subprocess.Popen([*program, str(self.epochs), str(self.seed)])

    def check(self, broker: Broker) -> None:
        database = f"d{self.pipeline[:8]}"
        expected: dict[str, list[tuple[bytes | None, bytes | None]]] = defaultdict(list)
        for epoch in range(1, self.epochs + 1):
            for batch in epoch_writer.messages(database, self.seed, epoch):
                for subject, key, value, _ in batch:
                    expected[str(subject)].append((key, value))
        names = [f"{database}.{table}" for table in epoch_writer.TABLES]
        assert {name: broker.entries(self.section, name) for name in names} == dict(expected)


@pytest.mark.slow_for("kafka", "rabbitmq-streams", "nats-1", "redis-streams-1")
@pytest.mark.parametrize("seed", range(int(SEEDS[0]), int(SEEDS[-1]) + 1))
def test_every_message_comes_once_though_writer_and_server_are_killed(
    broker: Broker, seed: int, tmp_path: Path
) -> None:
    print(f"seed {seed}")
    choice, writer = random.Random(seed), Writer(broker.section(), tmp_path, seed)
    process = writer.start()
    deadline, faults = time.monotonic() + 300, 0
    try:
        while process.poll() is None:
            assert time.monotonic() < deadline
            faults += 1
            if faults > broker.faults_max:  # on a slow machine, a Python may need longer than it lives
                time.sleep(0.05)  # polls a condition, with a limit
                continue
            time.sleep(choice.uniform(0.05, 0.4))  # when the next one dies is a matter of chance
            if choice.random() < 0.5:
                process.kill()
                process.wait()
                process = writer.start()
                time.sleep(0.5)  # a Python needs so long to begin
            else:
                broker.kill9()
                broker.start()
    finally:
        process.kill()
    assert process.returncode == 0
    writer.check(broker)
