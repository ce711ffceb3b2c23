"""Sources are found by their names, and read their own section of the pipeline file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from penstock import config as configuration
from penstock.errors import ConfigError
from penstock.sources import registry, statements_of

BASE = {"name": "shop", "tables": ["shop.*"], "state": "state"}


@pytest.mark.parametrize("name", [entry.name for entry in registry.OWN])
def test_a_source_of_penstock_is_registered_under_its_name(name: str) -> None:
    kind = registry.kind(name)
    assert kind.name == name and get_args(kind.options.model_fields["type"].annotation) == (name,)


def test_a_pipeline_file_without_a_type_has_the_default_source() -> None:
    config = configuration.parse({**BASE, "source": {"user": "cdc"}})
    assert type(config.source) is registry.kind(registry.DEFAULT).options
    assert config.source.type == registry.DEFAULT


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"type": "oracle"}, "option `source.type`: oracle is not a kind of source. One of: mysql"),
        ({"user": "cdc", "hots": "x"}, "unknown option `source.hots` \\(did you mean `host`"),
        ({"user": "cdc", "port": 0}, "option `source.port`: it must be greater"),
        ("mysql", "option `source`: this is a section"),
    ],
)
def test_a_section_that_the_source_does_not_accept_is_an_error_that_names_the_option(
    source: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        configuration.parse({**BASE, "source": source})


def test_a_package_that_cannot_be_loaded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "other-1.0.dist-info"
    info.mkdir()
    lines = f"[{registry.GROUP}]\nbroken = no_such_module:SOURCE\nwrong = penstock.sources.registry:DEFAULT\n"
    (info / "entry_points.txt").write_text(lines)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert {"broken", "wrong"} <= set(registry.names())
    with pytest.raises(ConfigError, match="The source broken, which no_such_module:SOURCE registers"):
        registry.kind("broken")
    with pytest.raises(ConfigError, match="which is not a SourceKind of this name"):
        registry.kind("wrong")


class _Log:
    """A relay log of a source."""

    def __init__(self, **facts: Any) -> None:
        self.facts = facts


@pytest.mark.parametrize("facts", [{}, {"source": {"version": "8.0"}}, {"source": {"type": "mysql"}}])
def test_a_relay_log_says_whose_statements_it_has_and_an_old_one_has_those_of_mysql(
    facts: dict[str, Any],
) -> None:
    log: Any = _Log(**facts)
    nothing: Any = None
    assert type(statements_of(log, nothing, types=nothing)).__name__ == "MySqlStatements"
    log.facts = {"source": {"type": "oracle"}}
    with pytest.raises(ConfigError, match="oracle is not a kind of source"):
        statements_of(log, nothing, types=nothing)
