"""What foreign keys did, over many epochs, while a table is read in chunks, against a model of the server.

Plans, chunks and merges are those of `planning/placement.py` and `spark/cascades.py`, in memory: any
interleaving of changes, reads of chunks, ends of epochs and places of chunks may come. The rule for rows
(`cascades/replay.py`) and for values that come back (`Edge.brings_back`) is the real one."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from tests.models.cascade_model import Image, Key, ModelServer, Row
from tests.properties.test_cascades import RULES, cascading, keys

from penstock.cascades.in_memory import Edge, Effect, Hit, Images, Version, derived, outcome
from penstock.cascades.replay import replay

IDS = 12
SEEDS = 25
Change = tuple[int | None, int | None, bool, int]
"""Old and new value of a parent, whether it is gone, sequence."""
Target = dict[int | None, tuple[Row, int]]


class ParentsChange(ModelServer):
    """Its rows of g change mostly through foreign keys, once it is `loaded`."""

    loaded = False

    def _statement(self) -> None:
        names = ("p",) * 6 + ("m",) * 3 + ("g",) * 2 if self.loaded else ("p", "m", "m", "g", "g", "g", "g")
        table, checked = self.chance.choice(names), self.chance.random() < 0.9
        rows = self.tables[table]
        kinds = ("insert", "insert", "delete", "update", "update") if self.loaded else ("insert",)
        what = self.chance.choice(kinds)
        if what == "insert" or not rows:
            return self._insert(table, self._row(table), checked=checked)
        old = rows[self.chance.choice(list(rows))]
        if what == "delete":
            return self._delete(table, old, checked=checked)
        new = self._row(table)
        keeps = table != "p" and self.chance.random() < 0.5
        return self._update(table, old, (old[0] if keeps else new[0], *new[1:]), checked=checked)

    def _row(self, table: str) -> Row:
        row = super()._row(table)
        return (self.chance.randrange(4 * IDS), *row[1:]) if table == "g" else row

    @property
    def end(self) -> int:
        """The end of the log: no image has it."""
        return 2 * self.sequence + 1

    def images(self, table: str, start: int, end: int) -> list[tuple[Image, int]]:
        found = ((image, 2 * image.sequence) for image in self.log if image.table == table)
        return [(image, at) for image, at in found if start < at <= end]

    def changes(self, table: str, start: int, end: int) -> list[Change]:
        """The changes of a parent that the log has."""
        found: list[Change] = []
        old: int | None = None
        for image, at in self.images(table, start, end):
            value = image.row[0]
            if image.checked and image.kind == "delete":
                found.append((value, None, True, at))
            elif image.checked and image.kind == "update_postimage" and old != value:
                found.append((old, value, False, at))
            old = value
        return found


@dataclass
class Chunk:
    """Keys from `first` to before `last`. `rows`: as they were read, at `view`; `window`: an earlier place up
    to which the reader knows that it saw all of the log."""

    first: int
    last: int
    rows: list[Row] | None = None
    window: int = 0
    view: int = 0
    placed: bool = False


@dataclass
class Pipeline:
    """m is at its target, and g is being read."""

    server: ParentsChange
    rules: tuple[Key, ...]
    chance: random.Random
    chunks: list[Chunk]
    start: int
    position: int
    targets: dict[str, Target]
    kept: list[tuple[int, dict[str, list[Change]]]] = field(default_factory=list)
    """The changes of parents in earlier epochs, with the ends of these."""

    def read(self, chunk: Chunk, ends: list[int]) -> None:
        rows = self.server.tables["g"]
        chunk.rows = [row for key, row in rows.items() if chunk.first <= key < chunk.last]
        chunk.window = self.chance.choice(ends[-self.chance.choice((1, 15)) :])
        chunk.view = self.server.end

    def epoch(self, end: int) -> None:
        staged = [one for one in self.chunks if not one.placed and one.rows is not None and one.view <= end]
        placing = [one for one in staged if self.chance.random() < 0.8]
        window = min((one.window for one in placing), default=end)
        appends = self.chance.random() < 0.5
        scanned = self.start if appends else min(window, self.position)
        dropped = {image.row[0] for image, _ in self.server.images("g", scanned, end)}
        rows = [row for one in placing for row in one.rows or () if row[0] not in dropped]
        changes = {table: self.server.changes(table, self.position, end) for table in "pm"}
        of_m = self._hits("m", end, changes, [])[0]
        changes["m"] += [(old, new, gone, p) for (old,), (new,), gone, p in derived(of_m, (0,))]
        earlier = [known for until, known in self.kept if until > window]
        every = {table: [change for one in [*earlier, changes] for change in one[table]] for table in "pm"}
        hits, unclear = self._hits("g", end, every, [Version(row, window, True) for row in rows])
        self.kept.append((end, changes))
        self._write("m", end, of_m)
        self._write("g", end, [one for one in hits if not one.chunk])
        last = outcome([one for one in hits if one.chunk], Images((0,)))
        fixes = {row[0]: (row, gone) for row, gone, _ in last}
        for row in () if unclear else rows:
            fixed, gone = fixes.get(row[0], (row, False))
            assert not appends or fixed[0] not in self.targets["g"], "appended, and there already"
            if not gone and self.targets["g"].get(fixed[0], (row, 0))[1] < end:
                self.targets["g"][fixed[0]] = (fixed, end)
        for one in placing:
            one.rows, one.placed = None, not unclear
        self.position = end

    def _hits(
        self, table: str, end: int, changes: dict[str, list[Change]], placed: list[Version]
    ) -> tuple[list[Hit], bool]:
        """The hits, and whether the chunks are to be read again."""
        edges = []
        for key in (one for one in self.rules if one.child == table):
            effects: dict[Row, list[Effect]] = {}
            edge = Edge(cascading(key), (key.column,), ("exact",), effects)
            for before, after, gone, p in changes[key.parent]:
                effect = edge.effect_of((before,), None if gone else (after,), p)
                if effect is not None:
                    effects.setdefault((before,), []).append(effect)
            edges.append(edge)
        unclear = any(edge.sets and edge.brings_back() for edge in edges)
        logged = self.server.images(table, self.position, end)
        versions = [Version(row, since) for row, since in self.targets[table].values()]
        versions += [Version(i.row, at) for i, at in logged if i.kind in ("insert", "update_postimage")]
        images = Images((0,))
        images.add([image.row for image, _ in logged], [at for _, at in logged])
        return replay(edges, [], versions + ([] if unclear else placed), images), unclear

    def _write(self, table: str, end: int, hits: list[Hit]) -> None:
        """Merges the log's events, and then what foreign keys did."""
        target, images = self.targets[table], Images((0,))
        for image, at in self.server.images(table, self.position, end):
            images.add([image.row], [at])
            target.pop(image.row[0], None)
            if image.kind in ("insert", "update_postimage"):
                target[image.row[0]] = (image.row, at)
        for row, gone, p in outcome(hits, images):
            if row[0] in target and target[row[0]][1] < p:
                del target[row[0]]
                target |= {} if gone else {row[0]: (row, p)}


