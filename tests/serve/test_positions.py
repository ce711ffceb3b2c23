"""What clients have acknowledged, in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.model.offset import Offset
from penstock.serve.batches import Place
from penstock.serve.positions import InFiles, Subscribed

EARLIER = {"1001": Subscribed(Place(Offset(100)), ""), "b": Subscribed(Place(Offset(7), 3), r"shop\.é")}
LATER = {"1001": Subscribed(Place(Offset(200)), "")}


def test_positions_are_what_was_stored_last(tmp_path: Path) -> None:
    positions = InFiles(tmp_path, "log")
    assert positions.load("example") == {}
    positions.store("example", EARLIER, durable=False)
    assert InFiles(tmp_path, "log").load("example") == EARLIER
    positions.store("example", LATER, durable=False)
    positions.store("example", EARLIER, durable=True)
    assert InFiles(tmp_path, "log").load("example") == LATER
    assert positions.load("another") == {}


def test_a_file_that_a_power_loss_has_damaged_is_replaced_by_the_safe_one(tmp_path: Path) -> None:
    positions = InFiles(tmp_path, "log")
    positions.store("example", EARLIER, durable=False)
    path = tmp_path / "destination-example.json"
    for damaged in (b"", b"{", b"[]", b'{"relay_log": "log", "clients": {"1": {}}}'):
        path.write_bytes(damaged)
        with pytest.raises(ConfigError, match="cannot be read"):
            positions.load("example")
    positions.store("example", EARLIER, durable=True)
    assert positions.load("example") == EARLIER


def test_positions_of_another_log_are_refused(tmp_path: Path) -> None:
    InFiles(tmp_path, "log").store("example", EARLIER, durable=False)
    with pytest.raises(ConfigError, match="another relay log"):
        InFiles(tmp_path, "another").load("example")
