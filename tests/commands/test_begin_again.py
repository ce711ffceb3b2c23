"""`penstock reset` of a file with several sinks, whose pipelines share a relay log."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from penstock import config as configuration
from penstock.commands import begin_again
from penstock.errors import ConfigError
from penstock.model.offset import Offset
from penstock.relaylog.consumers import Consumer, registered
from penstock.relaylog.segment import FIRST_OFFSET_FILE
from penstock.runtime.fresh_state import OldState
from penstock.state import StateStore


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Both sinks have run, and are registered at the relay log."""
    path = tmp_path / "shop.yaml"
    document = {
        "name": "shop",
        "source": {"host": "h", "user": "u", "password": "p"},
        "tables": ["d.*"],
        "sinks": [
            {"type": "iceberg", "path": str(tmp_path / "lake")},
            {"type": "parquet", "path": str(tmp_path / "log")},
        ],
        "state": str(tmp_path / "state"),
    }
    path.write_text(yaml.safe_dump(document))
    for name, member in configuration.load_several(path)[1].items():
        with closing(StateStore(member.state, owner=True)) as state:
            state.advance(Offset(9))
            member.relay_log_path.mkdir(exist_ok=True)
            Consumer(
                member.relay_log_path, f"shop-{name}", needs=Offset(9), id=state.uuid, kind="pipeline"
            ).close()
    (tmp_path / "state" / "relay" / "relay.json").write_text('{"uuid": "u"}')
    return path


def states(file: Path) -> dict[str, OldState]:
    return {name: OldState.of(one) for name, one in configuration.load_several(file)[1].items()}


def test_all_sinks_of_a_file_begin_anew_with_a_new_log(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = states(file)
    begin_again.reset(file, yes=False, as_json=True)
    assert not json.loads(capsys.readouterr().out)["done"] and states(file) == before
    begin_again.reset(file, yes=True, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["done"] and [one["log_readers"] for one in found["pipelines"]] == [[], []]
    assert {name: one.uuid for name, one in states(file).items()} == {n: b.uuid for n, b in before.items()}
    assert all(one.is_fresh for one in states(file).values())
    relay = file.parent / "state" / "relay"
    assert not registered(relay) and (relay / FIRST_OFFSET_FILE).exists()


def test_one_sink_begins_anew_and_the_log_that_others_read_stays(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin_again.reset(file.with_name("shop.yaml#parquet"), yes=True, as_json=False)
    assert "stays, because others read it: shop-iceberg" in " ".join(capsys.readouterr().out.split())
    assert [name for name, one in states(file).items() if one.is_fresh] == ["parquet"]
    assert len(registered(file.parent / "state" / "relay")) == 2


def test_without_a_terminal_it_must_be_told_not_to_ask(file: Path) -> None:
    before = states(file)
    with pytest.raises(ConfigError, match="no terminal"):
        begin_again.reset(file, yes=False, as_json=False)
    assert states(file) == before
