from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sources.debezium.topic_log import Logs, TopicLog


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    """Opens the log of a test, again each time."""
    opened: list[TopicLog] = []

    def open_one(**options: Any) -> TopicLog:
        for one in opened:
            one.close()
        opened[:] = [TopicLog(tmp_path / "relay", **options)]
        return opened[0]

    yield open_one
    for one in opened:
        one.close()
