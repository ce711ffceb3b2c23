"""XA transactions on a real server, and the judge of what a relay log makes of them: the source's binlog,
walked by the format's definition without our code."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.testing.servers import MySqlClient

QUERY, XID, TABLE_MAP, GTID, ANONYMOUS, XA_PREPARE = 2, 16, 19, 33, 34, 38
ROWS = frozenset({23, 24, 25, 30, 31, 32})


@dataclass
class Transaction:
    """What takes effect at one place of a log."""

    gtid: int
    rows: list[bytes] = field(default_factory=list)
    """Bodies of table maps and row events."""
    sql: list[str] = field(default_factory=list)


def transactions(events: Iterable[bytes]) -> Iterator[Transaction]:
    """Transactions in the order in which they take effect: prepared rows at their XA COMMIT."""
    prepared: dict[str, list[bytes]] = {}
    now = Transaction(0)
    for event in events:
        kind, body = event[4], event[19:-4]
        ends = False
        if kind in (GTID, ANONYMOUS):
            now = Transaction(int.from_bytes(body[17:25], "little"))
        elif kind == TABLE_MAP or kind in ROWS:
            now.rows.append(body)
        elif kind == XA_PREPARE:
            ends = True
            if body[0] == 0:
                prepared[_xid(now.sql[0])] = now.rows
                now = Transaction(now.gtid)
        elif kind == XID:
            ends = True
        elif kind == QUERY:
            sql = body[13 + int.from_bytes(body[11:13], "little") + body[8] + 1 :].decode()
            now.sql.append(sql)
            begun = now.sql[0] == "BEGIN" or now.sql[0].startswith("XA START")
            ends = sql.startswith(("COMMIT", "XA COMMIT", "XA ROLLBACK")) or not begun
            if sql.startswith(("XA COMMIT", "XA ROLLBACK")):
                rows = prepared.pop(_xid(sql), [])
                now.rows = rows if sql.startswith("XA COMMIT") else []
        if ends:
            yield now


def _xid(sql: str) -> str:
    return sql.split(" ", 2)[2]


def effects(events: Iterable[bytes]) -> list[tuple[int, list[bytes]]]:
    """GTID number and rows of everything that changed rows, in order."""
    return [(one.gtid, one.rows) for one in transactions(events) if one.rows]


class Workload:
    """Transactions of all kinds interleaved, by a committed seed. Rows of `d.t`; one id range a branch."""

    def __init__(self, server: MySqlClient, seed: int, *, row_bytes_max: int = 200) -> None:
        self.server = server
        self.random = random.Random(seed)
        self.row_bytes_max = row_bytes_max
        self.branches: list[tuple[str, Any]] = []
        self.next_id = 0
        self.serial = 0

    @staticmethod
    def prepare(server: MySqlClient) -> None:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, pad VARBINARY(60000))")

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        chance = self.random.random()
        if chance < 0.3:
            with self.server.connect() as connection, connection.cursor() as cursor:
                cursor.execute("BEGIN")
                self._change(cursor)
                cursor.execute("COMMIT")
        elif chance < 0.4:
            self._one_phase()
        elif chance < 0.75 or not self.branches:
            self._prepare()
        elif chance < 0.97:
            self.end_one()
        else:
            self.server.execute("FLUSH BINARY LOGS")

    def end_one(self) -> None:
        xid, connection = self.branches.pop(self.random.randrange(len(self.branches)))
        with connection, connection.cursor() as cursor:
            cursor.execute(f"XA {self.random.choice(['COMMIT', 'COMMIT', 'ROLLBACK'])} {xid}")

    def end_all(self) -> None:
        while self.branches:
            self.end_one()

    def _xid(self) -> str:
        """Names with bytes of all kinds; some are used again once they are free."""
        self.serial += 1
        taken = {xid.rpartition(",")[0] for xid, _ in self.branches}  # the format does not tell two apart
        name = f"X'{self.random.randrange(3):02x}27005c',X'2a2f'"
        again = f"{name},{self.random.choice([1, 7, 2147483647])}"
        return again if name not in taken else f"X'{self.serial:08x}',X'',1"

    def _prepare(self) -> None:
        xid, connection = self._xid(), self.server.connect()
        with connection.cursor() as cursor:
            self._branch(cursor, xid)
            cursor.execute(f"XA PREPARE {xid}")
        self.branches.append((xid, connection))

    def _one_phase(self) -> None:
        xid = self._xid()
        with self.server.connect() as connection, connection.cursor() as cursor:
            self._branch(cursor, xid)
            cursor.execute(f"XA COMMIT {xid} ONE PHASE")

    def _branch(self, cursor: Any, xid: str) -> None:
        cursor.execute(f"XA START {xid}")
        self._change(cursor)
        cursor.execute(f"XA END {xid}")

    def _change(self, cursor: Any) -> None:
        first = self.next_id
        for _ in range(self.random.randint(1, 5)):
            self.next_id += 1
            size = self.random.randint(0, self.row_bytes_max)
            cursor.execute(f"INSERT INTO d.t VALUES ({self.next_id}, REPEAT('x', {size}))")
        if self.random.random() < 0.4:
            cursor.execute(f"UPDATE d.t SET pad = CONCAT('u', LEFT(pad, 100)) WHERE id = {first + 1}")
        if self.random.random() < 0.2:
            cursor.execute(f"DELETE FROM d.t WHERE id = {first + 1}")


def packets(events: Iterable[bytes]) -> bytes:
    """Events as a replication connection carries them (none of them needs two packets)."""
    found = bytearray()
    for number, event in enumerate(events):
        found += struct.pack("<I", len(event) + 1)[:3] + bytes([number % 256, 0]) + event
    return bytes(found)


def whole_file(path: Path) -> Iterator[bytes]:
    data = path.read_bytes()
    at = 4
    while at < len(data):
        length = struct.unpack_from("<I", data, at + 9)[0]
        yield data[at : at + length]
        at += length
