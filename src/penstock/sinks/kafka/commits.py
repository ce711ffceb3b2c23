"""What a pipeline has written, in a topic of its own: one record for each epoch, in the same transaction as
the epoch's messages. The topic is compacted and has one partition, so that the newest record is found at its
end, and stays for ever.

The record also says which driver wrote it. A driver writes one when it begins. So a driver that was
suspended, and takes its transactional id back from the one that replaced it, reads here that it was replaced,
before it writes anything (`KafkaSink`).
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from penstock.errors import ConfigError, TransientError
from penstock.sinks.base import Commit
from penstock.sinks.kafka.client import NOT_YET, NOT_YET_SECONDS
from penstock.sinks.kafka.faults import kafka_error

PARTITION = 0
LOOK_BACK = 1000
"""Records at the end of the topic that are read first. The newest is among them, unless a thousand
transactions in a row were aborted."""
TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 * 1024**2),
    "min.cleanable.dirty.ratio": "0.1",
}


@dataclass(frozen=True)
class Written:
    """The record of a commit. `run`: a number for each run of a driver. `generation`: see
    `runtime.driver_lease`."""

    epoch: int
    step: int
    generation: int
    run: str
    note: str = ""

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    def commit(self, pipeline: str) -> Commit | None:
        return Commit(pipeline, self.epoch, self.step) if self.epoch else None


NOTHING = Written(0, 0, 0, "")


def last_written(settings: dict[str, str], topic: str, pipeline: str, *, seconds: float) -> Written:
    """The newest committed record. No transaction of the pipeline may be open, and none is after
    `init_transactions`."""
    consumer = Consumer({
        **settings,
        "group.id": f"penstock-{pipeline}",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
    })  # fmt: skip
    deadline = time.monotonic() + seconds
    try:
        low, high = _bounds(consumer, topic, deadline)
        start = max(low, high - LOOK_BACK)
        end: int | None = None
        while True:
            try:
                found = _newest(consumer, topic, start, end, pipeline, deadline)
            except TimeoutError:
                raise TransientError(
                    f"The topic {topic} could not be read to its end in time "
                    f"({settings['bootstrap.servers']}).",
                    hint="Does another pipeline write into it? Give each its own (`sink.commits_topic`). It "
                    "is tried again.",
                ) from None
            if found is not None or start <= low:
                return found or NOTHING
            start, end = max(low, start - 10 * LOOK_BACK), start
    finally:
        consumer.close()


def _bounds(consumer: Consumer, topic: str, deadline: float) -> tuple[int, int]:
    """The first and the next offset. The broker that is asked may not know yet that another one has created
    the topic."""
    while True:
        seconds = max(deadline - time.monotonic(), NOT_YET_SECONDS)
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, PARTITION), timeout=seconds)
        except KafkaException as error:
            if kafka_error(error).code() not in NOT_YET or time.monotonic() > deadline:
                raise
            time.sleep(NOT_YET_SECONDS)  # polls a condition, with a limit
            continue
        return int(low), int(high)


def _newest(
    consumer: Consumer, topic: str, start: int, end: int | None, pipeline: str, deadline: float
) -> Written | None:
    """The newest record between two offsets. `end` None: all that the topic has now.

    A pipeline that has the same topic may have a transaction open. Until that has ended, consumers see
    nothing that came after its begin, and maybe not this pipeline's newest record.
    """
    consumer.assign([TopicPartition(topic, PARTITION, start)])
    found: Written | None = None
    at = start
    while end is None or at < end:
        if time.monotonic() > deadline:
            raise TimeoutError
        message = consumer.poll(0.5)
        if message is None:
            continue
        if (error := message.error()) is not None:
            if error.code() in NOT_YET:
                continue
            if error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            if end is None:
                end = _end(consumer, topic)
            at = message.offset() or 0
            continue
        at = (message.offset() or 0) + 1
        if (end is None or at <= end) and message.key() == pipeline.encode():
            found = _parsed(message.value(), topic)
    return found


def _end(consumer: Consumer, topic: str) -> int:
    """The end of the topic, as the broker's last answer says. Records of open transactions are before it."""
    return int(consumer.get_watermark_offsets(TopicPartition(topic, PARTITION), cached=True)[1])


def _parsed(value: bytes | None, topic: str) -> Written:
    try:
        return Written(**json.loads(value or b""))
    except (ValueError, TypeError):
        raise ConfigError(
            f"The topic {topic} has a record that this version of Penstock does not understand.",
            hint="Use the version that wrote it, or a newer one. Nobody else may write into this topic.",
        ) from None
