"""What `penstock doctor` tries at the server. It writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.errors import PenstockError
from penstock.sinks.kind import Probe, Probed
from penstock.sinks.opensearch.options import OpenSearchOptions


def probe(options: OpenSearchOptions) -> Probe:
    """Connects, and looks at the server's release."""

    def tried(spark: Any, databases: Sequence[str]) -> Iterator[Probed]:
        from penstock.sinks.opensearch.sink import OpenSearchSink

        sink = OpenSearchSink(options, spark, "")
        try:
            sink.check()
        except PenstockError as error:
            yield Probed("opensearch", options.url, False, str(error))
            return
        finally:
            sink.close()
        yield Probed("opensearch", options.url, True, "The server answers.")

    return tried
