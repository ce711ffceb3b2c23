"""What `penstock doctor` tries at the server. It writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.errors import PenstockError
from penstock.sinks.kind import Probe, Probed
from penstock.sinks.rabbitmq_streams.options import RabbitMqStreamsOptions
from penstock.sinks.rabbitmq_streams.sink import RabbitMqStreamsSink


def probe(options: RabbitMqStreamsOptions) -> Probe:
    """Connects, and logs in."""

    def tried(spark: Any, databases: Sequence[str]) -> Iterator[Probed]:
        sink, where = RabbitMqStreamsSink(options, "doctor"), ", ".join(options.url)
        try:
            sink.check()
        except PenstockError as error:
            yield Probed("rabbitmq-streams", where, False, str(error))
            return
        finally:
            sink.close()
        yield Probed("rabbitmq-streams", where, True, "The server answers in the stream protocol.")

    return tried
