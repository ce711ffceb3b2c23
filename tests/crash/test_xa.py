"""XA transactions and crashes of the receiver at any point: nothing lost, nothing doubled, in order.

A real server's binlog is recorded once. Sessions then receive it as the receiver does, each cut short at a
random point by a committed seed: bytes not made durable are torn off segments and spool files, the last index
line loses its newline, a spool file that was to be removed is still there. The judge is the recorded binlog.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.relaylog import xa
from tests.sources.mysql.receiving import log_events

from penstock._core import Framer, GtidSet
from penstock.config import RelayLogConfig
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment import list_segments
from penstock.relaylog.writer import RelayLogWriter
from penstock.sources.mysql import start_position
from penstock.testing.servers import MySqlServer

SPAN_SIZE = 4000
SEEDS = [pytest.param(seed, marks=[pytest.mark.slow] if seed >= 10 else []) for seed in range(60)]


@dataclass
class Recorded:
    uuid: str
    files: list[list[bytes]]
    executed: GtidSet

    def stream(self, wanted: GtidSet) -> Iterator[bytes]:
        """What a server sends for COM_BINLOG_DUMP_GTID."""
        for number, events in enumerate(self.files):
            name = f"binlog.{number + 1:06d}".encode()
            yield _artificial_rotate(name)
            wants = True
            for event in events:
                if event[4] == xa.GTID:
                    wants = f"{self.uuid}:{int.from_bytes(event[36:44], 'little')}" not in wanted
                if event[4] == 15:  # a file in use says so in its header; its checksum does not cover that
                    yield event[:17] + b"\0\0" + event[19:]
                elif wants or event[4] == 35:
                    yield event
                if event[4] in (15, 35):
                    wants = True


def _artificial_rotate(name: bytes) -> bytes:
    event = struct.pack("<IBIIIH", 0, 4, 1, 19 + 8 + len(name) + 4, 0, 0x20) + struct.pack("<Q", 4) + name
    return event + struct.pack("<I", zlib.crc32(event))


@pytest.fixture(scope="module")
def recorded() -> Iterator[Recorded]:
    with MySqlServer() as server:
        xa.Workload.prepare(server)
        load = xa.Workload(server, seed=5, row_bytes_max=1500)
        load.run(100)
        load.end_all()
        files = [list(xa.whole_file(path)) for path in server.binlog_files()]
        yield Recorded(str(server.variable("server_uuid")), files, GtidSet(server.gtid_executed()))


class Session:
    """One life of a receiver, without the network."""

    def __init__(self, folder: Path, recorded: Recorded, chance: random.Random) -> None:
        self.chance = chance
        (folder / "relay.json").write_text('{"format": 1, "uuid": "u", "created": 0, "mode": "gtid"}')
        self.writer = RelayLogWriter(folder, RelayLogConfig(disk_free_min=0, span_size=SPAN_SIZE))
        held = start_position.received_log(RelayLog.open(folder) if list_segments(folder) else None)
        executed = held.gtids if held else GtidSet()
        expected, wanted = None, executed
        if held and held.last and held.digest and held.last.id:
            wanted = executed.difference(GtidSet(held.last.id))
            expected = (held.last.id, *held.digest)
        self.framer = Framer(
            offset=self.writer.end,
            segment_size=30_000,
            span_size=SPAN_SIZE,
            server_uuid=recorded.uuid,
            executed=str(executed),
            file=held.position.file if held else "",
            position=held.position.position if held else 0,
            expected=expected,
            prepared=[(one.xid, one.file, one.start, one.length) for one in held.prepared] if held else [],
            spool=str(self.writer.spool.folder),
            spool_number=self.writer.spool.next_number,
            generation=self.writer.lease.generation,
        )
        self.data = xa.packets(recorded.stream(wanted))

    def commit(self) -> None:
        self.writer.flush(self.framer.cut(), spools=self.framer.spool_files)
        self.writer.wait()

    def _durable(self) -> dict[Path, int]:
        """What the index speaks of: of the last segment, and of each spool file."""
        folder = self.writer.folder
        if not list_segments(folder):
            return {}
        log = RelayLog.open(folder)
        if not log.end:
            return {}
        path, base = log.segment_of(log.end)
        found = {Path(str(path)): log.end - base}
        for one in log.prepared:
            spool = self.writer.spool.folder / one.file
            found[spool] = max(found.get(spool, 0), one.start + one.length)
        return found

    def spools(self) -> list[Path]:
        return list(self.writer.spool.folder.glob("*.xa"))

    def receive(self, upto: int) -> None:
        at = 0
        while at < upto:
            size = min(self.chance.choice([40, 700, 5000, 50_000]), upto - at)
            pieces = self.framer.feed(self.data[at : at + size])
            at += size
            self.writer.put(pieces)
            while self.framer.more:
                self.writer.put(self.framer.feed(b""))
            assert not self.framer.diverged
            if self.chance.random() < 0.3:
                self.commit()

    def crash(self) -> None:
        """What was not made durable is there in part or not at all; what was to be removed may be there."""
        chance, folder = self.chance, self.writer.folder
        kept = {path: path.read_bytes() for path in self.spools() if chance.random() < 0.5}
        if chance.random() < 0.5:
            self.writer.flush(self.framer.cut(), spools=self.framer.spool_files)
            self.writer.wait()
            if chance.random() < 0.5:
                index = folder / list_segments(folder)[-1].index
                index.write_bytes(index.read_bytes()[:-1])
        else:
            self.writer.wait()
            for path, durable in self._durable().items():
                if durable and (size := path.stat().st_size) > durable:
                    with path.open("r+b") as file:
                        file.truncate(chance.randint(durable, size))
        self.writer.close()
        for path, data in kept.items():
            if not path.exists():
                path.write_bytes(data)


@pytest.mark.parametrize("seed", SEEDS)
def test_cut_short_anywhere_the_log_ends_up_with_every_effect_once_and_in_order(
    recorded: Recorded, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    for _ in range(chance.randint(3, 12)):
        session = Session(tmp_path, recorded, chance)
        session.receive(chance.randrange(len(session.data) // chance.choice([1, 3]) + 1))
        session.crash()
    session = Session(tmp_path, recorded, chance)
    session.receive(len(session.data))
    session.commit()
    session.writer.close()
    log = RelayLog.open(tmp_path)
    assert xa.effects(log_events(tmp_path)) == xa.effects(
        event for events in recorded.files for event in events
    )
    assert log.executed_at(log.end) == recorded.executed
    assert log.prepared == []
    RelayLogWriter(tmp_path, RelayLogConfig(disk_free_min=0)).close()
    assert list((tmp_path / "prepared").glob("*.xa")) == []


def test_the_index_names_the_transactions_that_are_prepared_at_its_end(
    recorded: Recorded, tmp_path: Path
) -> None:
    chance = random.Random(1)
    session = Session(tmp_path, recorded, chance)
    session.receive(len(session.data) // 2)
    session.commit()
    log = RelayLog.open(tmp_path)
    done = log.executed_at(log.end)
    open_xids = {
        xid
        for gtid, xid, ended in _prepared(event for events in recorded.files for event in events)
        if f"{recorded.uuid}:{gtid}" in done and (ended is None or f"{recorded.uuid}:{ended}" not in done)
    }
    assert {one.xid for one in log.prepared} == open_xids
    session.writer.close()


def _prepared(events: Iterator[bytes]) -> list[tuple[int, str, int | None]]:
    """GTID number of each prepare, its xid, and the number of what ended it."""
    found: list[tuple[int, str, int | None]] = []
    gtid, start = 0, ""
    for event in events:
        kind, body = event[4], event[19:-4]
        if kind == xa.GTID:
            gtid = int.from_bytes(body[17:25], "little")
        elif kind == xa.QUERY:
            sql = body[13 + int.from_bytes(body[11:13], "little") + body[8] + 1 :].decode()
            if sql.startswith("XA START"):
                start = sql.split(" ", 2)[2]
            elif sql.startswith(("XA COMMIT", "XA ROLLBACK")):
                xid = sql.split(" ", 2)[2]
                at = next(i for i in reversed(range(len(found))) if found[i][1] == xid)
                found[at] = (found[at][0], xid, gtid)
        elif kind == xa.XA_PREPARE and body[0] == 0:
            found.append((gtid, start, None))
    return found
