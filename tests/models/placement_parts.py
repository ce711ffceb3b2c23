"""Partial snapshots in the world of the placement model: signals that ask for them, what they read, and
what they promise.

A part is a range of keys, rows that meet a condition, or names of keys. Several names may mean one key, as in
a collation that ignores case: `n` and `n + KEYS` do. What a part promises: at the end of the epoch that
places one of its chunks, every row of the source that belongs to the chunk is at the target as it is at the
source, and of the keys named nothing else is, whatever the target held when the part was asked for.
`Table.damaged` are the keys that may be wrong.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.models.placement_source import KEYS, Row
from tests.models.placement_values import Table

from penstock.model.chunk import Chunk, StagedChunk
from penstock.model.offset import LogRange
from penstock.model.schema import TableId
from penstock.snapshot import placement as rule

if TYPE_CHECKING:
    from tests.models.placement_model import World

NAMES_PER_CHUNK = 2


@dataclass(frozen=True)
class ModelPart:
    """`keys`: those of a range. `remainder`: the condition asks for values that leave it, divided by 2.
    `names`: of keys, instead of both."""

    keys: frozenset[int] = frozenset()
    remainder: int | None = None
    names: tuple[int, ...] = ()

    def chunks(self) -> int:
        return -(-len(self.names) // NAMES_PER_CHUNK) if self.names else 2

    def names_of(self, number: int) -> tuple[int, ...]:
        return self.names[number * NAMES_PER_CHUNK : (number + 1) * NAMES_PER_CHUNK]

    def read(self, number: int, rows: dict[int, Row]) -> dict[int, Row]:
        """The rows of a chunk."""
        if self.names:
            wanted = {name % KEYS for name in self.names_of(number)}
        else:
            wanted = {key for key in self.keys if (key < KEYS // 2) == (number == 0)}
        return {
            key: row
            for key, row in rows.items()
            if key in wanted and (self.remainder is None or row[0] % 2 == self.remainder)
        }


@dataclass
class PartSnapshot:
    table: str
    since: int
    part: ModelPart
    chunks: dict[int, str]
    staged: dict[int, StagedChunk] = field(default_factory=dict)


class Parts:
    """`open` are those that have not ended, `log_start` is where the relay log begins. `quiet`: nobody
    writes; `writes`: how often somebody does else."""

    def __init__(self, dice: random.Random, world: World) -> None:
        self._dice = dice
        self._world = world
        self._asked: dict[int, ModelPart] = {}
        self.open: dict[int, PartSnapshot] = {}
        self.log_start = 0
        self.quiet = False
        self.writes = dice.choice((1, 2, 5))
        self._rests_share = dice.choice((0.1, 1))
        world.source.ddl_share = dice.choice((0.06, 0.15, 0.3))

    def actions(self) -> list[Callable[[], None]]:
        world = self._world
        people = [self.signal, self.signal, self.damage, self.damage, self.stop, self.rest]
        reads = [world.begin_read, world.read_on, world.read_on, world.read_on]
        people += [world.snapshot_anew] * self._dice.choice((0, 1, 3))
        return people + [self.expire, world.plan] + reads * self._dice.choice((0, 4))

    def rest(self) -> None:
        """The writers do, for a while: then epochs hold no log."""
        self.quiet = not self.quiet and self._dice.random() < self._rests_share

    # what people do

    def signal(self) -> None:
        """Also while plans wait, and while the table itself is being read."""
        if not self._world.tables or len(self.open) > 3:
            return
        table = self._dice.choice(list(self._world.tables.values()))
        part = self._part()
        number = len(self._asked) + 1
        self._asked[number] = part
        chunks = dict.fromkeys(range(part.chunks()), "planned")
        self.open[number] = PartSnapshot(table.name, self._world.planned_end, part, chunks)

    def _part(self) -> ModelPart:
        how = self._dice.random()
        if how < 0.5:
            names = [self._dice.randrange(2 * KEYS if how < 0.2 else KEYS) for _ in range(4)]
            return ModelPart(names=tuple(names[: self._dice.randint(1, 4)]))
        first, last = sorted((self._dice.randrange(KEYS), self._dice.randrange(KEYS)))
        remainder = self._dice.randrange(2) if how < 0.75 else None
        return ModelPart(frozenset(range(first, last + 1)), remainder)

    def damage(self) -> None:
        """Rows of a target go wrong behind our back; mostly somebody asks for them."""
        ready = [t for t in self._world.tables.values() if t.whole and t.placed and not self._world.plans]
        if not ready:
            return
        table = self._dice.choice(ready)
        for key in range(KEYS):
            if self._dice.random() < 0.3:
                row = None if self._dice.random() < 0.4 else (-1, 1)
                table.damage(key, row, self._dice.choice((0, self._world.planned_end)))
                table.damaged[key] = self._world.planned_end
        for _ in range(self._dice.choice((0, 1, 1, 2))):
            self.signal()

    def stop(self) -> None:
        if self.open and not self._world.plans and self._dice.random() < 0.2:
            del self.open[self._dice.choice(list(self.open))]

    def expire(self) -> None:
        """Retention removes what nobody needs any more."""
        world = self._world
        needed = [world.plans[0].range.start if world.plans else world.planned_end]
        needed += [table.start for table in world.tables.values() if not table.whole and not table.left]
        if world.broken != "part_log_kept":
            needed += [part.since for part in self.open.values()]
        self.log_start = max(self.log_start, min(needed))

    def leaves(self, table: Table) -> bool:
        """The whole table is to be read again; whether only later, and no epoch carries it until then."""
        if not table.left:
            self._interrupt(table)
        table.left = table.whole and self._dice.random() < 0.5
        if table.left:
            table.whole, table.replaces = False, self._world.planned_end
            if self._dice.random() < 0.4:
                self._world.source.truncate(table.name)
        return table.left

    def _interrupt(self, table: Table) -> None:
        """Its partial snapshots end, or begin again later; then what was staged of them still lies there,
        and is what the next attempt finds."""
        ends = self._dice.random() < 0.3
        for number, part in [(n, p) for n, p in self.open.items() if p.table == table.name]:
            if ends:
                del self.open[number]
                continue
            part.chunks = dict.fromkeys(part.chunks, "planned")
            if self._dice.random() < 0.5:
                part.staged.clear()
            for found in part.staged:
                part.chunks[found] = "staged"

    # reading and planning

    def to_read(self) -> list[Chunk]:
        return [
            Chunk(TableId("d", part.table), number, None, None, snapshot)
            for snapshot, part in self.open.items()
            if self._rests(self._world.tables[part.table])
            for number, state in part.chunks.items()
            if self._dice.random() < {"planned": 1.0, "staged": 0.1, "placed": 0.05}[state]
        ]

    def _rests(self, table: Table) -> bool:
        return not table.left and (table.placed or self._world.broken == "part_beside_snapshot")

    def start(self, table: Table, snapshot: int) -> int:
        """S, for a chunk of it."""
        part = self.open.get(snapshot)
        if part is None or self._world.broken == "part_since":
            return table.start
        return part.since if self._world.broken == "part_start" else max(table.start, part.since)

    def visible_to(self, table: Table, snapshot: int) -> int:
        return 0 if self._world.broken == "part_start_in_low" else self.start(table, snapshot)

    def plans_when_idle(self) -> bool:
        return self._dice.random() < 0.5

    def place(self, table: Table, epoch: LogRange, own: list[rule.Placed]) -> list[rule.Placed]:
        """Of one partial snapshot only, and none beside chunks of the table's own snapshot."""
        broken = self._world.broken
        if not self._rests(table) or (own and broken != "part_beside_snapshot"):
            return []
        placed: list[rule.Placed] = []
        for part in self.open.values():
            above = epoch.end > part.since or broken == "part_above_since"
            if part.table == table.name and above and (not placed or broken == "part_beside_part"):
                placed += self._world._place(table, epoch, part)
        return placed

    def applied(self) -> None:
        """A plan is: what it placed all of has ended, unless another plan has yet to place the rest."""
        waiting = {item.chunk.chunk.snapshot for plan in self._world.plans for item in plan.placed}
        for number, part in list(self.open.items()):
            if set(part.chunks.values()) == {"placed"} and number not in waiting:
                del self.open[number]

    # what chunks say

    def read(self, chunk: Chunk, rows: dict[int, Row]) -> dict[int, Row]:
        return self._asked[chunk.snapshot].read(chunk.number, rows)

    def missing(self, chunk: Chunk, found: dict[int, Row]) -> set[int]:
        """Keys that are named, and were not there under that very name."""
        if not chunk.snapshot or self._world.broken == "part_missing_stay":
            return set()
        names = self._asked[chunk.snapshot].names_of(chunk.number)
        return {name for name in names if name < KEYS and name not in found}

    def mended(self, table: Table, chunk: Chunk, truth: dict[int, Row]) -> None:
        """Keys that must be right once the chunk is placed: those that went wrong before it was asked for."""
        if not chunk.snapshot:
            return
        part, since = self._asked[chunk.snapshot], self.open[chunk.snapshot].since
        for key in {*part.read(chunk.number, truth), *part.names_of(chunk.number)}:
            if table.damaged.get(key, since + 1) <= since:
                del table.damaged[key]
