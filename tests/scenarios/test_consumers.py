"""Pipelines and other readers of one relay log, and who may read what they keep."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import config as configuration
from penstock.changes.opening import follow
from penstock.errors import ConfigError
from penstock.relaylog.consumers import registered
from penstock.testing.scenario import Scenario, refusal

pytestmark = pytest.mark.timeout(900)

Make = Callable[..., Scenario]


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def open_places(state: Path) -> list[str]:
    """What of the state another account could reach."""
    found: list[str] = []
    places = [state]
    while places:
        place = places.pop()
        mode = stat.S_IMODE(place.stat().st_mode)
        if mode & 0o077:
            found.append(f"{place.relative_to(state)} {mode:o}")
        if place.is_dir() and (place == state or mode & 0o077):
            places += [path for path in place.iterdir() if not path.is_symlink()]
    return found


@pytest.mark.slow
def test_one_name_is_one_reader_at_a_time_and_nothing_kept_is_open_to_others(
    scenario: Make, no_umask: None
) -> None:
    case = scenario()
    state = configuration.load(case.file).state
    relay = state / "relay"
    case.server.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    with case.running() as pipeline:
        case.drain(pipeline)
        case.server.execute("INSERT INTO t VALUES (3)")
        case.drain(pipeline)
        assert open_places(state) == []
        with pytest.raises(ConfigError, match=r"A pipeline named scenario.* is already running"):
            follow(case.file, [f"{case.database}.t"], name="scenario")
        with follow(case.file, [f"{case.database}.t"], name="cache", start="earliest"):
            listed = json.loads(case.command("consumers", "--json").stdout)
            assert {(one["name"], one["kind"], one["running"]) for one in listed} == {
                ("scenario", "pipeline", True),
                ("cache", "follower", True),
            }
            refusal(case.command("consumers", "--remove", "cache"), "cache", "is running")
        other = case.write_file(state=str(case.folder / "second"), relay_log={"path": str(relay)})
        refusal(case.command("run", "--once"), "A pipeline named scenario", "is already running", str(state))
        assert other == case.file
        case.write_file()
        told = case.command("status").stdout
        assert "kept for cache" in " ".join(told.split())
        pipeline.kill("driver")
    case.command("consumers", "--remove", "cache")
    [left] = registered(relay)
    assert (left.name, left.alive) == ("scenario", False)
    before = left.id
    done = case.command("run", "--once")
    assert done.returncode == 0, done.stderr
    assert [one.id for one in registered(relay)] == [before], "the same state is the same consumer"
    case.assert_equal("t")
