"""A small world for the placement rule: a source, a relay log, chunk readers, a planner and a target, at
random.

Everything that decides is the real code of `penstock.snapshot.place`; everything around it is as bad as
real servers are: a transaction is first in the binary log, later visible, later in `gtid_executed`, the
last two in any order between transactions that don't touch the same rows. Offsets, positions and
transaction numbers are the same integers here: transaction i ends at offset i.

`broken` switches off one condition of the rule. A model that finds nothing wrong then is no good.
"""

from __future__ import annotations

import random
from dataclasses import replace

from penstock._core import GtidSet
from penstock.model.chunk import Chunk, StagedChunk, Watermarks
from penstock.model.offset import LogRange, Offset, SourcePosition
from penstock.model.schema import TableId
from penstock.snapshot import place as rule
from penstock.testing.placement_source import (
    KEYS,
    UUID,
    Replica,
    Row,
    Source,
    Transaction,
    gtid_set,
    parse_gtid_set,
)
from penstock.testing.placement_values import (
    BROKEN_AT_REPLICAS,
    CUTS,
    Plan,
    Reading,
    Table,
    Violation,
)


def _prefix(numbers: frozenset[int]) -> int:
    """How far they have no gap."""
    end = 0
    while end + 1 in numbers:
        end += 1
    return end


