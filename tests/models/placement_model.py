"""A small world for the placement rule: a source, a relay log, chunk readers, a planner and a target, at
random.

Everything that decides is the real code of `penstock.snapshot.placement`; everything around it is as bad as
real servers are: a transaction is first in the binary log, later visible, later in `gtid_executed`, the
last two in any order between transactions that don't touch the same rows. Offsets, positions and
transaction numbers are the same integers here: transaction i ends at offset i.

`broken` switches off one condition of the rule. A model that finds nothing wrong then is no good.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.models.placement_parts import Parts, PartSnapshot
from tests.models.placement_readers import Readers, prefix
from tests.models.placement_source import (
    KEYS,
    UUID,
    Replica,
    Row,
    Source,
    Transaction,
    gtid_set,
    parse_gtid_set,
)
from tests.models.placement_values import (
    BROKEN_AT_REPLICAS,
    BROKEN_IN_PARTS,
    Plan,
    Reading,
    Table,
    Violation,
)

from penstock._core import GtidSet
from penstock.model.chunk import StagedChunk
from penstock.model.offset import LogRange, Offset, SourcePosition
from penstock.relaylog import segment_format
from penstock.snapshot import placement as rule
from penstock.sources.mysql.snapshot.window import MySqlWindows
from penstock.sources.windows import LogState, Window


class World(Readers):
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
        self.planned = 0
        self.readings: list[Reading] = []
        self.rows_of: dict[str, dict[int, Row]] = {}
        self.lows: dict[str, frozenset[int]] = {}
        limits = self.dice.choice(((10**9, 0), (10**9, 10**9), (10**9, 10**9), (4, 3)))
        self.limits = rule.PlacementLimits(window_bytes_max=limits[0], append_bytes_max=limits[1])
        self.coarse = self.dice.choice((0, 0, 1, 3))
        # Marks by place, as where there are no GTIDs. Dice of its own: the other histories stay as they are.
        self.by_place = (
            broken in ("", "low_from_position", *BROKEN_IN_PARTS) and random.Random(~seed).random() < 0.3
        )
        # Chunks of a replica whose source is followed. Dice of their own, for the same reason.
        dice = random.Random(seed * 2 + 1)
        self.replica: Replica | None = None
        if broken in BROKEN_AT_REPLICAS or (not broken and not self.by_place and dice.random() < 0.4):
            self.replica = Replica(dice, self.source)
            self.source.ddl_share = dice.choice((0.06, 0.2))
        # Signals. Dice of their own, for the same reason.
        dice = random.Random(seed * 2 + 3_000_000_019)
        self.parts: Parts | None = None
        if broken in BROKEN_IN_PARTS or (not broken and dice.random() < 0.6):
            self.parts = Parts(dice, self)
            if self.replica is None and not self.by_place and broken in BROKEN_IN_PARTS:
                self.replica = Replica(random.Random(~seed), self.source) if dice.random() < 0.4 else None
        if self.replica is not None and self.replica.dice.random() < 0.5:
            self._begin_full(self.replica)
        else:
            self._begin()

    def _begin(self) -> None:
        """Some histories begin with a table that is being added, or one that has been complete for long."""
        how = self.dice.random()
        if how < 0.7:
            self.add_table()
        if how < 0.4 or (self.parts is not None and how < 0.6):
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
        writes = 5 if self.parts is None else self.parts.writes
        actions = (
            [self.write] * writes + [self.source.advance] * 6 + [self.receive] * 3 + [self.plan] * 2
            + [self.execute] * 2 + [self.begin_read] * 3 + [self.read_on] * 7 + [self.lose_reading]
            + [self.add_table] + [self.snapshot_anew]
        )  # fmt: skip
        if self.replica is not None:
            actions += [self.replica.advance] * self.replica.dice.choice((4, 12))
        if self.parts is not None:
            actions += self.parts.actions()
        choose = self.dice.choice
        for _ in range(steps if self.parts is None else 2 * steps):
            choose(actions)()
        self.drain()

    def write(self) -> None:
        if self.parts is not None and self.parts.quiet:
            return
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
        self.tables[name].applied = self.planned
        self.emitted_from[name] = start

    def snapshot_anew(self) -> None:
        """A second snapshot of a table whose target has gone wrong behind our back."""
        ready = [table for table in self.tables.values() if (table.whole or table.left) and not self.plans]
        if not ready:
            return
        table = self.dice.choice(ready)
        if self.parts is not None and self.parts.leaves(table):
            return
        for key in range(KEYS):
            if self.dice.random() < 0.3:
                table.damage(key, (-1, 1), self.dice.choice((0, self.planned_end)))
        table.begin_anew(self.planned_end)
        self.emitted_from[table.name] = table.start

    # Planning, with the real rule

    def offset_within(self, position: SourcePosition) -> Offset:
        return Offset(max(0, min(position.order[-1], self.received) - self.coarse))

    def window(self, chunk: StagedChunk) -> Window:
        return MySqlWindows().of(chunk.watermarks)

    def window_start(self, gtids: str) -> Offset:
        low = self.lows[gtids]
        if self.broken == "set_membership":
            return Offset(max(low, default=0))
        return Offset(max(0, min(prefix(low), self.received) - self.coarse))

    def table_bytes(self, table: str, log_range: LogRange) -> int:
        name = table.split(".")[1]
        return sum(item.table == name for item in self.source.log[log_range.start : log_range.end])

    def plan(self) -> None:
        idle = self.received <= self.planned_end
        if len(self.plans) > 1 or (idle and (self.parts is None or not self.parts.plans_when_idle())):
            return
        end = self.planned_end if idle else self.dice.randint(self.planned_end + 1, self.received)
        for number in range(self.planned_end + 1, end + 1):
            if self.source.log[number - 1].ddl and self.source.log[number - 1].table in self.tables:
                end = number
                break
        epoch = LogRange(Offset(self.planned_end), Offset(end))
        placed: list[rule.Placed] = []
        followed = [table for table in self.tables.values() if not table.left]
        for table in followed:
            above = table.replaces is None or end > table.replaces or self.broken == "anew_above_start"
            own = self._place(table, epoch, table) if above else []
            placed += own
            if self.parts is not None:
                placed += self.parts.place(table, epoch, own)
        if self.dice.random() < 0.15 or (idle and not placed):  # the planner dies before its plan is durable
            return
        finishes = {}
        for item in placed:
            snapshot = self.snapshot_of(item.chunk.chunk)
            assert snapshot is not None
            snapshot.chunks[item.chunk.chunk.number] = "placed"
            if isinstance(snapshot, Table) and snapshot.placed:
                finishes[snapshot.name] = -1 if snapshot.replaces is None else snapshot.replaces
        self.planned += 1
        emitted = {table.name: self.emitted_from[table.name] for table in followed}
        self.plans.append(Plan(self.planned, epoch, emitted, placed, finishes))
        self.planned_end = end

    def _place(self, table: Table, epoch: LogRange, snapshot: Table | PartSnapshot) -> list[rule.Placed]:
        placed = []
        for chunk in self._due(snapshot):
            placement = rule.place(chunk, *self._at_end(table, epoch, chunk), self, self.limits)
            if isinstance(placement, rule.Placed):
                placed.append(placement)
            elif isinstance(placement, rule.Void | rule.ReadAgain):
                del snapshot.staged[chunk.chunk.number]
                snapshot.chunks[chunk.chunk.number] = "planned"
        if placed and len({item.mode for item in placed}) == 1 and self.dice.random() < 0.5:
            scans = rule.shared_scans(placed, MySqlWindows().common)
            placed = [replace(item, scans=scans) for item in placed]
        return [self._weakened(item, epoch) for item in placed]

    def _due(self, snapshot: Table | PartSnapshot) -> list[StagedChunk]:
        staged = [item for number, item in snapshot.staged.items() if snapshot.chunks[number] == "staged"]
        one = isinstance(snapshot, PartSnapshot) and snapshot.part.names and self.broken != "part_one_list"
        return staged[:1] if one else staged

    def _at_end(
        self, table: Table, epoch: LogRange, chunk: StagedChunk
    ) -> tuple[rule.EpochEnd, rule.TableAtEnd]:
        """What the rule is told, as the broken condition has it."""
        part = chunk.chunk.snapshot
        start, fresh = table.start, table.fresh or self.broken == "append_only_if_fresh"
        if self.parts is not None and part:
            start, fresh = self.parts.start(table, part), table.fresh and self.broken == "part_fresh"
        unchecked = self.broken in ("require_gtids", "start_in_low", "replica_start_in_low")
        unchecked |= self.broken == "part_start_in_low" and part > 0
        breaks = tuple(
            rule.Break(Offset(number), "TRUNCATE")
            for number, item in enumerate(self.source.log[: epoch.end], 1)
            if item.ddl == "truncate" and item.table == table.name and number > table.start
        )
        version = self.source.version(table.name, epoch.end)
        if self.broken == "schema_version" or (self.broken == "part_schema_version" and part):
            version = chunk.schema_version
        start_gtids = "" if unchecked or self.by_place else gtid_set(list(range(1, start + 1)))
        blind = self.broken == "part_start_in_low" and part
        start_position = None if blind else segment_format.position("binlog.1", start)
        at_end = rule.TableAtEnd(
            Offset(start),
            LogState(start_position, GtidSet(start_gtids)),
            version,
            target_is_empty=fresh,
            breaks=()
            if self.broken == "void_by_ddl" or (self.broken == "part_void_by_ddl" and part)
            else breaks,
        )
        early = self.broken == "part_wait_for_high" and part
        position = 10**9 if self.broken == "wait_for_high" or early else epoch.end
        held = 10**6 if self.broken == "replica_wait_for_high" or early else int(epoch.end)
        gtids = GtidSet(f"{UUID}:1-{held}" if held else "") if self.replica is not None else None
        server = chunk.server_uuid if self.broken == "server_uuid" else "source"
        return rule.EpochEnd(
            epoch, LogState(segment_format.position("binlog.1", position), gtids), server
        ), at_end

    def _weakened(self, item: rule.Placed, epoch: LogRange) -> rule.Placed:
        low = MySqlWindows().of(item.chunk.watermarks).low
        if self.broken == "drop_window" or (self.broken == "part_drop_window" and item.chunk.chunk.snapshot):
            return replace(item, scans=())
        if self.broken == "window_before_epoch":
            return replace(item, scans=(rule.KeyScan(epoch),))
        if self.broken == "append_drops_all" and item.mode == "append":
            return replace(item, scans=tuple(replace(scan, seen=low) for scan in item.scans))
        if self.broken == "own_epoch_keys":
            return replace(item, scans=tuple(replace(scan, seen=low) for scan in item.scans))
        return item

    # Executing plans

    def execute(self) -> None:
        """Applies the oldest plan, table by table; may die between two tables and begin again."""
        if not self.plans:
            return
        plan = self.plans[0]
        for name in sorted(plan.tables):
            table = self.tables[name]
            if table.applied >= plan.number:
                continue  # the target holds this epoch already
            self._commit(table, plan)
            self._check(table, plan.range.end)
            if self.dice.random() < 0.1:
                return
        self.plans.pop(0)
        if self.parts is not None:
            self.parts.applied()

    def _commit(self, table: Table, plan: Plan) -> None:
        end = plan.range.end
        latest, version = self._events(table, plan)
        last = self.source.log[end - 1] if plan.range else Transaction("", [])
        ddl = last.ddl if last.table == table.name else ""
        if ddl == "alter":
            table.rows = {key: (row[0], version) for key, row in table.rows.items()}
            latest = {key: (row and (row[0], version), at) for key, (row, at) in latest.items()}
        for key, (row, sequence) in latest.items():
            table.merge(key, row, sequence)
            table.damaged.pop(key, None)
        if ddl == "truncate":
            table.rows.clear()
            table.sequences.clear()
            table.damaged.clear()
        sequence = 0 if self.broken == "sequence_is_end" else int(end)
        written = set(latest) if ddl != "truncate" else set()
        for item in plan.placed:
            if item.chunk.chunk.table.table != table.name:
                continue
            for key, row in self._rows_of(table, item).items():
                if key in written:
                    raise Violation(f"{table.name}: key {key} twice in the epoch to {end}")
                if item.mode == "append" and key in table.rows:
                    raise Violation(f"{table.name}: key {key} appended again in the epoch to {end}")
                written.add(key)
                table.merge(key, row, sequence)
            if self.parts is not None:
                self.parts.mended(table, item.chunk.chunk, self.source.upto(table.name, end))
        if table.name in plan.finishes:
            table.finish(plan.finishes[table.name])
        table.applied = plan.number

    def _rows_of(self, table: Table, item: rule.Placed) -> dict[int, Row | None]:
        """What a placed chunk does: rows, and those that are not there."""
        dropped = self._keys(table.name, item)
        attempt = item.chunk.attempt
        if self.broken == "first_attempt_wins":
            attempt = table.staged[item.chunk.chunk.number].attempt
        read = self.rows_of[attempt]
        rows: dict[int, Row | None] = {key: row for key, row in read.items() if key not in dropped}
        if self.parts is not None:
            if self.broken == "part_missing_in_window":
                dropped = set()
            rows |= dict.fromkeys(self.parts.missing(item.chunk.chunk, read) - dropped)
        return rows

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
            if self.parts is not None and scan.range.start < self.parts.log_start:
                raise Violation(f"{name}: the log behind {scan.range.start} is gone")
            excluded = frozenset() if scan.seen is None else self._low(scan.seen)
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

    def _check(self, table: Table, end: int) -> None:
        truth = self.source.upto(table.name, end)
        if table.whole:
            found, wanted = (
                {key: row for key, row in rows.items() if key not in table.damaged}
                for rows in (table.rows, truth)
            )
            if found != wanted:
                raise Violation(f"{table.name} at {end}: {found} instead of {wanted}")
        elif table.replaces is None:
            for key, row in table.rows.items():
                if truth.get(key) != row:
                    raise Violation(f"{table.name} at {end}: key {key} is {row} instead of {truth.get(key)}")

    # The end

    def drain(self) -> None:
        """The writers stop; everything is read, placed and applied."""
        for _ in range(60 if self.parts is None else 150):
            self.source.advance(everything=True)
            if self.replica is not None:
                self.replica.advance(everything=True)
            self.received = len(self.source.log)
            self.plan()
            self.execute()
            if any(table.left for table in self.tables.values()):
                self.snapshot_anew()
            self.begin_read()
            for _ in range(3):
                self.read_on()
            whole = all(table.whole for table in self.tables.values())
            if not self.tables or (not self.plans and whole and (self.parts is None or not self.parts.open)):
                break
            if self.planned_end == len(self.source.log):  # the log of an idle source still moves on
                self.source.log.append(Transaction("other", []))
        for table in self.tables.values():
            if not table.whole:
                raise Violation(f"{table.name} is never complete: {table.chunks}")
        if self.parts is not None and self.parts.open:
            raise Violation(f"a partial snapshot is never complete: {self.parts.open}")
