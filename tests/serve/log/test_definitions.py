"""Definitions of tables in a file, for a log that may have changed since."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from penstock.model.offset import Offset
from penstock.relaylog.reader import RelayLog
from penstock.serve.log import definitions
from penstock.serve.log.definitions import Definitions


def log_of(start: int, *forks: tuple[int, str]) -> RelayLog:
    facts = {"uuid": "log", "forks": [list(one) for one in forks]}
    return cast(RelayLog, SimpleNamespace(start=Offset(start), facts=facts))


def stored(path: Path, *, start: int, tracked: int, log_id: str = "log") -> Any:
    made = Definitions(Offset(start), {})
    made.tracked = Offset(tracked)
    definitions.save(made, path, log_id=log_id, since=Offset(start))
    return lambda log: definitions.load(path, log) is not None


def test_definitions_are_those_of_the_whole_log(tmp_path: Path) -> None:
    known = stored(tmp_path / "definitions.json", start=100, tracked=500)
    assert known(log_of(100)) and known(log_of(500))
    assert not known(log_of(501)) and not known(log_of(99))


def test_what_was_lost_with_a_disk_may_have_been_other_statements(tmp_path: Path) -> None:
    known = stored(tmp_path / "definitions.json", start=100, tracked=500)
    assert known(log_of(100, (500, "x"))) and not known(log_of(100, (499, "x")))
    known = stored(tmp_path / "definitions.json", start=100, tracked=500, log_id="log+x")
    assert known(log_of(100, (300, "x"))) and known(log_of(100, (300, "x"), (600, "y")))
    assert not known(log_of(100, (300, "x"), (400, "y")))
    assert not known(log_of(100)) and not known(log_of(100, (300, "y")))
