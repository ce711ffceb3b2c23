"""Chunk readers of the placement model: low mark, view, high mark, each when the dice say."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.models.placement_source import Replica, Row, Source, gtid_set
from tests.models.placement_values import CUTS, Reading, Table

from penstock.model.chunk import Chunk, StagedChunk, Watermarks
from penstock.model.schema import TableId
from penstock.sources.mysql.binlog_position import BinlogPosition
from penstock.sources.mysql.snapshot.window import MySqlWindow

if TYPE_CHECKING:
    from tests.models.placement_parts import Parts, PartSnapshot


def prefix(numbers: frozenset[int]) -> int:
    """How far they have no gap."""
    end = 0
    while end + 1 in numbers:
        end += 1
    return end


class Readers:
    """The part of the world that reads chunks. `rows_of` are the rows of attempts, `lows` the sets that low
    marks are texts of."""

    dice: random.Random
    broken: str
    source: Source
    replica: Replica | None
    parts: Parts | None
    by_place: bool
    planned_end: int
    tables: dict[str, Table]
    readings: list[Reading]
    rows_of: dict[str, dict[int, Row]]
    lows: dict[str, frozenset[int]]

    def begin_read(self) -> None:
        waiting = [
            Chunk(TableId("d", table.name), number, None, None)
            for table in self.tables.values()
            if not table.left
            for number, state in table.chunks.items()
            if self.dice.random() < {"planned": 1.0, "staged": 0.1, "placed": 0.05}[state]
        ]
        if self.parts is not None:
            waiting += self.parts.to_read()
        if not waiting or len(self.readings) > 3:
            return
        chunk = self.dice.choice(waiting)
        server = "stranger" if self.dice.random() < 0.07 else "source"
        if self.replica is not None and self.replica.dice.random() < 0.7:
            server = "replica"
        version = self.source.version(chunk.table.table, self.planned_end)
        self.readings.append(Reading(chunk, version, server))

    def lose_reading(self) -> None:
        if self.readings and self.dice.random() < 0.5:
            self.readings.remove(self.dice.choice(self.readings))

    def read_on(self) -> None:
        if not self.readings:
            return
        reading = self.dice.choice(self.readings)
        if not reading.low and reading.rows is None:
            self._take_low(reading)
        elif reading.rows is None:
            self._take_view(reading)
        else:
            self._stage(reading)

    def _take_low(self, reading: Reading) -> None:
        if reading.server == "replica":
            self._take_low_at_replica(reading)
            return
        if reading.server == "stranger":
            executed = self.source.at_least(2)
            executed = executed[: self.dice.randint(0, len(executed))]
        else:
            weak = self.broken == "low_from_position" or (
                self.broken == "part_low_position" and reading.chunk.snapshot
            )
            executed = self.source.at_least(0 if weak else 2)
        start = self._start_of(reading.chunk)
        if self.broken != "require_gtids" and not set(range(1, start + 1)) <= set(executed):
            return
        reading.low = frozenset(executed) | {0}

    def _take_low_at_replica(self, reading: Reading) -> None:
        assert self.replica is not None
        executed = set(self.replica.executed)
        if self.broken == "replica_low_from_received":
            executed |= self.replica.received
        name = reading.chunk.table.table
        required = set(range(1, self._start_of(reading.chunk) + 1))
        if self.broken == "replica_start_in_low":
            required = set()
        if self.broken != "replica_definition_in_low":
            required |= set(self._alters(name)[: reading.version - 1])
        if required <= executed:
            reading.low = frozenset(executed) | {0}

    def _start_of(self, chunk: Chunk) -> int:
        """What must be visible to the chunk."""
        table = self.tables[chunk.table.table]
        if self.parts is None or not chunk.snapshot:
            return table.start
        return self.parts.visible_to(table, chunk.snapshot)

    def _alters(self, name: str) -> list[int]:
        return [n for n, item in enumerate(self.source.log, 1) if item.table == name and item.ddl == "alter"]

    def _take_view(self, reading: Reading) -> None:
        name, number = reading.chunk.table.table, reading.chunk.number
        version = reading.version
        if reading.server == "replica":
            assert self.replica is not None
            seen = sorted(self.replica.visible)
            # Read under the definition the chunk was planned with, where columns are still others.
            version = min(version, 1 + sum(n in self.replica.visible for n in self._alters(name)))
        elif self.source.in_ddl(name):
            return
        else:
            seen = self.source.at_least(1)
        if reading.server == "stranger":
            seen = sorted(reading.low - {0})
        rows = {key: (row[0], version) for key, row in self.source.state(name, seen).items()}
        if self.parts is not None and reading.chunk.snapshot:
            reading.rows = self.parts.read(reading.chunk, rows)
            return
        lower, upper = CUTS[number], CUTS[number + 1]
        reading.rows = {
            key: row
            for key, row in rows.items()
            if (lower is None or key >= lower) and (upper is None or key < upper)
        }

    def _stage(self, reading: Reading) -> None:
        self.readings.remove(reading)
        snapshot = self.snapshot_of(reading.chunk)
        if snapshot is None:
            return  # it has ended
        number = reading.chunk.number
        first = snapshot.chunks[number] == "planned" and number not in snapshot.staged
        if not first and self.broken != "first_attempt_wins":
            return
        high = len(self.source.log)
        if self.broken == "high_from_executed":
            high = max(self.source.at_least(2), default=0)
        if reading.server == "stranger":
            high = self.dice.randint(0, high)
        low = sorted(reading.low - {0})
        attempt = str(len(self.rows_of))
        text = gtid_set(low)
        staged = StagedChunk(
            reading.chunk, attempt, "", 0, 0, "", reading.version,
            self._marks(text, high, reading), "source" if reading.server == "replica" else reading.server,
        )  # fmt: skip
        assert reading.rows is not None
        self.lows[text] = frozenset(low)
        self.rows_of[attempt] = reading.rows
        snapshot.staged[number] = staged
        if first:
            snapshot.chunks[number] = "staged"

    def snapshot_of(self, chunk: Chunk) -> Table | PartSnapshot | None:
        """What the chunk belongs to; None: a partial snapshot that has ended."""
        if self.parts is None or not chunk.snapshot:
            return self.tables[chunk.table.table]
        return self.parts.open.get(chunk.snapshot)

    def _marks(self, gtids: str, high: int, reading: Reading) -> Watermarks:
        position = BinlogPosition("binlog.1", high)
        if reading.server == "replica":
            assert self.replica is not None
            seen = self.replica.received | self.replica.executed
            if self.broken == "replica_high_from_executed":
                seen = self.replica.executed
            if self.broken == "replica_high_from_received":
                seen = self.replica.received
            return MySqlWindow(gtids, BinlogPosition("", 0), high_gtids=gtid_set(sorted(seen))).watermarks
        if not self.by_place:
            return MySqlWindow(gtids, position).watermarks
        return MySqlWindow("", position, BinlogPosition("binlog.1", prefix(reading.low))).watermarks
