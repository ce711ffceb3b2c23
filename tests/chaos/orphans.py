"""Files that nobody owns: what a pipeline that has ended well may leave, and what it may not.

Written from what the documents say of each directory, and from the formats themselves; nothing of the
pipeline is asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SEGMENT = re.compile(r"^(\d{20}-\d{6})\.(binlog|pgoutput|index)$")
_RELAY = {"relay.json", "lease", "receiver.json", "receiver.log", "consumers", "prepared", "tables.json"}
_STATE = {"state.sqlite", "state.sqlite-wal", "state.sqlite-shm", "lock", "spark.lock", "logs", "tmp",
          "spark", "spark-warehouse", "chunks", "cascades", "relay", "compact", "warehouse", "secrets",
          "ended.json", "index", "staging"}  # fmt: skip
_STORE_LOCK = (".penstock", "lock")
_STORE_DRAFTS = (".penstock", "drafts")
"""Of a directory that serves as a store."""


def in_relay(folder: Path) -> list[str]:
    """After the receiver has ended."""
    found: list[str] = []
    pairs: dict[str, set[str]] = {}
    for path in folder.iterdir():
        if match := _SEGMENT.match(path.name):
            pairs.setdefault(match[1], set()).add(match[2])
        elif path.name not in _RELAY:
            found.append(f"relay log: {path.name}")
    found += [f"relay log: {name} has only {kinds}" for name, kinds in pairs.items() if len(kinds) < 2]
    found += [f"relay log: prepared/{path.name}" for path in (folder / "prepared").glob("*")]
    names = {path.name for path in (folder / "consumers").glob("*")}
    consumers = {name for name in names if name.endswith(".json")}
    owned = consumers | {name.removesuffix(".json") + ".lock" for name in consumers} | {"lock"}
    return found + [f"relay log: consumers/{name}" for name in sorted(names - owned)]


def in_state(folder: Path, *, by_force: bool = False, was_cut: bool = False) -> list[str]:
    """After the pipeline has ended, with all snapshots done. `by_force`: its last report stays. `was_cut`: so
    may drafts of writers that were killed, or whose disk failed: they are removed a day later."""
    known = _STATE | {"status.json"} if by_force else _STATE
    found = [f"state: {path.name}" for path in folder.iterdir() if path.name not in known]
    for name in ("chunks", "cascades", "tmp", "secrets", "staging"):
        found += [
            f"state: {path.relative_to(folder)}"
            for path in (folder / name).rglob("*")
            if path.is_file()
            and path.relative_to(folder).parts[1:] != _STORE_LOCK
            and not (was_cut and path.relative_to(folder).parts[1:3] == _STORE_DRAFTS)
        ]
    return found


def in_lake(spark: SparkSession, sink: str, namespace: Path) -> list[str]:
    """Of all tables of a namespace."""
    found: list[str] = []
    for table in sorted(namespace.iterdir()) if namespace.exists() else []:
        if not table.is_dir():
            found.append(f"{namespace.name}: {table.name}")
        elif sink == "iceberg":
            found += _in_iceberg(spark, table)
        elif sink == "delta":
            found += _in_delta(table)
        else:
            found += _in_change_log(table)
    return found


def _files(table: Path) -> Iterator[str]:
    for path in table.rglob("*"):
        if path.is_file() and not path.name.startswith("."):
            yield str(path)


def _in_iceberg(spark: SparkSession, table: Path) -> list[str]:
    """What no snapshot names and no list of expired files."""
    metadata = table / "metadata"
    version = int((metadata / "version-hint.text").read_text())
    owned = {str(metadata / "version-hint.text"), str(metadata / f"v{version}.metadata.json")}
    document = json.loads((metadata / f"v{version}.metadata.json").read_text())
    owned |= {entry["metadata-file"] for entry in document.get("metadata-log", [])}
    owned |= {snapshot["manifest-list"] for snapshot in document.get("snapshots", [])}
    owned |= {one["statistics-path"] for one in document.get("statistics", [])}
    for name, column in (("all_manifests", "path"), ("all_files", "file_path")):
        rows = spark.read.format("iceberg").load(f"{table}#{name}").select(column).distinct().collect()
        owned |= {row[0] for row in rows}
    for listing in (table / "expired").glob("*.json"):
        owned |= {str(listing), *json.loads(listing.read_text())}
    plain = {name.removeprefix("file://").removeprefix("file:") for name in owned}
    return [f"lake: {Path(path).relative_to(table.parent)}" for path in _files(table) if path not in plain]


def _in_delta(table: Path) -> list[str]:
    """Data files that no entry of the log has ever named."""
    owned: set[str] = set()
    for entry in (table / "_delta_log").glob("*.json"):
        for line in entry.read_text().splitlines():
            action = json.loads(line)
            for kind in ("add", "remove", "cdc"):
                if kind in action:
                    owned.add(action[kind]["path"])
    return [
        f"lake: {path.relative_to(table.parent)}"
        for path in table.rglob("*.parquet")
        if "_delta_log" not in path.parts and str(path.relative_to(table)) not in owned
    ]


def _in_change_log(table: Path) -> list[str]:
    found = []
    for path in table.iterdir():
        if path.name.startswith("penstock_commit=") or (path.is_file() and not path.name.endswith(".tmp")):
            continue
        found += [
            f"lake: {one.relative_to(table.parent)}" for one in [path, *path.rglob("*")] if one.is_file()
        ]
    return found
