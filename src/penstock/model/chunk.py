"""Chunks of a snapshot: what is read, what was read, and between which watermarks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.model.offset import Offset
from penstock.model.partial_snapshot import KeyValues
from penstock.model.schema import TableId


@dataclass(frozen=True)
class Chunk:
    """A range `[lower, upper)` of the primary key of one table.

    Bounds are tuples of SQL literals, one per key column, as the server printed them. Only the server
    compares them. `None` means open-ended. The first chunk of a table has no lower bound and the last one no
    upper bound, so rows beyond the MIN and MAX at planning time belong to a chunk, too.
    """

    table: TableId
    number: int
    lower: tuple[str, ...] | None
    upper: tuple[str, ...] | None
    snapshot: int = 0
    """The number of its partial snapshot. 0: the table's own snapshot."""
    condition: str = ""
    """An SQL condition: only rows for which it is true are read."""
    keys: tuple[KeyValues, ...] = ()
    """If there are any, only rows with these keys are read. Keys that are not found are deleted at the
    target."""

    def part(self) -> dict[str, Any]:
        """The fields other than number and bounds."""
        fields = {"condition": self.condition, "keys": self.keys}
        return {name: value for name, value in fields.items() if value}


@dataclass(frozen=True)
class Watermarks:
    """What a source had committed around a read, in the source's own words.

    Only the source that took them reads them (`sources.windows.Windows`). Everybody else stores them.
    """

    fields: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Watermarks:
        return cls(tuple(sorted(fields.items())))

    def to_json(self) -> dict[str, Any]:
        return dict(self.fields)


@dataclass(frozen=True)
class StagedChunk:
    """The manifest of one finished attempt at a chunk. It is stored beside the rows.

    `server_uuid`: the server in whose log the watermarks are; the chunk may be read from a replica of it.
    `bytes`: the size of the staged file. `checksum`: its SHA-256. `bytes_read`: bytes that the server sent. A
    plan names `attempt` and `checksum`, so no other attempt is ever placed instead. `at`: the rows are
    exactly those of this offset in the log. None: they are of some moment between the watermarks.
    """

    chunk: Chunk
    attempt: str
    path: str
    rows: int
    bytes: int
    checksum: str
    schema_version: int
    watermarks: Watermarks
    server_uuid: str
    bytes_read: int = 0
    at: Offset | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "table": str(self.chunk.table),
            "number": self.chunk.number,
            "lower": self.chunk.lower,
            "upper": self.chunk.upper,
            **({"snapshot": self.chunk.snapshot} if self.chunk.snapshot else {}),
            **self.chunk.part(),
            "attempt": self.attempt,
            "path": self.path,
            "rows": self.rows,
            "bytes": self.bytes,
            "checksum": self.checksum,
            "schema_version": self.schema_version,
            **self.watermarks.to_json(),
            "server_uuid": self.server_uuid,
            "bytes_read": self.bytes_read,
            **({} if self.at is None else {"at": self.at}),
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> StagedChunk:
        def bound(value: list[str] | None) -> tuple[str, ...] | None:
            return None if value is None else tuple(value)

        return cls(
            chunk=Chunk(
                TableId.parse(fields["table"]),
                fields["number"],
                bound(fields["lower"]),
                bound(fields["upper"]),
                fields.get("snapshot", 0),
                fields.get("condition", ""),
                tuple(tuple(key) for key in fields.get("keys", ())),
            ),
            attempt=fields["attempt"],
            path=fields["path"],
            rows=fields["rows"],
            bytes=fields["bytes"],
            checksum=fields["checksum"],
            schema_version=fields["schema_version"],
            watermarks=Watermarks.of(
                {name: value for name, value in fields.items() if name not in _OWN_FIELDS}
            ),
            server_uuid=fields["server_uuid"],
            bytes_read=fields.get("bytes_read", 0),
            at=Offset(fields["at"]) if "at" in fields else None,
        )


_OWN_FIELDS = frozenset(
    {
        "table", "number", "lower", "upper", "snapshot", "condition", "keys", "attempt", "path", "rows",
        "bytes", "checksum", "schema_version", "server_uuid", "bytes_read", "at",
    }
)  # fmt: skip
"""The fields of a manifest. All others belong to the watermarks."""
