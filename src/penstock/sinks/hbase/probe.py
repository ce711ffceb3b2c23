"""What `penstock doctor` tries at the cluster. It writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.errors import PenstockError
from penstock.sinks.hbase.options import HBaseOptions
from penstock.sinks.kind import Probe, Probed


def probe(options: HBaseOptions) -> Probe:
    """Connects, and asks for the sink's own table."""

    def tried(spark: Any, databases: Sequence[str]) -> Iterator[Probed]:
        from penstock.sinks.hbase.sink import HBaseSink

        where = options.quorum or str(options.site)
        sink = HBaseSink(options, spark, "")
        try:
            sink.check()
        except PenstockError as error:
            yield Probed("hbase", where, False, str(error))
            return
        finally:
            sink.close()
        yield Probed("hbase", where, True, "The cluster answers.")

    return tried
