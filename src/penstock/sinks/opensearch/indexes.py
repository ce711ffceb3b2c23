"""The indexes behind the aliases of targets.

A target is an alias, and behind it one index at a time: the *backing* index. `TRUNCATE` and most changes of
definitions make a new one, fill it, and let the alias change in one step of the server, which removes the
old one, too. Its name contains the commit for which it was made, so a repetition knows that it was done.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StructType

from penstock.connections.answers import STRANGE, NoAnswer
from penstock.model.change import SEQUENCE
from penstock.sinks.base import Commit
from penstock.sinks.opensearch.client import Client, quoted
from penstock.sinks.opensearch.records import writer_of
from penstock.sinks.opensearch.values import fields_of, mapping

_FIELDS = "index.mapping.total_fields.limit"
_FIELDS_MIN = 1000
"""The server's own default."""
SCROLL = "10m"
"""How long the server keeps what a search has found, between two portions of it."""
PORTION_ROWS = 1000
"""Documents of one portion, if they are small."""
PORTION_BYTES = 8 * 1024**2
"""About so many bytes are in a portion."""
_INDEX = {"settings": {"index": {"uuid": str}}, "aliases": dict}
_ALIASES = {...: {"aliases": dict}}
_HITS = {"hits": {"hits": [{"_id": str}]}, "_scroll_id": str}
_WHOLE_HITS = {"hits": {"hits": [{"_id": str, "_source": dict}]}, "_scroll_id": str}
_STATS = {"_all": {"primaries": {"store": {"size_in_bytes": int}, "docs": {"count": int}}}}
"""Of answers: what is read here."""


@dataclass(frozen=True)
class Backing:
    """The index behind an alias."""

    name: str
    uuid: str
    aliases: frozenset[str]


class Indexes:
    """The indexes behind aliases. `settings`: those of new indexes."""

    def __init__(self, client: Client, settings: Mapping[str, str]) -> None:
        self._client = client
        self._settings = settings

    def behind(self, alias: str) -> Backing | None:
        """The index behind an alias, or the index of this name. None: there is neither."""
        found = self._client.ask("GET", f"/{quoted(alias)}", accept=(404,), shape={...: _INDEX})
        if found is None:
            return None
        if not found:
            raise NoAnswer(STRANGE)
        name, index = next(iter(found.items()))
        return Backing(name, index["settings"]["index"]["uuid"], frozenset(index["aliases"]))

    def make(
        self, name: str, columns: StructType, chosen: Mapping[str, Mapping[str, Any]], *aliases: str
    ) -> None:
        """Creates an index."""
        properties = mapping(columns, chosen)
        settings = {
            "index.translog.durability": "request",
            "index.gc_deletes": "10m",  # for longer, no request that came late can arrive
            _FIELDS: max(_FIELDS_MIN, 2 * fields_of(properties)),
            **self._settings,
        }
        body = {
            "settings": settings,
            "mappings": {"dynamic": False, "properties": properties},
            "aliases": {alias: {} for alias in aliases},
        }
        self._client.ask("PUT", f"/{quoted(name)}", body)

    def add_fields(self, name: str, columns: StructType, chosen: Mapping[str, Mapping[str, Any]]) -> None:
        properties = mapping(columns, chosen)
        limit = {_FIELDS: max(_FIELDS_MIN, 2 * fields_of(properties))}
        self._client.ask("PUT", f"/{quoted(name)}/_settings", limit)
        self._client.ask("PUT", f"/{quoted(name)}/_mapping", {"properties": properties})

    def replace(self, alias: str, old: str, new: str, generation: int) -> None:
        """Lets the alias mean another index, and removes the one that it meant, in one step."""
        self.refresh(new)
        actions = [
            {"add": {"index": new, "alias": alias}},
            {"add": {"index": new, "alias": writer_of(new, generation)}},
            {"remove_index": {"index": old}},
        ]
        self._client.ask("POST", "/_aliases", {"actions": actions})

    def fence(self, backing: Backing, generation: int) -> None:
        """Makes this driver the only one that can write to the target from now on."""
        new = writer_of(backing.name, generation)
        old = [one for one in backing.aliases if one.startswith(f"{backing.name}~g") and one != new]
        actions: list[dict[str, Any]] = [{"add": {"index": backing.name, "alias": new}}]
        actions += [{"remove": {"index": backing.name, "alias": one}} for one in old]
        self._client.ask("POST", "/_aliases", {"actions": actions})

    def left_over(self, alias: str, current: str) -> list[str]:
        """Indexes that were created for this alias and never put behind it."""
        found = self._client.ask("GET", f"/{quoted(alias)}~*/_alias", accept=(404,), shape=_ALIASES) or {}
        return [name for name, one in found.items() if name != current and alias not in one["aliases"]]

    def remove(self, name: str) -> None:
        self._client.ask("DELETE", f"/{quoted(name)}", accept=(404,))

    def refresh(self, name: str) -> None:
        """Makes everything that was written visible to searches."""
        self._client.ask("POST", f"/{quoted(name)}/_refresh")

    def is_empty(self, name: str) -> bool:
        self.refresh(name)
        answer = self._client.ask("GET", f"/{quoted(name)}/_count", shape={"count": int})
        return bool(answer["count"] == 0)

    def portions(self, name: str, query: Mapping[str, Any], *, whole: bool) -> Iterator[list[dict[str, Any]]]:
        """The documents that a query finds now, with `_id` and, if `whole`, `_source`."""
        self.refresh(name)
        size = self._portion_rows(name) if whole else PORTION_ROWS
        body = {"size": size, "query": query, "sort": ["_doc"], "_source": whole}
        shape = _WHOLE_HITS if whole else _HITS
        answer = self._client.ask("POST", f"/{quoted(name)}/_search?scroll={SCROLL}", body, shape=shape)
        try:
            while hits := answer["hits"]["hits"]:
                yield hits
                body = {"scroll": SCROLL, "scroll_id": answer["_scroll_id"]}
                answer = self._client.ask("POST", "/_search/scroll", body, shape=shape)
        finally:
            self._client.ask("DELETE", "/_search/scroll", {"scroll_id": answer["_scroll_id"]}, accept=(404,))

    def _portion_rows(self, name: str) -> int:
        found = self._client.ask("GET", f"/{quoted(name)}/_stats/store,docs", shape=_STATS)
        found = found["_all"]["primaries"]
        each = found["store"]["size_in_bytes"] / max(1, found["docs"]["count"])
        return int(max(1, min(PORTION_ROWS, PORTION_BYTES / max(1, each))))


def older_than(sequence: int) -> dict[str, Any]:
    return {"range": {SEQUENCE: {"lt": sequence}}}


def backing_name(alias: str, commit: Commit, generation: int) -> str:
    """The name of the index that a commit creates."""
    return f"{alias}~{commit.epoch}-{commit.step}-{generation}"


def made_for(alias: str, backing: str) -> tuple[int, int]:
    """The commit that has made an index. (0, 0): none, it was created with the target."""
    match = re.fullmatch(r"(\d+)-(\d+)-\d+", backing.removeprefix(f"{alias}~"))
    return (int(match[1]), int(match[2])) if match else (0, 0)
