"""What `penstock doctor` tries at the server. It writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.errors import PenstockError
from penstock.sinks.kind import Probe, Probed
from penstock.sinks.redis.options import RedisOptions


def probe(options: RedisOptions) -> Probe:
    """Connects, and looks whether the server keeps what it is given."""

    def tried(spark: Any, databases: Sequence[str]) -> Iterator[Probed]:
        from penstock.sinks.redis.sink import RedisSink

        where = options.url
        try:
            RedisSink(options, spark, "").check()
        except PenstockError as error:
            yield Probed("redis", where, False, str(error))
            return
        yield Probed("redis", where, True, "The server answers, and removes no keys by itself.")

    return tried
