"""The mark `moved.json` in a state directory: no pipeline may run there (`runtime/move.py`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from penstock.disk.replace import replace_file, sync
from penstock.errors import ConfigError

MARK = "moved.json"


def read_mark(state: Path) -> dict[str, str] | None:
    """The facts of the mark: `from`, `host`, and `to` unless the copy is not complete. None: there is no
    mark."""
    try:
        found = json.loads((state / MARK).read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        found = {}
    return found if isinstance(found, dict) else {}


def put_mark(state: Path, facts: Mapping[str, str]) -> None:
    """Durable on return."""
    replace_file(state / MARK, json.dumps(facts).encode(), durable=True)


def remove_mark(state: Path) -> None:
    (state / MARK).unlink(missing_ok=True)
    sync(state)


def refuse_moved(state: Path) -> None:
    """Raises `ConfigError` if the pipeline of this state directory was moved away, or was not copied to its
    end."""
    mark = read_mark(state)
    if mark is None:
        return
    if "to" not in mark:
        raise ConfigError(
            f"{state} is a copy that is not complete: `penstock move` was interrupted.",
            hint=f"Repeat it on {mark.get('host')}, where the pipeline still is ({mark.get('from')}).",
            path=str(state),
        )
    raise ConfigError(
        f"This pipeline was moved from {state} to {mark['to']}.",
        hint="Start it there, and name that path as `state` in the pipeline file. Two copies of a state must "
        f"never run. Only if the copy is lost and has never run, remove {state / MARK}.",
        path=str(state),
        moved_to=mark["to"],
    )
