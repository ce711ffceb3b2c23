"""What `penstock prepare` takes for a sink, and what for a pipeline file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.artifacts import environment
from penstock.commands.prepare import prepare, sink_options
from penstock.errors import ConfigError
from penstock.sinks import registry

PREPARES = """
import sys
from pathlib import Path
from penstock.commands.prepare import sink_options
from penstock.spark import classes, training_run
classes.archive = lambda paths: Path(sys.argv[2])
training_run.prepare(sink_options(sys.argv[1]))
"""
"""Leaves the archives of this machine as they are."""


def test_a_name_is_a_sink_and_a_path_is_a_pipeline_file(tmp_path: Path) -> None:
    assert sink_options("delta").type == "delta"
    file = tmp_path / "shop.yaml"
    catalog = "{type: rest, uri: 'http://host/iceberg'}"
    file.write_text(
        f"name: shop\nsource: {{user: cdc}}\ntables: [shop.*]\nstate: s\nsink: {{catalog: {catalog}}}\n"
    )
    found = sink_options(str(file))
    assert found.type == "iceberg" and found.model_dump()["catalog"]["type"] == "rest"


def test_what_is_neither_is_refused() -> None:
    with pytest.raises(ConfigError, match="hudi is not a kind of sink"):
        sink_options("hudi")
    with pytest.raises(ConfigError, match=r"The pipeline file nowhere\.yaml cannot be read"):
        sink_options("nowhere.yaml")


def test_the_packages_for_workers_are_packed_on_request(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    packed = tmp_path / "packages.tar.gz"
    packed.write_bytes(b"packed")
    monkeypatch.setattr(environment, "archive", lambda: packed)
    prepare([], cluster=True, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"cluster": str(packed)}
    prepare([], cluster=False, as_json=True)
    assert json.loads(capsys.readouterr().out) == {}


@pytest.mark.slow
@pytest.mark.parametrize("sink", registry.names())
def test_each_sink_can_be_prepared_where_its_server_is_not(sink: str, tmp_path: Path) -> None:
    made = tmp_path / "classes.jsa"
    command = [sys.executable, "-c", PREPARES, sink, str(made)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert made.stat().st_size > 10**8
