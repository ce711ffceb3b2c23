"""The sinks that the suite is about: all that are registered, and with them the example beside this file,
which comes by the entry-point group `penstock.sinks` as one of another package does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.sinks import registry

EXAMPLE = Path(__file__).with_name("example")


@contextmanager
def with_example() -> Iterator[None]:
    sys.path.insert(0, str(EXAMPLE))
    try:
        yield
    finally:
        sys.path.remove(str(EXAMPLE))


def names(*, tables: bool) -> list[str]:
    """Sinks that keep tables, or those that take changes."""
    with with_example():
        return [name for name in registry.names() if registry.kind(name).keeps_tables == tables]


def every_name() -> list[str]:
    with with_example():
        return registry.names()
