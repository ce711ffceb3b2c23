"""The sink's own table: what each target is, and its last commit.

A change adds a row, and merges remove the older ones. The newest one counts: of the latest making of the
target, there of the latest driver's generation, and there the last. So what a driver adds that was replaced
is never seen.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from pyspark.sql.types import StructType

from penstock.sinks.base import FORMAT, Commit
from penstock.sinks.clickhouse.client import Client, quoted, text


@dataclass(frozen=True)
class Record:
    """The record of a target. `rows`: name of the table with all versions. `era`: how often the target was
    made. `serial`: how many records came before. `gone`: there is no target any more. `lost`: the server has
    lost changes, so nothing is written until the target is created again."""

    pipeline: str
    source: str
    rows: str
    columns: StructType
    key: tuple[str, ...]
    last: Commit | None = None
    generation: int = 0
    era: int = 0
    serial: int = 0
    gone: bool = False
    lost: bool = False


class Records:
    def __init__(self, client: Client, database: str) -> None:
        self._client = client
        self._database = database
        self._table = f"{quoted(database)}.targets"

    def make(self) -> None:
        """Creates the table if it is missing."""
        self._client.run(f"CREATE DATABASE IF NOT EXISTS {quoted(self._database)}")
        self._client.run(
            f"CREATE TABLE IF NOT EXISTS {self._table} (target String, era UInt64, generation UInt64, "
            "serial UInt64, record String) ENGINE = ReplacingMergeTree(serial) "
            "ORDER BY (target, era, generation)"
        )

    def find(self, target: str) -> Record | None:
        """The newest record of a target. None: there is no target."""
        found = self.newest(target)
        return None if found is None or found.gone else found

    def newest(self, target: str) -> Record | None:
        """The newest record of a target, even if that says that the target was removed."""
        found = self._client.rows(
            f"SELECT record, generation, era, serial FROM {self._table} WHERE target = {text(target)} "
            "ORDER BY era DESC, generation DESC, serial DESC LIMIT 1"
        )
        if not found:
            return None
        held = json.loads(found[0][0])
        last = held["last"]
        generation, era, serial = map(int, found[0][1:])
        return Record(
            held["pipeline"],
            held["source"],
            held["rows"],
            StructType.fromJson(json.loads(held["columns"])),
            tuple(held["key"]),
            None if last is None else Commit(held["pipeline"], *last),
            generation,
            era,
            serial,
            held["gone"],
            held["lost"],
        )

    def put(self, target: str, record: Record) -> Record:
        """Adds a record, which is then the newest one of its target."""
        made = replace(record, serial=record.serial + 1)
        numbers = [str(one) for one in (made.era, made.generation, made.serial)]
        values = ", ".join([text(target), *numbers, text(_document(made))])
        self._client.run(f"INSERT INTO {self._table} VALUES ({values})")
        return made


def _document(record: Record) -> str:
    return json.dumps(
        {
            "pipeline": record.pipeline,
            "source": record.source,
            "format": FORMAT,
            "rows": record.rows,
            "columns": json.dumps(record.columns.jsonValue(), ensure_ascii=False),
            "key": list(record.key),
            "last": None if record.last is None else list(record.last.place),
            "gone": record.gone,
            "lost": record.lost,
        },
        ensure_ascii=False,
    )
