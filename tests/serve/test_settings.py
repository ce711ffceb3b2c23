"""The file of a server."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.commands.serve import warnings
from penstock.errors import ConfigError
from penstock.serve import settings

SHA256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


def document(folder: Path, **changes: Any) -> Path:
    file = folder / "server.yaml"
    content: dict[str, Any] = {
        "listen": {"canal": "127.0.0.1:0", "grpc": "127.0.0.1:0"},
        "http": {"listen": "127.0.0.1:0"},
        "source": {"host": "db", "port": 3306, "user": "u", "password": "hidden"},
        "relay_log": {"path": "relay"},
        "destinations": {"example": {"filter": r"shop\..*", "start": "earliest"}},
        "users": {"canal": {"password_sha256": SHA256}},
        "positions": {"type": "file", "path": "positions"},
        "zookeeper": ["127.0.0.1:2181"],
        **changes,
    }
    file.write_text(yaml.safe_dump(content))
    return file


def test_check_says_what_a_user_may_not_expect_and_starts_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock", "serve", "--check", str(document(tmp_path)), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert said[-1] == {"ok": True}
    warnings = " ".join(one["warning"] for one in said[:-1])
    assert all(word in warnings for word in ("password_sha256", "zookeeper"))
    assert "hidden" not in done.stdout and sorted(one.name for one in tmp_path.iterdir()) == ["server.yaml"]


def test_a_password_that_is_the_name_is_warned_of(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"canal").hexdigest()
    config = settings.load(document(tmp_path, users={"canal": {"password_sha256": digest}}))
    [first, *_] = warnings(config)
    assert "guess" in first


def test_a_destination_that_a_user_may_read_and_that_does_not_exist_is_warned_of(tmp_path: Path) -> None:
    user = {"password": "secret", "destinations": ["*", "exampel"]}
    config = settings.load(document(tmp_path, users={"canal": user}))
    assert "The user canal may read `exampel`, and there is no such destination." in warnings(config)


def test_a_time_needs_no_quotes(tmp_path: Path) -> None:
    path = document(tmp_path, destinations={"a": {"start": {"timestamp": "TIME"}}})
    path.write_text(path.read_text().replace("TIME", "2026-11-25T10:00:00Z"))
    assert settings.load(path).destinations["a"].start.timestamp == "2026-11-25T10:00:00+00:00"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"destinations": {"a": {"filter": "shop.["}}}, "regular expression"),
        ({"destinations": {"../a": {}}}, "needs a name"),
        ({"destinations": {}}, "destinations"),
        ({"destinations": {"a": {"strat": "latest"}}}, "unknown option `destinations.a.strat`"),
        ({"users": {"canal": {"password_sha256": "abc"}}}, "64 hexadecimal"),
        ({"users": {"canal": {}}}, "password_sha1_sha1"),
        ({"positions": {"type": "file"}}, "path"),
        ({"relay_log": {}}, "relay_log.path"),
        ({"listen": {"canal": "11111"}}, "host:port"),
        ({"users": {"canal": {"password": ""}}}, "`password` is empty"),
        ({"tokens": {"a": {"token": ""}}}, "a token has at least 16 characters"),
        ({"tokens": {"a": {"token": "x" * 16, "role": "admin"}}}, "reader"),
        ({"destinations": {"a": {"start": {"gtid": "1-2"}}}}, "not a GTID set"),
        ({"destinations": {"a": {"start": {"timestamp": "now"}}}}, "`now` is no time"),
        ({"destinations": {"a": {"exclude_columns": {"shop.*": ["email"]}}}}, "`shop.*` is a pattern"),
        (
            {"http": {"listen": "127.0.0.1:8191"}, "listen": {"grpc": "127.0.0.1:8191"}},
            "`http` and `grpc` have one address",
        ),
        ({"advertise": "machine"}, "host:port"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        settings.load(document(tmp_path, **changes))


@pytest.mark.parametrize(
    ("starts", "given", "expected"),
    [
        (["latest", "latest"], None, "latest"),
        (["latest", "earliest"], None, "earliest"),
        (["earliest"], "latest", "latest"),
    ],
)
def test_a_new_log_begins_where_destinations_begin(
    tmp_path: Path, starts: list[str], given: str | None, expected: str
) -> None:
    source = {"user": "u"} if given is None else {"user": "u", "start": given}
    destinations = {f"d{number}": {"start": start} for number, start in enumerate(starts)}
    config = settings.load(document(tmp_path, source=source, destinations=destinations))
    assert config.pipeline_of("").source.start.at == expected  # type: ignore[attr-defined]
    assert config.pipeline_of("").relay_log_path == tmp_path / "relay"


SHARED = {"type": "store", "url": "shared"}


def several(folder: Path, **changes: Any) -> Path:
    """A file with `sources`."""
    file = document(folder, **({"zookeeper": []} | changes))
    found = yaml.safe_load(file.read_text())
    for name in {"source", "relay_log"} - changes.keys():
        found.pop(name, None)
    file.write_text(yaml.safe_dump(found))
    return file


def test_sources_have_names_logs_and_readers(tmp_path: Path) -> None:
    log = {"source": {"user": "u"}, "relay_log": {"path": "a"}}
    for wrong, said in (
        ({"sources": {"a": log, "b": log}}, "of its own"),
        ({"sources": {"a": {"source": {"user": "u"}}}}, "missing"),
        ({"sources": {"a/b": log}}, "needs a name"),
        ({"sources": {"a": log}, "relay_log": {"path": "b"}}, "one or the other"),
        ({"sources": {"a": log}, "destinations": {"d": {"sources": ["b"]}}}, "not in `sources`"),
        ({"sources": {"a": log}, "destinations": {"d": {"sources": ["a", "a"]}}}, "twice"),
        ({"sources": {"a": log}, "zookeeper": ["z:1"]}, "cannot be together"),
        ({"sources": {"a": log}, "positions": {"type": "store"}}, "go together"),
    ):
        with pytest.raises(ConfigError, match=said):
            settings.load(several(tmp_path, **wrong))
    with pytest.raises(ConfigError, match="replaces `zookeeper`"):
        settings.load(document(tmp_path, positions=SHARED))
    config = settings.load(several(tmp_path, sources={"a": log}))
    pipeline = config.pipeline_of("a")
    assert pipeline.relay_log_path == tmp_path / "a"
    assert pipeline.source.heartbeat == 1000  # type: ignore[attr-defined]
