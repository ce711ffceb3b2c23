"""What programs of others read in live tables: right rows, a refusal, or wrong rows. The tables in
docs/tables.md are made here, and compared with that page."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from tests.readers import environment
from tests.sinks.conftest import Place
from tests.sinks.lake.iceberg.test_small_commit import few
from tests.sinks.lake.test_file_merge import newer

from penstock.sinks.jars import jars
from penstock.sinks.lake.delta.options import DeltaOptions
from penstock.sinks.lake.iceberg.options import IcebergOptions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

Make = Callable[..., Place]
Kind = Literal["iceberg", "delta"]
PAGE = Path(__file__).parents[3] / "docs" / "tables.md"
COLUMNS = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("day", pa.date32()), ("n", pa.int32())]
)  # fmt: skip
ENGINES: dict[Kind, dict[str, str]] = {
    "iceberg": {"spark": "Spark, Iceberg 1.12", "pyiceberg": "PyIceberg 0.12", "duckdb": "DuckDB 1.5.5",
                "chdb": "ClickHouse 26.9 (chDB)"},
    "delta": {"spark": "Spark, Delta 4.4", "delta-rs": "delta-rs 1.6.6", "duckdb": "DuckDB 1.5.5",
              "chdb": "ClickHouse 26.9 (chDB)"},
}  # fmt: skip
BUCKETS = {"partition_by": ["days(day)", "bucket(4, id)"]}


@dataclass(frozen=True)
class Live:
    """A table as it is while a pipeline writes it."""

    text: str
    kind: Kind
    shape: dict[str, Any] = field(default_factory=dict)
    merged: bool = True


TABLES = [
    Live("only inserts", "iceberg", merged=False),
    Live("version 3", "iceberg"),
    Live("version 3, partitioned", "iceberg", BUCKETS),
    Live("version 2", "iceberg", {"format_version": 2}),
    Live("version 2, partitioned", "iceberg", {**BUCKETS, "format_version": 2}),
    Live("only inserts", "delta", merged=False),
    Live("with deletion vectors", "delta"),
    Live("with deletion vectors, `partition_by`", "delta", {"partition_by": ["day", "n"]}),
    Live("with deletion vectors, `cluster_by`", "delta", {"cluster_by": ["day"]}),
]  # fmt: skip


def written(place: Make, live: Live) -> Place:
    config = {"tables": [{"match": "*.*", **live.shape}]}
    it = place(live.kind, arrow=COLUMNS, config=config).create()

    def row(key: int, sequence: int, *, deleted: bool = False) -> tuple[Any, ...]:
        return (
            key,
            f"name {sequence}",
            date(2026, 1, 1 + (key + sequence) % 3),
            sequence % 2,
            deleted,
            sequence,
        )

    it.sink.append(it.table, newer(it, *[row(key, 1) for key in range(1, 41)]), it.commit(1))
    if live.merged:
        it.sink.merge(it.table, newer(it, *[row(key, 2) for key in range(1, 10)]), it.key, it.commit(2))
        for epoch in (3, 4):
            rows = [row(key, epoch, deleted=key % 3 == 0) for key in range(epoch, 45, 5)]
            it.sink.merge(it.table, few(it, *rows), it.key, it.commit(epoch))
    return it


def location(it: Place, kind: Kind) -> Path:
    form = it.sink.format
    return Path(form.path(it.table) if kind == "delta" else form._path(it.table))


def by_another_spark(made: list[tuple[Live, Place]], lake_root: Path) -> list[Any]:
    names = [
        str(location(it, "delta")) if live.kind == "delta" else it.sink.name(it.table).replace("`", "")
        for live, it in made
    ]
    every = jars([IcebergOptions(path=lake_root), DeltaOptions(type="delta", path=lake_root)])
    program = Path(environment.__file__).with_name("spark_reader.py")
    done = subprocess.run(
        [sys.executable, str(program), ":".join(map(str, every)), str(lake_root / "iceberg"), *names],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return [[tuple(row) for row in json.loads(line)] for line in done.stdout.splitlines()]


def judged(found: Any, expected: Any) -> str:
    if isinstance(found, str):
        return "refuses"
    return "right" if found == expected else "**wrong**"


def test_what_other_programs_read_is_what_the_page_says(place: Make, lake_root: Path) -> None:
    made = [(live, written(place, live)) for live in TABLES]
    spark = by_another_spark(made, lake_root)
    cells: dict[Kind, list[list[str]]] = {"iceberg": [], "delta": []}
    said = []
    for number, (live, it) in enumerate(made):
        expected = [tuple(None if value is None else str(value) for value in row) for row in it.rows()]
        found: dict[str, Any] = {"spark": spark[number]}
        for engine in [one for one in ENGINES[live.kind] if one != "spark"]:
            found[engine] = environment.read(engine, live.kind, location(it, live.kind))
            if isinstance(found[engine], str):
                said.append(f"{live.kind}, {live.text}, {engine}: {found[engine][:300]}")
        cells[live.kind].append([live.text, *[judged(found[one], expected) for one in ENGINES[live.kind]]])
    page = PAGE.read_text("utf-8")
    missing = [table for kind in cells if (table := as_table(kind, cells[kind])) not in page]
    assert not missing, "put this into docs/tables.md:\n" + "\n\n".join([*missing, *said])


class Source:
    """Rows as a source has them, and the commits that bring its changes to a target."""

    def __init__(self, it: Place) -> None:
        self.it = it
        self.rows: dict[int, tuple[Any, ...]] = {}
        self.chance = random.Random(5)
        self.sequence = self.epoch = 0
        self.next_key = 1

    def commit(self) -> None:
        """The thirteenth commit is a truncate, and every fifth one is large."""
        self.epoch += 1
        commit = self.it.commit(self.epoch)
        if self.epoch == 13:
            self.sequence += 1
            self.it.sink.truncate(self.it.table, commit, sequence=self.sequence)
            self.rows.clear()
            return
        make = newer if self.epoch % 5 == 0 else few
        self.it.sink.merge(self.it.table, make(self.it, *self.changes()), self.it.key, commit)
        if self.epoch in (8, 17, 28):
            self.it.sink.compact(self.it.table)

    def changes(self) -> list[tuple[Any, ...]]:
        """Inserts, updates, deletes, and rows that get another key."""
        changed: dict[int, tuple[Any, ...]] = {}
        for _ in range(12):
            self.sequence += 1
            known = [key for key in self.rows if key not in changed]
            if not known or self.chance.random() < 0.4:
                self.put(changed, self.next_key)
                self.next_key += 1
                continue
            key, what = self.chance.choice(known), self.chance.random()
            if what > 0.5:
                self.put(changed, key)
                continue
            changed[key] = (*self.rows.pop(key), True, self.sequence)
            if what > 0.25:
                self.put(changed, self.next_key + 1000)
                self.next_key += 1
        return list(changed.values())

    def put(self, changed: dict[int, tuple[Any, ...]], key: int) -> None:
        number = self.sequence
        row = (key, f"name {number}", date(2026, 1, 1 + number % 28), number % 3)
        self.rows[key] = row
        changed[key] = (*row, False, number)

    def expected(self) -> list[tuple[str, ...]]:
        return [tuple(map(str, self.rows[key])) for key in sorted(self.rows)]


@pytest.mark.parametrize(
    ("live", "refuses"),
    [(Live("version 3", "iceberg"), {"chdb"}), (Live("with deletion vectors", "delta"), set[str]())],
    ids=["iceberg", "delta"],
)
def test_every_tenth_commit_of_a_live_table_is_what_the_source_had(
    place: Make, lake_root: Path, live: Live, refuses: set[str]
) -> None:
    it = place(live.kind, arrow=COLUMNS).create()
    source = Source(it)
    for _ in range(3):
        for _ in range(10):
            source.commit()
        found = {
            engine: environment.read(engine, live.kind, location(it, live.kind))
            for engine in ENGINES[live.kind]
            if engine not in ("spark", *refuses)
        }
        found["spark"] = by_another_spark([(live, it)], lake_root)[0]
        for engine, rows in found.items():
            read = [row[: len(COLUMNS)] for row in rows] if isinstance(rows, list) else rows
            assert read == source.expected(), f"{engine} after commit {source.epoch}"


def as_table(kind: Kind, rows: list[list[str]]) -> str:
    head = [
        f"| {kind.capitalize()} | {' | '.join(ENGINES[kind].values())} |",
        "|---" * (len(ENGINES[kind]) + 1) + "|",
    ]
    return "\n".join([*head, *[f"| {' | '.join(row)} |" for row in rows]])
