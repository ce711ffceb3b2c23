"""The sink's own index: one document for each target, with its last commit.

A document changes only if it is still the one that was read (`if_seq_no`), so two drivers cannot both change
it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.types import StructType

from penstock.sinks.base import FORMAT, Commit
from penstock.sinks.opensearch.client import Client, quoted

_INDEX = {
    "settings": {"index.number_of_shards": 1, "index.auto_expand_replicas": "0-1"},
    "mappings": {"dynamic": False, "properties": {"pipeline": {"type": "keyword"}}},
}


@dataclass(frozen=True)
class Record:
    """The record of a target. `backing`: the index behind the alias. `uuid`: the server's identity of it.
    `empty`: it certainly has no documents. `lost`: the server has lost changes, so nothing is written until
    the target is created again. `place`: sequence number and primary term of the document; None: it is
    new."""

    pipeline: str
    source: str
    backing: str
    columns: StructType
    key: tuple[str, ...]
    last: Commit | None = None
    generation: int = 0
    uuid: str = ""
    empty: bool = True
    lost: bool = False
    place: tuple[int, int] | None = None

    @property
    def writer(self) -> str:
        """The alias through which rows are written. A driver that was replaced does not have it."""
        return writer_of(self.backing, self.generation)


def writer_of(backing: str, generation: int) -> str:
    return f"{backing}~g{generation}"


_PLACE = {"_seq_no": int, "_primary_term": int}
_STORED = {
    **_PLACE,
    "_source": {
        "pipeline": str, "source": str, "backing": str, "columns": str, "key": [str], "last": (None, [int]),
        "generation": int, "uuid": str, "empty": bool, "lost": bool,
    },
}  # fmt: skip
"""Of answers: what is read here."""


class Records:
    def __init__(self, client: Client, index: str) -> None:
        self._client = client
        self._index = index

    def make(self) -> None:
        """Creates the index if it is missing."""
        if self._client.ask("HEAD", f"/{quoted(self._index)}", accept=(404,)) is None:
            self._client.ask("PUT", f"/{quoted(self._index)}", _INDEX, accept=(400,))  # 400: it exists by now

    def find(self, name: str) -> Record | None:
        found = self._client.ask("GET", self._path(name), accept=(404,), shape=_STORED)
        if found is None:
            return None
        held = found["_source"]
        last = held["last"]
        return Record(
            held["pipeline"],
            held["source"],
            held["backing"],
            StructType.fromJson(json.loads(held["columns"])),
            tuple(held["key"]),
            None if last is None else Commit(held["pipeline"], *last),
            held["generation"],
            held["uuid"],
            held["empty"],
            held["lost"],
            (found["_seq_no"], found["_primary_term"]),
        )

    def put(self, name: str, record: Record) -> Record | None:
        """Stores a record. Returns None if somebody else has changed it since it was read."""
        condition = "op_type=create"
        if record.place is not None:
            condition = "if_seq_no={}&if_primary_term={}".format(*record.place)
        answer = self._client.ask("PUT", f"{self._path(name)}?{condition}", _document(record), accept=(409,),
                                  shape=_PLACE)  # fmt: skip
        if answer is None:
            return None
        return replace(record, place=(answer["_seq_no"], answer["_primary_term"]))

    def remove(self, name: str) -> None:
        self._client.ask("DELETE", self._path(name), accept=(404,))

    def _path(self, name: str) -> str:
        return f"/{quoted(self._index)}/_doc/{quoted(name)}"


def _document(record: Record) -> dict[str, Any]:
    return {
        "pipeline": record.pipeline,
        "source": record.source,
        "format": FORMAT,
        "backing": record.backing,
        "columns": json.dumps(record.columns.jsonValue(), ensure_ascii=False),
        "key": list(record.key),
        "last": None if record.last is None else list(record.last.place),
        "generation": record.generation,
        "uuid": record.uuid,
        "empty": record.empty,
        "lost": record.lost,
    }
