"""`python -m penstock.testing`: downloads what tests and the demo need into the cache."""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.errors import PenstockError
from penstock.sinks import registry
from penstock.spark.jars import jars
from penstock.testing import servers


def main() -> int:
    try:
        jars(registry.kind(name).example(Path("unused")) for name in ("iceberg", "delta"))
        servers.MySqlServer.prepare()
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
