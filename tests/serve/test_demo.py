"""The demo: Canal's Java client rebuilds a shop while client, server and receiver are killed."""

from __future__ import annotations

import pytest

from penstock.testing.canal.demo import KILLS, CanalDemo, CanalDemoOptions


@pytest.mark.slow
def test_every_table_is_equal_and_nothing_comes_behind_its_acknowledgement() -> None:
    said: list[str] = []
    result = CanalDemo(CanalDemoOptions(rows=2000, seconds=12, rate=100), say=said.append).run()
    assert result.equal, said
    assert result.after_acknowledgement == 0
    assert result.kills == list(KILLS)
    assert result.rows >= result.changes and len(result.tables) == 4
