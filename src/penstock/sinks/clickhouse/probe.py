"""What `penstock doctor` tries at the server. It writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.errors import PenstockError
from penstock.sinks.clickhouse.options import ClickHouseOptions
from penstock.sinks.kind import Probe, Probed


def probe(options: ClickHouseOptions) -> Probe:
    """Connects, and looks at the server's release."""

    def tried(spark: Any, databases: Sequence[str]) -> Iterator[Probed]:
        from penstock.sinks.clickhouse.sink import ClickHouseSink

        sink = ClickHouseSink(options, spark, "")
        try:
            sink.check()
        except PenstockError as error:
            yield Probed("clickhouse", options.url, False, str(error))
            return
        finally:
            sink.close()
        yield Probed("clickhouse", options.url, True, "The server answers.")

    return tried