@pytest.mark.parametrize("rules", RULES)
def test_tables_that_are_read_in_chunks_become_those_of_the_server(rules: str) -> None:
    placed_late = 0
    for seed in range(SEEDS):
        chance = random.Random(f"{rules} {seed}")
        known = tuple(key for key in keys(rules) if key.child != "s")
        server = ParentsChange({"p": 1, "m": 2, "g": 3}, known, chance, ids=IDS)
        server.run(4 * IDS)
        server.loaded, server.log = True, []
        cuts = [0, *sorted(chance.sample(range(4 * IDS), 2)), 4 * IDS]
        chunks = [Chunk(first, last) for first, last in pairwise(cuts)]
        of_m: Target = {key: (row, 1) for key, row in server.tables["m"].items()}
        start = server.end
        pipeline = Pipeline(server, known, chance, chunks, start, start, {"m": of_m, "g": {}})
        ends, step = [start], 0
        while not (all(one.placed for one in chunks) and pipeline.position == server.end):
            step += 1
            what = chance.choice(("run", "run", "read", "epoch")) if step < 30 else "epoch"
            waiting = [one for one in chunks if not one.placed and one.rows is None]
            if what == "run" or step >= 30:
                server.run(1)
                ends.append(server.end)
            if waiting and (what == "read" or step >= 30):
                pipeline.read(chance.choice(waiting), ends)
            later = [end for end in ends if end > pipeline.position]
            if what == "epoch" and later:
                pipeline.epoch(chance.choice(later) if step < 30 else later[-1])
                placed_late += any(one.placed and one.window < pipeline.kept[-1][0] for one in chunks)
        for table in ("m", "g"):
            found = {key: row for key, (row, _) in pipeline.targets[table].items()}
            assert found == server.tables[table], (seed, table)
    assert placed_late > SEEDS, "chunks whose window ended before their epoch"
