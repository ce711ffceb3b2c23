"""`types.arrays: list` at targets that have no lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.config import PipelineConfig


@pytest.mark.parametrize(
    ("sink", "arrays"),
    [
        ({"type": "iceberg", "path": "/lake"}, "list"),
        ({"type": "delta", "path": "/lake"}, "list"),
        ({"type": "parquet", "path": "/lake"}, "list"),
        ({"type": "redis", "url": "redis://localhost", "value": "json"}, "list"),
        ({"type": "redis", "url": "redis://localhost", "value": "hash"}, "json"),
        ({"type": "jdbc", "url": "sqlite:////lake/one.db"}, "json"),
        ({"type": "kafka", "bootstrap": "localhost", "format": "json"}, "list"),
    ],
    ids=lambda one: one if isinstance(one, str) else f"{one['type']}-{one.get('value', '')}".rstrip("-"),
)
def test_a_target_without_lists_has_their_json(sink: dict[str, Any], arrays: str, tmp_path: Path) -> None:
    document: dict[str, Any] = {
        "name": "lists", "tables": ["shop.*"], "state": str(tmp_path), "sink": sink,
        "source": {"host": "localhost", "user": "u", "password": "p"},
    }  # fmt: skip
    if sink["type"] != "kafka":  # what messages have, their format says
        document["types"] = {"arrays": "list", "time": "micros"}
    found = PipelineConfig.model_validate(document).types
    assert found.arrays == arrays and (sink["type"] == "kafka" or found.time == "micros")
