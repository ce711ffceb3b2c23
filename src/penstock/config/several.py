"""A pipeline file with several sinks (`sinks`): for each of them, the pipeline that it stands for.

Such a pipeline has a state of its own, below that of the file, and follows the relay log that all share. So
its position, its snapshot and its errors are its own. Commands name it as `FILE#NAME`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.errors import ConfigError

FOLDER = "sinks"
"""The directory below the file's state with those of the sinks."""


def split(path: str | Path) -> tuple[Path, str | None]:
    """The file, and the name of a sink if there is one: `shop.yaml#lake`."""
    path = Path(path)
    if "#" not in path.name or path.exists():
        return path, None
    name, _, sink = path.name.rpartition("#")
    return path.with_name(name), sink


def names(document: Mapping[str, Any]) -> list[str]:
    """The names of the sinks. Empty: the file has one sink, or none."""
    found = document.get("sinks")
    sections = found if isinstance(found, list) else []
    return [str(one.get("name") or one.get("type")) for one in sections if isinstance(one, dict)]


def member(document: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    """The document of the pipeline for one sink."""
    known = names(document)
    if name not in known:
        listed = f"it has {', '.join(known)}" if known else "it has one sink, which needs no name"
        raise ConfigError(
            f"{where} has no sink {name!r} among `sinks`: {listed}.",
            hint=f"Write {where}#{known[0]}, for example." if known else f"Write {where}.",
        )
    relay_log = document.get("relay_log") or {}
    state = str(document.get("state"))
    shared = {"path": f"{state}/relay", **relay_log} if isinstance(relay_log, dict) else relay_log
    return {
        **{key: value for key, value in document.items() if key != "sinks"},
        "name": f"{document.get('name')}-{name}",
        "sink": document["sinks"][known.index(name)],
        "state": f"{state}/{FOLDER}/{name}",
        "relay_log": shared,
    }


def refuse_several(where: str, document: Mapping[str, Any]) -> None:
    """Raises `ConfigError` for a command that is about one sink."""
    known = names(document)
    if known:
        raise ConfigError(
            f"{where} has several sinks: {', '.join(known)}.",
            hint=f"Say which one is meant: {where}#{known[0]}.",
        )
