"""Chunks of a snapshot: what is to be read, what was read, between which marks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.model.offset import Offset, SourcePosition
from penstock.model.partial_snapshot import KeyValues
from penstock.model.schema import TableId


@dataclass(frozen=True)
class Chunk:
    """A primary-key range `[lower, upper)` of one table.

    Bounds are tuples of SQL literals, one per key column, as the server itself printed them (so the server
    compares them, never we); `None` means open-ended. The first chunk of a table has no lower bound and the
    last no upper bound, so rows beyond MIN and MAX at planning time belong to a chunk as well.
    """

    table: TableId
    number: int
    lower: tuple[str, ...] | None
    upper: tuple[str, ...] | None
    snapshot: int = 0
    """Number of the partial snapshot that it belongs to; 0: the table's own snapshot."""
    condition: str = ""
    """SQL: only rows for which it is true."""
    keys: tuple[KeyValues, ...] = ()
    """Only rows with these keys; those that are not there are deleted at the target."""

    def part(self) -> dict[str, Any]:
        """What is not said by number and bounds."""
        fields = {"condition": self.condition, "keys": self.keys}
        return {name: value for name, value in fields.items() if value}


@dataclass(frozen=True)
class Watermarks:
    """What the source had committed around a chunk's SELECT.

    `low` (GTID set as text) claims no more than was visible; `high` (end of the binary log) claims no less.
    Where `low_position` is given, all that the binary log holds up to there was visible too. Where
    `high_gtids` (GTID set as text) is given, the chunk was read from a replica: the set claims no less than
    was visible, and `high` says nothing.
    """

    low: str
    high: SourcePosition
    low_position: SourcePosition | None = None
    high_gtids: str | None = None


@dataclass(frozen=True)
class StagedChunk:
    """One finished attempt at a chunk: the manifest that lies beside its rows.

    `server_uuid` is the server whose log the marks speak of (the chunk may be read from a replica of it),
    `bytes` the size of the staged file, `checksum` its SHA-256, `bytes_read` what the server sent. A plan
    names `attempt` and `checksum`, so no other attempt is ever placed in its stead. `at`: the rows are those
    of this very offset in the log; None: they may be of any moment between the marks.
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
            "low": self.watermarks.low,
            "high_file": self.watermarks.high.file,
            "high_position": self.watermarks.high.position,
            "server_uuid": self.server_uuid,
            "bytes_read": self.bytes_read,
            **_position_to_json(self.watermarks.low_position),
            **({} if self.watermarks.high_gtids is None else {"high_gtids": self.watermarks.high_gtids}),
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
            watermarks=Watermarks(
                fields["low"],
                SourcePosition(fields["high_file"], fields["high_position"]),
                _position_from_json(fields),
                fields.get("high_gtids"),
            ),
            server_uuid=fields["server_uuid"],
            bytes_read=fields.get("bytes_read", 0),
            at=Offset(fields["at"]) if "at" in fields else None,
        )


def _position_to_json(position: SourcePosition | None) -> dict[str, Any]:
    return {} if position is None else {"low_file": position.file, "low_position": position.position}


def _position_from_json(fields: dict[str, Any]) -> SourcePosition | None:
    return SourcePosition(fields["low_file"], fields["low_position"]) if "low_file" in fields else None
