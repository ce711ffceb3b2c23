"""Where benchmarks put what they make and throw away."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.artifacts.maven import cache_directory


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for relay logs and warehouses, beside the cache rather than in a /tmp that may be memory."""
    root = cache_directory() / "bench"
    root.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="run-", dir=root))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
