"""What `penstock doctor` tries at the server. It writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.errors import PenstockError
from penstock.sinks.kind import Probe, Probed
from penstock.sinks.redis.server import check_server, client
from penstock.sinks.redis_streams.options import RedisStreamsOptions


def probe(options: RedisStreamsOptions) -> Probe:
    """Connects, and looks whether the server keeps what it is given."""

    def tried(spark: Any, databases: Sequence[str]) -> Iterator[Probed]:
        try:
            check_server(client(options), options)
        except PenstockError as error:
            yield Probed("redis-streams", options.url, False, str(error))
            return
        yield Probed("redis-streams", options.url, True, "The server answers, and removes no keys by itself.")

    return tried
