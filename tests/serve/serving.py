"""A subscription server under test, in a process of its own, and entries as Protobuf's own library reads
them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from tests.serve.entry import CanalEntry

from penstock.testing.canal.server import RunningServer
from penstock.testing.servers import DatabaseServer
from penstock.testing.servers.postgresql import PostgreSqlServer

LONG_MS = 25_000
"""How long to ask for a batch of exactly the entries that come: it is given as soon as it is full, on a slow
machine later. It is less than a client waits for an answer."""


class Serving(RunningServer):
    """A server's file in `folder`, and any number of processes for it, one after the other."""

    def __init__(self, server: DatabaseServer | PostgreSqlServer, folder: Path, **options: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        document = {
            "listen": {"canal": "127.0.0.1:0"},
            "source": {
                "host": server.host, "port": server.port, "user": server.user, "password": server.password,
                "heartbeat": "1s",
            },
            "relay_log": {"path": str(folder / "relay"), "disk_free_min": 0},
            "positions": {"type": "file", "path": str(folder / "positions")},
            "destinations": {"example": {"filter": r"shop\..*", "start": "earliest"}},
            **options,
        }  # fmt: skip
        self.folder = folder
        file = folder / "server.yaml"
        file.write_text(yaml.safe_dump({name: one for name, one in document.items() if one is not None}))
        super().__init__(file, folder / "stderr")


@contextlib.contextmanager
def serving(server: DatabaseServer | PostgreSqlServer, folder: Path, **options: Any) -> Iterator[Serving]:
    made = Serving(server, folder, **options)
    made.start()
    try:
        yield made
    finally:
        made.kill()


def eventually(condition: Any, what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"no {what} in time"
        time.sleep(0.02)


def rows_of(entries: Sequence[bytes]) -> list[tuple[Any, ...]]:
    """(event, table, values before, values after) of each row; (event, table, sql) of a statement."""
    found: list[tuple[Any, ...]] = []
    for data in entries:
        entry = CanalEntry.Entry.FromString(data)
        if entry.entryType != 2:
            continue
        change = CanalEntry.RowChange.FromString(entry.storeValue)
        name = f"{entry.header.schemaName}.{entry.header.tableName}"
        if change.sql:
            found.append((change.eventType, name, change.sql))
        for row in change.rowDatas:
            before, after = (
                {one.name: None if one.isNull else one.value for one in columns}
                for columns in (row.beforeColumns, row.afterColumns)
            )
            found.append((change.eventType, name, before, after))
    return found


def kinds_of(entries: Sequence[bytes]) -> str:
    """B, R and E for each begin of a transaction, row change and end."""
    return "".join("?BRE"[CanalEntry.Entry.FromString(one).entryType] for one in entries)
