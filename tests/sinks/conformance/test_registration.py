"""What a sink registers is true, and enough for everybody else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from pyspark.sql import SparkSession
from tests.sinks.conformance import registered

from penstock import config as configuration
from penstock.errors import ConfigError
from penstock.secret import REVEALED
from penstock.sinks import registry
from penstock.sinks.base import ChangeSink, LogSink, Readable, Sink, TableSink

BASE = {"name": "shop", "source": {"user": "cdc"}, "tables": ["shop.*"], "state": "state"}

every = pytest.mark.parametrize("name", registered.every_name())


@every
def test_a_sink_is_of_the_kind_that_it_registers(name: str, spark: SparkSession, lake_root: Path) -> None:
    kind = registry.kind(name)
    sink = kind.open(kind.example(lake_root / name), spark, "a pipeline", registry.NO_SHARDS)
    assert isinstance(sink, Sink)
    assert isinstance(sink, TableSink) == kind.keeps_tables
    assert isinstance(sink, LogSink) == kind.takes_messages
    assert isinstance(sink, ChangeSink) == (not kind.keeps_tables and not kind.takes_messages)
    shown = isinstance(sink, Readable) or registered.reader(name) is not None
    assert shown or not kind.keeps_tables, f"the suite must see its rows: {registered.READERS}"
    if not kind.takes_messages and name not in registered.NEED_SERVERS:
        sink.check()
    sink.close()


@every
def test_its_options_are_the_section_of_the_pipeline_file(name: str, tmp_path: Path) -> None:
    kind = registry.kind(name)
    assert get_args(kind.options.model_fields["type"].annotation) == (name,)
    section = kind.example(tmp_path).model_dump(mode="json", context=REVEALED)
    config = configuration.parse({**BASE, "sink": section})
    assert config.sink == kind.example(tmp_path) and config.sink_kind is kind
    configuration.save(config, tmp_path / "file.yaml")
    assert configuration.load(tmp_path / "file.yaml").sink == kind.example(tmp_path)


@every
def test_an_option_that_it_does_not_have_is_an_error_that_names_it(name: str, tmp_path: Path) -> None:
    section = registry.kind(name).example(tmp_path).model_dump(mode="json")
    with pytest.raises(ConfigError, match=f"unknown option `sink.typ` of the sink {name} .*`type`"):
        configuration.parse({**BASE, "sink": {**section, "typ": "x"}})


@every
def test_a_pipeline_file_that_names_it_is_read_without_spark(name: str, tmp_path: Path) -> None:
    if name not in {kind.name for kind in registry.OWN}:
        pytest.skip("another package may import what it likes")
    load = f"from penstock.sinks.registry import kind; kind({name!r})"
    code = f"import sys; {load}; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_package_that_cannot_be_loaded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "other-1.0.dist-info"
    info.mkdir()
    lines = "[penstock.sinks]\nbroken = no_such_module:SINK\nwrong = penstock.sinks.registry:DEFAULT\n"
    (info / "entry_points.txt").write_text(lines)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert {"broken", "wrong"} <= set(registry.names())
    with pytest.raises(ConfigError, match="The sink broken, which no_such_module:SINK registers"):
        registry.kind("broken")
    with pytest.raises(ConfigError, match="which is not a SinkKind of this name"):
        registry.kind("wrong")


def test_an_unknown_sink_is_an_error_that_lists_those_there_are() -> None:
    with pytest.raises(ConfigError, match="hudi is not a kind of sink"):
        registry.kind("hudi")
    assert {"iceberg", "delta", "parquet", "console", "arrow", "arrow_unreadable"} <= set(registry.names())
