"""One log, received from a real server by a real receiver; nobody may write into it."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.relaylog.walking import LogWalk, source_ends
from tests.sources.mysql.receiving import Receiving, receiving

from penstock.config import RelayLogConfig
from penstock.model.offset import LogRange, Offset, Split
from penstock.model.schema import TableId, TableSchema
from penstock.relaylog.reader import RelayLog
from penstock.sources.mysql.catalog import read_table
from penstock.sources.mysql.identifiers import quoted
from penstock.testing.servers import MySqlServer

SPAN_SIZE = 6_000
SEGMENT_SIZE = 60_000
DAY_S = 86_400.0
AT_ONCE = RelayLogConfig(keep_age=1, disk_free_min=0, span_size=SPAN_SIZE)
"""Nothing is kept that no consumer needs."""
TABLES = [TableId("shop", name) for name in ("a", "b", "c", "notes")]


@dataclass(frozen=True)
class Planned:
    """What was answered while the range's segment was open and its index fine."""

    range: LogRange
    table: TableId
    splits: list[Split]
    tables: dict[TableId, tuple[int, int]]


@dataclass
class Received:
    folder: Path
    server_uuid: str
    schemas: dict[TableId, TableSchema]
    source_ends: dict[int, tuple[int, int]]
    rows_inserted: dict[TableId, int]
    planned: list[Planned] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log = RelayLog.open(self.folder)
        self.walk = LogWalk(self.folder, self.log.end)


class Workload:
    """Small and large transactions, DDL, statement-format DML and new binlog files, by a committed seed."""

    def __init__(self, server: MySqlServer, seed: int) -> None:
        self.random = random.Random(seed)
        self.server = server
        self.rows = dict.fromkeys(TABLES, 0)
        self.altered = 0

    def prepare(self) -> None:
        columns = "(id INT PRIMARY KEY AUTO_INCREMENT, pad VARCHAR(120) NOT NULL)"
        self.server.execute(
            "CREATE DATABASE shop", *(f"CREATE TABLE {quoted(table)} {columns}" for table in TABLES)
        )

    def small(self, count: int) -> None:
        with self.server.connect() as connection, connection.cursor() as cursor:
            for _ in range(count):
                cursor.execute("BEGIN")
                for table in self.random.sample(TABLES[:3], self.random.randint(1, 2)):
                    for _ in range(self.random.randint(1, 4)):
                        self._insert(cursor, table, 1)
                cursor.execute("COMMIT")

    def large(self) -> None:
        """Several statements over several tables, each of many row events: far more than one span."""
        with self.server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("BEGIN")
            for table in [*TABLES[:3], *self.random.sample(TABLES[:3], 2)]:
                self._insert(cursor, table, self.random.randint(40, 120))
            cursor.execute("UPDATE shop.b SET pad = CONCAT('u', pad) WHERE id % 7 = 0")
            cursor.execute("COMMIT")

    def statements(self) -> None:
        self.altered += 1
        self.server.execute(
            f"CREATE TABLE shop.other{self.altered} (id INT)",
            "SET SESSION binlog_format = STATEMENT",
            "INSERT INTO shop.notes (pad) VALUES ('one')",
        )

    def _insert(self, cursor: Any, table: TableId, rows: int) -> None:
        values = ", ".join(f"('{'x' * self.random.randint(0, 100)}')" for _ in range(rows))
        cursor.execute(f"INSERT INTO {quoted(table)} (pad) VALUES {values}")
        self.rows[table] += rows

    def some_of_all(self) -> None:
        self.small(60)
        self.large()
        self.statements()
        self.small(25)
        self.server.execute("FLUSH LOGS")
        self.small(25)


def _ends(log: RelayLog) -> list[Offset]:
    """The last 60 places where a range can end, as the reader gives them."""
    at, ends = log.start, [log.start]
    while (following := log.cut(at, 1)) != at:
        ends.append(at := following)
    return ends[-60:]


def _plan_while_open(receiver: Receiving, workload: Workload, chance: random.Random) -> Iterator[Planned]:
    for _ in range(9):
        workload.small(8)
        if chance.random() < 0.2:
            workload.large()
        receiver.wait_until_level()
        log = receiver.log
        ends = _ends(log)
        for _ in range(6):
            start, end = sorted(chance.choices(ends, k=2))
            table = chance.choice(TABLES[:3])
            reach = LogRange(start, end)
            splits = log.splits(reach, table, bytes_aim=chance.choice([500, 3_000, 20_000]))
            yield Planned(reach, table, splits, log.tables(reach))


@pytest.fixture(scope="session")
def received(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Received]:
    folder = tmp_path_factory.mktemp("received")
    with MySqlServer({"binlog_row_event_max_size": 1024}) as server:
        workload = Workload(server, seed=20260)
        workload.prepare()
        workload.some_of_all()  # received in bulk
        with receiving(server, folder, segment_size=SEGMENT_SIZE, span_size=SPAN_SIZE) as receiver:
            receiver.wait_until_level()
            planned = list(_plan_while_open(receiver, workload, random.Random(4)))
            workload.some_of_all()
            receiver.wait_until_level()
            receiver.stop()
        with server.connect() as connection:
            schemas = {table: read_table(connection, table) for table in TABLES}
        yield Received(
            folder=receiver.log_path,
            server_uuid=str(server.variable("server_uuid")),
            schemas={table: schema for table, schema in schemas.items() if schema is not None},
            source_ends=source_ends(server.binlog_files()),
            rows_inserted=workload.rows,
            planned=planned,
        )


@pytest.fixture
def folder(received: Received, tmp_path: Path) -> Path:
    """A copy of the log, written a day ago."""
    copy = tmp_path / "relay"
    shutil.copytree(received.folder, copy)
    shutil.rmtree(copy / "consumers", ignore_errors=True)
    for path in copy.iterdir():
        os.utime(path, (time.time() - DAY_S,) * 2)
    return copy
