"""What is said about a file of options that is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import config as configuration
from penstock.errors import ConfigError
from penstock.serve import settings

SERVER = "destinations: {example: {}}\npositions: {type: memory}\nrelay_log: {path: relay}\n"
PIPELINE = (
    "name: shop\nsource: {host: h, user: u}\ntables: [shop.*]\nstate: s\nsink: {type: iceberg, path: lake}\n"
)

Load = Any


def error(load: Load, tmp_path: Path, text: str) -> ConfigError:
    file = tmp_path / "file.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(file)
    return caught.value


@pytest.fixture(params=[configuration.load, settings.load], ids=["pipeline", "server"])
def load(request: pytest.FixtureRequest) -> Load:
    return request.param


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("source: {host: h, user: u\ntables: [a.b]\n", "The { in line 1, column 9 is not closed"),
        ("tables: [a.b\nstate: s\n", "The [ in line 1, column 9 is not closed"),
        ("name: 'shop\nstate: s\n", "The quote that begins in line 1, column 7 is not closed"),
        ("name: shop\n\tstate: s\n", "Indent with spaces"),
        ("password: @secret\n", "single quotes"),
        ("password: a: b\n", "single quotes"),
        ("password: %x\n", "single quotes"),
        ("a: " + "[" * 5000, ""),
    ],
)
def test_a_file_that_is_no_yaml_gets_a_hint_on_its_mistake(
    load: Load, tmp_path: Path, text: str, cure: str
) -> None:
    said = error(load, tmp_path, text)
    assert "file.yaml" in said.message and "secret" not in f"{said.message} {said.hint}"
    assert cure in said.hint


@pytest.mark.parametrize(
    ("load", "text", "said"),
    [
        (configuration.load, PIPELINE + "snapshott: {}\n", "`snapshott` (did you mean `snapshot`?)"),
        (configuration.load, PIPELINE + "snapshot: {paralel: 2}\n", "(did you mean `parallel`?)"),
        (configuration.load, PIPELINE + "host: h\n", "(did you mean `source.host`?)"),
        (configuration.load, PIPELINE + "relay_log: {keepp: 1}\n", "unknown option `relay_log.keepp`"),
        (
            configuration.load,
            PIPELINE.replace("path:", "pathh:"),
            "of the sink iceberg (did you mean `path`?)",
        ),
        (settings.load, SERVER + "destination: {}\n", "(did you mean `destinations`?)"),
        (settings.load, SERVER.replace("{example: {}}", "{example: {filtr: x}}"), "(did you mean `filter`?)"),
        (settings.load, SERVER + "http: {lissten: 'x:1'}\n", "(did you mean `listen`?)"),
        (settings.load, SERVER + "users: {anna: {passwd: x}}\n", "(did you mean `password`?)"),
        (settings.load, SERVER + "source: {host: h, usr: u}\n", "(did you mean `user`?)"),
        (
            settings.load,
            SERVER + "sources: {a: {source: {host: h, user: u, pasword: p}, relay_log: {path: r}}}\n",
            "(did you mean `password`?)",
        ),
    ],
)
def test_an_unknown_option_names_the_one_that_is_meant(
    load: Load, tmp_path: Path, text: str, said: str
) -> None:
    assert said in error(load, tmp_path, text).message
