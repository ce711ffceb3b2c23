"""`python -m penstock.testing`: downloads what tests and the demo need into the cache.

`python -m penstock.testing lake`: runs a private S3 server and a REST catalog until Ctrl-C, to try a pipeline
with them. What is written to them is gone afterwards.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from penstock.errors import PenstockError
from penstock.sinks import registry
from penstock.sinks.jars import jars
from penstock.sinks.kind import SinkOptions
from penstock.testing import servers
from penstock.testing.lake import lake


def main(arguments: list[str]) -> int:
    try:
        if arguments == ["lake"]:
            serve_lake()
        elif arguments:
            print("penstock: `python -m penstock.testing` takes nothing, or `lake`.", file=sys.stderr)
            return 2
        else:
            jars(_sinks())
            servers.MySqlServer.prepare()
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


def _sinks() -> list[SinkOptions]:
    """The sinks that quick tests use."""
    iceberg, delta = registry.kind("iceberg"), registry.kind("delta")
    catalog = {"type": "jdbc", "uri": "jdbc:sqlite:/unused", "warehouse": "s3://unused"}
    on_s3 = iceberg.options.model_validate({"type": "iceberg", "catalog": catalog})
    return [iceberg.example(Path("unused")), delta.example(Path("unused")), on_s3]


def serve_lake() -> None:
    """Prints the section of a pipeline file for the two servers, and waits for a signal."""
    print(
        "starting an S3 server and a REST catalog (a minute; 250 MB are downloaded once) …", file=sys.stderr
    )
    with TemporaryDirectory(prefix="penstock-lake-") as folder, lake("s3", "iceberg", Path(folder)) as tables:
        print(tables.said, file=sys.stderr)
        print(yaml.safe_dump({"sink": tables.sink}, sort_keys=False), flush=True)
        print("Ctrl-C stops both, and what was written is gone.", file=sys.stderr)
        ends = {signal.SIGINT, signal.SIGTERM}
        signal.pthread_sigmask(signal.SIG_BLOCK, ends)
        signal.sigwait(ends)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
