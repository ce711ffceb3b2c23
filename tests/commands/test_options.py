"""What `penstock options` prints."""

from __future__ import annotations

import json

import pytest

from penstock.commands.options import options
from penstock.config.schema import SCHEMA_FILE
from penstock.errors import ConfigError


def test_a_section_is_shown_with_those_inside_it(capsys: pytest.CaptureFixture[str]) -> None:
    options("snapshot", schema=False, as_json=False)
    said = capsys.readouterr().out
    assert "snapshot.chunk_rows  number, at least 1; default 50000" in said
    assert "snapshot.load.replica_lag_max  duration, such as 10s; default none" in said
    assert "source.host" not in said


def test_one_option_may_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    options("relay_log.segment_size", schema=False, as_json=True)
    [section] = json.loads(capsys.readouterr().out)
    [option] = section["options"]
    assert (option["name"], option["default"]) == ("relay_log.segment_size", "256MiB")


def test_json_has_every_section(capsys: pytest.CaptureFixture[str]) -> None:
    options(None, schema=False, as_json=True)
    names = [section["name"] for section in json.loads(capsys.readouterr().out)]
    assert names[0] == "" and {"source", "tables", "sink", "snapshot.load", "types", "schema"} <= set(names)


def test_the_schema_that_is_printed_is_the_one_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    options(None, schema=True, as_json=False)
    assert json.loads(capsys.readouterr().out) == json.loads(SCHEMA_FILE.read_text("utf-8"))


def test_a_section_that_is_not_there_is_refused_and_the_nearest_named() -> None:
    with pytest.raises(ConfigError) as refused:
        options("sinc", schema=False, as_json=False)
    assert refused.value.hint == "Did you mean sink?"
