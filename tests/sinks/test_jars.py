"""A sink's jars depend on its options, and are fetched by the SHA-256 that its registration or Penstock
gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.artifacts.pinned import SHA256
from penstock.sinks import jars, registry


def test_a_package_gives_the_sha256_of_its_own_jars_and_cannot_replace_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: dict[str, Mapping[str, str]] = {}

    def fetch_all(wanted: Sequence[str], *, pins: Mapping[str, str]) -> list[Path]:
        asked.update(dict.fromkeys(wanted, pins))
        return [Path(one.split(":")[1]) for one in wanted]

    monkeypatch.setattr(jars, "fetch_all", fetch_all)
    ours = next(iter(SHA256))
    console = registry.kind("console")
    other = replace(
        console,
        jars=("org.other:driver:1.0",),
        jars_for=lambda options: (f"org.other:{options.type}:1.0",),
        jars_sha256={"driver-1.0.jar": "a", ours: "b"},
    )
    monkeypatch.setattr(registry, "kind", lambda name: other)
    found = jars.jars([console.example(Path("unused"))])
    assert [path.name for path in found] == ["hadoop-bare-naked-local-fs", "driver", "console"]
    assert list(asked) == [jars.LOCAL_FILES, "org.other:driver:1.0", "org.other:console:1.0"]
    assert asked["org.other:driver:1.0"] == {**SHA256, "driver-1.0.jar": "a"}
