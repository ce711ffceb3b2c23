"""The sinks that the suite is about: all that are registered, and with them the examples beside this file,
which come by the entry-point group `penstock.sinks` as those of another package do."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from penstock.sinks import registry

EXAMPLE = Path(__file__).with_name("example")
READERS = "penstock.sinks.conformance"
"""The entry-point group for sinks that are not `Readable`. The entry has the sink's name. Its object is a
function `(options, spark, table)` that returns a DataFrame like `Readable.read`, of the present rows. It
serves this suite alone, which has to see what the sink has written."""
NEED_SERVERS = {"redis", "opensearch", "clickhouse", "hbase", "http"}
"""Sinks whose example is on a server that is not there."""
ON_SERVERS = (
    "redis-hash",
    "redis-json",
    "opensearch",
    "clickhouse",
    "clickhouse-modern",
    "hbase",
    "jdbc-duckdb",
    "jdbc-postgresql",
    "jdbc-mysql80",
    "jdbc-mariadb1011",
    "jdbc-mysql57",
    "jdbc-mysql97",
)
"""Sinks with servers of their own (`with_servers.py`). Without one, `jdbc` writes to SQLite."""
SLOW = {"arrow_unreadable", *ON_SERVERS}
"""Sinks that only a slow run tests: they have the code of another one, or need a server."""


@contextmanager
def with_example() -> Iterator[None]:
    sys.path.insert(0, str(EXAMPLE))
    try:
        yield
    finally:
        sys.path.remove(str(EXAMPLE))


def names(*, tables: bool) -> list[str]:
    """Sinks that keep tables, or those that take changes. Those that take messages have tests of their own
    (`tests/sinks/kafka`)."""
    with with_example():
        kinds = [registry.kind(name) for name in registry.names()]
        kept = [one for one in kinds if one.keeps_tables == tables and not one.takes_messages]
        return [one.name for one in kept if one.name not in NEED_SERVERS]


def reader(name: str) -> Callable[..., Any] | None:
    """The function that shows what the sink has written. None: its package names none."""
    with with_example():
        found = next(iter(entry_points(group=READERS, name=name)), None)
        return None if found is None else found.load()


def every_name() -> list[str]:
    with with_example():
        return registry.names()
