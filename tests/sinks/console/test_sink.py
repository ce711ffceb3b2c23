"""The console: one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from tests.sinks.conftest import Place

from penstock.sinks.base import Ours


def test_each_change_is_one_json_line(
    place: Callable[..., Place], capsys: pytest.CaptureFixture[str]
) -> None:
    it = place("console", config={"path": None}).create()
    frame = it.changelog((1, "a", "insert", 10), (2, None, "delete", 11))
    assert it.sink.write_changes(it.table, frame, it.commit(1))
    assert not it.sink.write_changes(it.table, frame, it.commit(1))
    assert it.sink.truncate(it.table, it.commit(2), sequence=12)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["change"], one["sequence"], one["row"] or None) for one in lines] == [
        ("insert", 10, {"id": 1, "name": "a"}),
        ("delete", 11, {"id": 2, "name": None}),
        ("truncate", 12, None),
    ]
    assert {one["table"] for one in lines} == {"shop.orders"}
    assert lines[0]["committed"] == "2026-01-02T03:04:05.678Z"
    assert it.sink.open(it.table) == Ours(it.commit(2), ("id", "name"), False)