class World:
    """One history. `run` plays it to its end; `Violation` says what went wrong."""

    def __init__(self, seed: int, broken: str = "") -> None:
        self.dice = random.Random(seed)
        self.broken = broken
        self.source = Source(self.dice)
        self.received = 0
        self.planned_end = 0
        self.tables: dict[str, Table] = {}
        self.emitted_from: dict[str, int] = {}
        self.plans: list[Plan] = []
        self.readings: list[Reading] = []
        self.rows_of: dict[str, dict[int, Row]] = {}
        self.lows: dict[str, frozenset[int]] = {}
        limits = self.dice.choice(((10**9, 0), (10**9, 10**9), (10**9, 10**9), (4, 3)))
        self.limits = rule.PlacementLimits(window_bytes_max=limits[0], append_bytes_max=limits[1])
        self.coarse = self.dice.choice((0, 0, 1, 3))
        # Marks by place, as where there are no GTIDs. Dice of its own: the other histories stay as they are.
        self.by_place = broken in ("", "low_from_position") and random.Random(~seed).random() < 0.3
        # Chunks of a replica whose source is followed. Dice of their own, for the same reason.
        dice = random.Random(seed * 2 + 1)
        self.replica: Replica | None = None
        if broken in BROKEN_AT_REPLICAS or (not broken and not self.by_place and dice.random() < 0.4):
            self.replica = Replica(dice, self.source)
            self.source.ddl_share = dice.choice((0.06, 0.2))
        if self.replica is not None and self.replica.dice.random() < 0.5:
            self._begin_full(self.replica)
        else:
            self._begin()

    def _begin(self) -> None:
        """Some histories begin with a table that is being added, or one that has been complete for long."""
        how = self.dice.random()
        if how < 0.7:
            self.add_table()
        if how < 0.4:
            for table in self.tables.values():
                table.whole = True
                table.chunks = dict.fromkeys(table.chunks, "placed")

    def _begin_full(self, replica: Replica) -> None:
        """A table that is added has rows already, all of them on the replica."""
        for _ in range(6):
            self.write()
            self.source.advance(everything=True)
        replica.advance(everything=True)
        self.received = self.planned_end = len(self.source.log)
        self.add_table()

    def run(self, steps: int) -> None:
        actions = (
            [self.write] * 5 + [self.source.advance] * 6 + [self.receive] * 3 + [self.plan] * 2
            + [self.execute] * 2 + [self.begin_read] * 3 + [self.read_on] * 7 + [self.lose_reading]
            + [self.add_table] + [self.snapshot_anew]
        )  # fmt: skip
        if self.replica is not None:
            actions += [self.replica.advance] * self.replica.dice.choice((4, 12))
        choose = self.dice.choice
        for _ in range(steps):
            choose(actions)()
        self.drain()

    def write(self) -> None:
        self.source.write(self.dice.choice(("a", "a", "b")))

    def receive(self) -> None:
        self.received = self.dice.randint(self.received, len(self.source.log))

    # Tables and chunks

    def add_table(self) -> None:
        name = self.dice.choice(("a", "b"))
        if name in self.tables:
            return
        start = rule.table_start(last_planned_end=Offset(self.planned_end), log_start=Offset(0))
        if self.broken == "table_start":
            start = Offset(self.plans[-1].range.start if self.plans else max(0, self.planned_end - 3))
        self.tables[name] = Table(name, start, chunks={0: "planned", 1: "planned", 2: "planned"})
        self.emitted_from[name] = start

    def snapshot_anew(self) -> None:
        """A second snapshot of a table whose target has gone wrong behind our back."""
        ready = [table for table in self.tables.values() if table.whole and not self.plans]
        if not ready:
            return
        table = self.dice.choice(ready)
        for key in range(KEYS):
            if self.dice.random() < 0.3:
                table.rows[key], table.sequences[key] = (-1, 1), self.dice.choice((0, table.applied))
        table.start = table.replaces = self.planned_end
        table.whole, table.fresh = False, False
        table.chunks = {0: "planned", 1: "planned", 2: "planned"}
        table.staged = {}

    def begin_read(self) -> None:
        waiting = [
            (table, number)
            for table in self.tables.values()
            for number, state in table.chunks.items()
            if self.dice.random() < {"planned": 1.0, "staged": 0.1, "placed": 0.05}[state]
        ]
        if not waiting or len(self.readings) > 3:
            return
        table, number = self.dice.choice(waiting)
        chunk = Chunk(TableId("d", table.name), number, None, None)
        server = "stranger" if self.dice.random() < 0.07 else "source"
        if self.replica is not None and self.replica.dice.random() < 0.7:
            server = "replica"
        self.readings.append(Reading(chunk, self.source.version(table.name, self.planned_end), server))

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
            executed = self.source.at_least(0 if self.broken == "low_from_position" else 2)
        table = self.tables[reading.chunk.table.table]
        if self.broken != "require_gtids" and not set(range(1, table.start + 1)) <= set(executed):
            return
        reading.low = frozenset(executed) | {0}

    def _take_low_at_replica(self, reading: Reading) -> None:
        assert self.replica is not None
        executed = set(self.replica.executed)
        if self.broken == "replica_low_from_received":
            executed |= self.replica.received
        name = reading.chunk.table.table
        required = set(range(1, self.tables[name].start + 1))
        if self.broken == "replica_start_in_low":
            required = set()
        if self.broken != "replica_definition_in_low":
            required |= set(self._alters(name)[: reading.version - 1])
        if required <= executed:
            reading.low = frozenset(executed) | {0}

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
        lower, upper = CUTS[number], CUTS[number + 1]
        reading.rows = {
            key: (row[0], version)
            for key, row in self.source.state(name, seen).items()
            if (lower is None or key >= lower) and (upper is None or key < upper)
        }

    def _stage(self, reading: Reading) -> None:
        self.readings.remove(reading)
        table = self.tables[reading.chunk.table.table]
        number = reading.chunk.number
        first = table.chunks[number] == "planned" and number not in table.staged
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
        table.staged[number] = staged
        if first:
            table.chunks[number] = "staged"

    def _marks(self, gtids: str, high: int, reading: Reading) -> Watermarks:
        position = SourcePosition("binlog.1", high)
        if reading.server == "replica":
            assert self.replica is not None
            seen = self.replica.received | self.replica.executed
            if self.broken == "replica_high_from_executed":
                seen = self.replica.executed
            if self.broken == "replica_high_from_received":
                seen = self.replica.received
            return Watermarks(gtids, SourcePosition("", 0), high_gtids=gtid_set(sorted(seen)))
        if not self.by_place:
            return Watermarks(gtids, position)
        return Watermarks("", position, SourcePosition("binlog.1", _prefix(reading.low)))

    # Planning, with the real rule

    def offset_within(self, position: SourcePosition) -> Offset:
        return Offset(max(0, min(position.position, self.received) - self.coarse))

    def window_start(self, gtids: str) -> Offset:
        low = self.lows[gtids]
        if self.broken == "set_membership":
            return Offset(max(low, default=0))
        return Offset(max(0, min(_prefix(low), self.received) - self.coarse))

    def table_bytes(self, table: str, log_range: LogRange) -> int:
        name = table.split(".")[1]
        return sum(item.table == name for item in self.source.log[log_range.start : log_range.end])

    def plan(self) -> None:
        if self.received <= self.planned_end or len(self.plans) > 1:
            return
        end = self.dice.randint(self.planned_end + 1, self.received)
        for number in range(self.planned_end + 1, end + 1):
            if self.source.log[number - 1].ddl and self.source.log[number - 1].table in self.tables:
                end = number
                break
        epoch = LogRange(Offset(self.planned_end), Offset(end))
        placed: list[rule.Placed] = []
        for table in self.tables.values():
            placed += self._place(table, epoch)
        if self.dice.random() < 0.15:  # the planner dies before its plan is durable
            return
        finishes = {}
        for item in placed:
            table = self.tables[item.chunk.chunk.table.table]
            table.chunks[item.chunk.chunk.number] = "placed"
            if set(table.chunks.values()) == {"placed"}:
                finishes[table.name] = -1 if table.replaces is None else table.replaces
        self.plans.append(Plan(epoch, dict(self.emitted_from), placed, finishes))
        self.planned_end = end

    def _place(self, table: Table, epoch: LogRange) -> list[rule.Placed]:
        breaks = tuple(
            rule.Break(Offset(number), "TRUNCATE", f"{UUID}:{number}" if self.coarse else None)
            for number, item in enumerate(self.source.log[: epoch.end], 1)
            if item.ddl == "truncate" and item.table == table.name and number > table.start
        )
        unchecked = self.broken in ("require_gtids", "start_in_low", "replica_start_in_low")
        at_end = rule.TableAtEnd(
            Offset(table.start),
            "" if unchecked or self.by_place else gtid_set(list(range(1, table.start + 1))),
            self.source.version(table.name, epoch.end),
            fresh=table.fresh or self.broken == "append_only_if_fresh",
            breaks=() if self.broken == "void_by_ddl" else breaks,
            start_position=SourcePosition("binlog.1", table.start),
        )
        position = 10**9 if self.broken == "wait_for_high" else epoch.end
        held = 10**6 if self.broken == "replica_wait_for_high" else int(epoch.end)
        gtids = GtidSet(f"{UUID}:1-{held}") if self.replica is not None else None
        end = rule.EpochEnd(epoch, SourcePosition("binlog.1", position), "source", gtids)
        staged = [item for number, item in table.staged.items() if table.chunks[number] == "staged"]
        placed = []
        for chunk in staged:
            here, now = end, at_end
            if self.broken == "server_uuid":
                here = replace(end, server_uuid=chunk.server_uuid)
            if self.broken == "schema_version":
                now = replace(at_end, schema_version=chunk.schema_version)
            placement = rule.place(chunk, here, now, self, self.limits)
            if isinstance(placement, rule.Placed):
                placed.append(placement)
            elif isinstance(placement, rule.Void | rule.ReadAgain):
                del table.staged[chunk.chunk.number]
                table.chunks[chunk.chunk.number] = "planned"
        if placed and len({item.mode for item in placed}) == 1 and self.dice.random() < 0.5:
            scans = rule.shared_scans(placed)
            placed = [replace(item, scans=scans) for item in placed]
        return [self._weakened(item, epoch) for item in placed]

    def _weakened(self, item: rule.Placed, epoch: LogRange) -> rule.Placed:
        low = item.chunk.watermarks.low
        if self.broken == "drop_window":
            return replace(item, scans=())
        if self.broken == "window_before_epoch":
            return replace(item, scans=(rule.KeyScan(epoch),))
        if self.broken == "append_drops_all" and item.mode == "append":
            return replace(item, scans=tuple(replace(scan, exclude_gtids=low) for scan in item.scans))
        if self.broken == "own_epoch_keys":
            return replace(item, scans=tuple(replace(scan, exclude_gtids=low) for scan in item.scans))
        return item

    # Executing plans

    def execute(self) -> None:
        """Applies the oldest plan, table by table; may die between two tables and begin again."""
        if not self.plans:
            return
        plan = self.plans[0]
        for name in sorted(plan.tables):
            table = self.tables[name]
            if table.applied >= plan.range.end:
                continue  # the target holds this epoch already
            self._commit(table, plan)
            self._check(table, plan.range.end)
            if self.dice.random() < 0.1:
                return
        self.plans.pop(0)

    def _commit(self, table: Table, plan: Plan) -> None:
        end = plan.range.end
        latest, version = self._events(table, plan)
        last = self.source.log[end - 1]
        ddl = last.ddl if last.table == table.name else ""
        if ddl == "alter":
            table.rows = {key: (row[0], version) for key, row in table.rows.items()}
            latest = {key: (row and (row[0], version), at) for key, (row, at) in latest.items()}
        for key, (row, sequence) in latest.items():
            self._merge(table, key, row, sequence)
        if ddl == "truncate":
            table.rows.clear()
            table.sequences.clear()
        sequence = 0 if self.broken == "sequence_is_end" else int(end)
        for item in plan.placed:
            if item.chunk.chunk.table.table != table.name:
                continue
            dropped = self._keys(table.name, item)
            attempt = item.chunk.attempt
            if self.broken == "first_attempt_wins":
                attempt = table.staged[item.chunk.chunk.number].attempt
            for key, row in self.rows_of[attempt].items():
                if key in dropped:
                    continue
                if key in latest and ddl != "truncate":
                    raise Violation(f"{table.name}: key {key} twice in the epoch to {end}")
                if item.mode == "append" and key in table.rows:
                    raise Violation(f"{table.name}: key {key} appended again in the epoch to {end}")
                self._merge(table, key, row, sequence)
        if table.name in plan.finishes:
            self._finish(table, plan.finishes[table.name])
        table.applied = end

    def _events(self, table: Table, plan: Plan) -> tuple[dict[int, tuple[Row | None, int]], int]:
        """Last change per key of the epoch: the row or its deletion, with its sequence."""
        latest: dict[int, tuple[Row | None, int]] = {}
        version = self.source.version(table.name, max(plan.range.start, plan.tables[table.name]))
        for number in range(max(plan.range.start, plan.tables[table.name]) + 1, plan.range.end + 1):
            item = self.source.log[number - 1]
            if item.table != table.name:
                continue
            version += item.ddl == "alter"
            for before, after in item.changes:
                if before is not None:
                    latest[before] = (None, number)
                if after is not None:
                    latest[after] = ((number, version), number)
        return latest, version

    def _keys(self, name: str, item: rule.Placed) -> set[int]:
        keys: set[int] = set()
        for scan in item.scans:
            excluded = frozenset() if scan.exclude_gtids is None else self._low(scan.exclude_gtids)
            for number in range(scan.range.start + 1, scan.range.end + 1):
                transaction = self.source.log[number - 1]
                if transaction.table != name or number in excluded:
                    continue
                if self.broken == "before_images":
                    keys |= {after for _, after in transaction.changes if after is not None}
                else:
                    keys |= transaction.keys
        return keys

    def _low(self, gtids: str) -> frozenset[int]:
        if gtids not in self.lows:
            self.lows[gtids] = frozenset(parse_gtid_set(gtids))
        return self.lows[gtids]

    @staticmethod
    def _merge(table: Table, key: int, row: Row | None, sequence: int) -> None:
        if sequence <= table.sequences.get(key, -1):
            return
        if row is None:
            table.rows.pop(key, None)
            table.sequences.pop(key, None)
        else:
            table.rows[key], table.sequences[key] = row, sequence

    @staticmethod
    def _finish(table: Table, replaces: int) -> None:
        for key in [key for key, sequence in table.sequences.items() if sequence <= replaces]:
            del table.rows[key], table.sequences[key]
        table.whole = True

    def _check(self, table: Table, end: int) -> None:
        truth = self.source.upto(table.name, end)
        if table.whole:
            if table.rows != truth:
                raise Violation(f"{table.name} at {end}: {table.rows} instead of {truth}")
        elif table.replaces is None:
            for key, row in table.rows.items():
                if truth.get(key) != row:
                    raise Violation(f"{table.name} at {end}: key {key} is {row} instead of {truth.get(key)}")

    # The end

    def drain(self) -> None:
        """The writers stop; everything is read, placed and applied."""
        for _ in range(60):
            self.source.advance(everything=True)
            if self.replica is not None:
                self.replica.advance(everything=True)
            self.received = len(self.source.log)
            self.plan()
            self.execute()
            self.begin_read()
            for _ in range(3):
                self.read_on()
            if not self.tables or (not self.plans and all(table.whole for table in self.tables.values())):
                break
            if self.planned_end == len(self.source.log):  # the log of an idle source still moves on
                self.source.log.append(Transaction("other", []))
        for table in self.tables.values():
            if not table.whole:
                raise Violation(f"{table.name} is never complete: {table.chunks}")
