"""The sink's own table: one row for each target, with its last commit.

A row changes only if it is still the one that was read (`checkAndMutate`), so two drivers cannot both change
it. It is never deleted: a deletion could hide what is written in the same millisecond.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql.types import StructType

from penstock.sinks.base import FORMAT, Commit
from penstock.sinks.hbase.cluster import Cluster, ClusterError
from penstock.sinks.hbase.values import Form

_FAMILY, _QUALIFIER = b"r", b"record"
_REMOVED = b"-"


@dataclass(frozen=True)
class Record:
    """The record of a target. `target`: a number that the table has, too. `revision`: how often its rows were
    rewritten. `form`: how its values are written. `empty`: it certainly has no rows. `lost`: the cluster has
    lost changes, so nothing is written until the target is created again. `text`: what the cluster has of it.
    None: nothing."""

    pipeline: str
    source: str
    target: str
    columns: StructType
    key: tuple[str, ...]
    last: Commit | None = None
    generation: int = 0
    revision: int = 0
    form: Form = field(default_factory=Form)
    empty: bool = True
    lost: bool = False
    text: bytes | None = None

    @property
    def names(self) -> list[str]:
        return list(self.columns.names)


class Records:
    def __init__(self, cluster: Cluster, table: str) -> None:
        namespace, _, name = table.rpartition(":")
        self._cluster = cluster
        self._namespace, self._short = namespace or "default", name
        self._made = False
        self._guard = threading.Lock()

    @property
    def _name(self) -> Any:
        return self._cluster.name(self._namespace, self._short)

    def make(self) -> None:
        """Creates the table if it is missing."""
        with self._guard:
            if self._made:
                return
            if not self._cluster.exists(self._name):
                self._cluster.make_namespace(self._namespace)
                try:
                    self._cluster.make_table(self._name, {}, _FAMILY, {})
                except ClusterError as error:
                    if "TableExistsException" not in error.kinds:  # somebody else was quicker
                        raise
            self._made = True

    def find(self, place: str) -> Record | None:
        text = self._text(place)
        return None if text is None or text == _REMOVED else _record(text)

    def _text(self, place: str) -> bytes | None:
        try:
            with self._cluster.table(self._name) as table:
                row = table.get(self._cluster.client.Get(_key(place)))
                found = row.getValue(_FAMILY, _QUALIFIER)
        except ClusterError as error:
            if "TableNotFoundException" in error.kinds:
                return None
            raise
        return None if found is None else bytes(found)

    def put(self, place: str, record: Record) -> Record | None:
        """Stores a record. Returns None if somebody else has changed it since it was read."""
        text = _text_of(record)
        return replace(record, text=text) if self._swap(place, record.text, text) else None

    def put_first(self, place: str, record: Record) -> Record | None:
        """Stores a record, whatever record the target has."""
        return self.put(place, replace(record, text=self._text(place)))

    def remove(self, place: str) -> None:
        before = self._text(place)
        if before is not None and before != _REMOVED:
            self._swap(place, before, _REMOVED)

    def _swap(self, place: str, before: bytes | None, after: bytes) -> bool:
        client, key = self._cluster.client, _key(place)
        check = client.CheckAndMutate.newBuilder(key)
        if before is None:
            check.ifNotExists(_FAMILY, _QUALIFIER)
        else:
            check.ifEquals(_FAMILY, _QUALIFIER, before)
        put = client.Put(key).addColumn(_FAMILY, _QUALIFIER, after)
        with self._cluster.table(self._name) as table:
            return bool(table.checkAndMutate(check.build(put)).isSuccess())


def _key(place: str) -> bytes:
    return place.encode("utf-8", "surrogatepass")


def _text_of(record: Record) -> bytes:
    held = {
        "pipeline": record.pipeline,
        "source": record.source,
        "format": FORMAT,
        "target": record.target,
        "columns": record.columns.jsonValue(),
        "key": list(record.key),
        "last": None if record.last is None else list(record.last.place),
        "generation": record.generation,
        "revision": record.revision,
        "native": record.form.native,
        "ordered": record.form.ordered,
        "upper": record.form.upper,
        "empty": record.empty,
        "lost": record.lost,
    }
    return json.dumps(held).encode()


def _record(text: bytes) -> Record:
    held = json.loads(text)
    last = held["last"]
    return Record(
        held["pipeline"],
        held["source"],
        held["target"],
        StructType.fromJson(held["columns"]),
        tuple(held["key"]),
        None if last is None else Commit(held["pipeline"], *last),
        held["generation"],
        held["revision"],
        Form(held["native"], held["ordered"], held["upper"]),
        held["empty"],
        held["lost"],
        text,
    )
