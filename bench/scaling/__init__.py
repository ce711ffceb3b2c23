"""The parts of `python -m bench.scale`, one file each, and what they share."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.artifacts import cache_directory


@dataclass(frozen=True)
class Line:
    """One figure of a part; with a `goal` it is to stay below that."""

    part: str
    what: str
    value: float
    unit: str
    goal: float | None = None

    @property
    def reached(self) -> bool | None:
        return None if self.goal is None else self.value < self.goal

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "value": round(self.value, 4), "reached": self.reached}


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder beside the cache, rather than in a /tmp that may be memory."""
    root = cache_directory() / "bench"
    root.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="scale-", dir=root))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
