"""What `penstock doctor` tries at the server. It writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.errors import PenstockError
from penstock.sinks.kind import Probe, Probed
from penstock.sinks.nats.options import NatsOptions
from penstock.sinks.nats.sink import NatsSink


def probe(options: NatsOptions) -> Probe:
    """Connects, and looks at JetStream and at the stream."""

    def tried(spark: Any, databases: Sequence[str]) -> Iterator[Probed]:
        sink, where = NatsSink(options, "doctor"), ", ".join(options.url)
        try:
            sink.check()
        except PenstockError as error:
            yield Probed("nats", where, False, str(error))
            return
        finally:
            sink.close()
        yield Probed("nats", where, True, f"JetStream answers; the stream {options.stream_name} can be used.")

    return tried
