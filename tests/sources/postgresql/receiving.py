"""A receiver of a real PostgreSQL, without a pipeline behind it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import yaml
from tests.sources.postgresql.pg_log import table_of

from penstock import config as configuration
from penstock._core import RangeDecoder
from penstock.config import PipelineConfig
from penstock.model.offset import LogRange
from penstock.model.schema import TableId
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment_bytes import opened
from penstock.relaylog.status import read_status
from penstock.sources.postgresql.log_position import lsn_of
from penstock.testing.servers.postgresql import PostgreSqlServer

WAIT_S = 120.0


class Receiving:
    """The receiver of a pipeline `name`, whose publication is `penstock_NAME`."""

    def __init__(self, server: PostgreSqlServer, folder: Path, name: str, **source: Any) -> None:
        self.file, self.folder = folder / f"{name}.yaml", folder
        document = {
            "name": name,
            "source": {
                "type": "postgresql", "host": server.host, "port": server.port, "database": server.database,
                "user": server.user, "password": server.password, **source,
            },
            "tables": ["*.*"],
            "sink": {"type": "console"},
            "state": str(folder / "state"),
        }  # fmt: skip
        self.file.write_text(yaml.safe_dump(document), "utf-8")

    @property
    def config(self) -> PipelineConfig:
        return configuration.load(self.file)

    @contextmanager
    def started(self) -> Iterator[subprocess.Popen[str]]:
        with open(self.folder / "receiver.out", "a") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "penstock", "receive", str(self.file)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, text=True,
            )  # fmt: skip
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)

    def report(self) -> dict[str, Any]:
        return dict(read_status(self.config.relay_log_path))

    def wait(self, condition: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            said = (self.folder / "receiver.out").read_text()[-2000:]
            assert time.monotonic() < deadline, f"{what} did not happen: {self.report()}, {said}"
            time.sleep(0.05)  # polls a condition, with a limit

    def wait_until_streaming(self) -> None:
        self.wait(lambda: self.report().get("state") == "streaming", "streaming")

    def wait_until_received(self, connection: psycopg.Connection[Any]) -> None:
        """Waits until everything committed before the call is in the log."""
        connection.execute("SELECT pg_logical_emit_message(true, 'test', 'x')")
        [(text,)] = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchall()
        goal = lsn_of(text)

        def reached() -> bool:
            if not RelayLog.exists(self.config.relay_log_path) or not (log := self.log()).segments():
                return False
            return bool(log.position_at(log.end).order >= (goal,))

        self.wait(reached, f"the log to reach {text}")

    def log(self) -> RelayLog:
        return RelayLog.open(self.config.relay_log_path)

    def statements(self) -> list[tuple[str, dict[str, Any]]]:
        """Schemas, and what the log says of their tables."""
        log = self.log()
        return [(one.database, json.loads(one.sql)) for one in log.statements(LogRange(log.start, log.end))]

    def statements_of(self, schema: str, table: str) -> list[dict[str, Any]]:
        return [one for of, one in self.statements() if (of, one["table"]) == (schema, table)]


def changes_of(
    receiving: Receiving, connection: psycopg.Connection[Any], table: TableId
) -> list[dict[str, Any]]:
    """The changes of a table in the log."""
    log, schema = receiving.log(), table_of(connection, table).schema
    found: list[dict[str, Any]] = []
    for split in log.splits(LogRange(log.start, log.end), table, bytes_aim=1 << 24):
        part = opened(split)
        decoder = RangeDecoder(
            schema.to_json(), *part.place, preamble=part.preamble, layout="changelog", before_images=True
        )
        found += [row for batch in decoder for row in batch.to_pylist()]
    return found


def receive(receiving: Receiving) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", "receive", str(receiving.file)],
        capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip
