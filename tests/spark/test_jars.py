"""A sink's jars depend on its options, and are fetched by the SHA-256 that its registration or Penstock
gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.artifacts.pinned import SHA256
from penstock.sinks import registry
from penstock.spark import jars


def test_a_package_gives_the_sha256_of_its_own_jars_and_cannot_replace_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: dict[str, Mapping[str, str]] = {}

    def fetch(coordinates: str, *, pins: Mapping[str, str] = SHA256) -> list[Path]:
        asked[coordinates] = pins
        return [Path(coordinates.split(":")[1])]

    monkeypatch.setattr(jars, "fetch", fetch)
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
    assert asked["org.other:driver:1.0"] == {**SHA256, "driver-1.0.jar": "a"}
    assert asked["org.other:console:1.0"] == asked["org.other:driver:1.0"]
    assert asked[jars.LOCAL_FILES] == SHA256
