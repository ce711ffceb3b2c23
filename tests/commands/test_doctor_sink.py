"""What `penstock doctor` tries of a sink, as far as that needs no server."""

from __future__ import annotations

from typing import Any

from penstock import config as configuration
from penstock.commands.doctor_sink import databases_of, sink_findings
from penstock.config import PipelineConfig


def config(**changes: Any) -> PipelineConfig:
    base = {"name": "shop", "source": {"user": "cdc", "port": 1}, "tables": ["shop.*"], "state": "state"}
    return configuration.parse({**base, **changes})


def test_a_sink_on_the_local_disk_is_not_tried_so_that_doctor_needs_no_spark() -> None:
    for sink in ({}, {"path": "lake"}, {"type": "delta", "path": "lake"}, {"type": "console"}):
        assert sink_findings(config(sink=sink)) == []


def test_databases_are_those_that_patterns_name() -> None:
    assert databases_of(config(tables=["shop.*", "`a.b`.orders", "shop.x", "test_*.orders"])) == [
        "shop",
        "a.b",
    ]


def test_no_database_is_known_if_only_the_source_could_tell_and_does_not_answer() -> None:
    assert databases_of(config(tables=["*.orders"])) == []
