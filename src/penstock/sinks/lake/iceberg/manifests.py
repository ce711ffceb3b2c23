"""Reads the files of a snapshot of an Iceberg table from its manifests.

Iceberg's own scan planning would repeat with each data file all the deletes that concern it: after hundreds
of small commits, hundreds of deletes for each of hundreds of files.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from penstock.sinks.files import WrittenFile, field_id
from penstock.sinks.lake.iceberg.files import Classes, bounds
from penstock.sinks.lake.lookup import DataFile, KeyFile, Unsearchable
from penstock.sinks.lake.vectors import Deleted, Positions, Vector

_COMPARABLE_ARROW = (pa.int32(), pa.int64(), pa.date32(), pa.string())

FILE_PATH, POSITION = 2147483546, 2147483545
"""Field ids of the columns of files with position deletes. Source: Iceberg's specification, "Reserved Field
IDs"."""

_SHORT = ("spec-id", "content", "file-path", "file-format", "partition", "file-size-in-bytes", "record-count")
_BOUNDS = ("lower-bounds", "upper-bounds")

Key = int | bytes
"""A value of a key: an integer, or a text as UTF-8. Iceberg, Parquet and Python order these in the same
way."""


@dataclass(frozen=True)
class Content:
    """A data file or delete file, as Iceberg describes it in JSON. `sequence`: the sequence number of its
    commit. Equality deletes concern the rows of data files with a lower one."""

    described: Mapping[str, Any]
    sequence: int

    @property
    def location(self) -> str:
        return str(self.described["file-path"])

    @property
    def partition(self) -> tuple[int, str]:
        """The file's partition: id of its spec, and its values in JSON."""
        return int(self.described["spec-id"]), json.dumps(self.described["partition"])

    @property
    def rows(self) -> int:
        return int(self.described["record-count"])

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return int(self.described["file-size-in-bytes"])

    @property
    def is_parquet(self) -> bool:
        return str(self.described["file-format"]).upper() == "PARQUET"

    @cached_property
    def lower(self) -> dict[int, bytes]:
        return _bounds(self.described.get("lower-bounds"))

    @cached_property
    def upper(self) -> dict[int, bytes]:
        return _bounds(self.described.get("upper-bounds"))

    def short(self, bounded: Container[int]) -> Content:
        """The same file without the fields that only readers of its rows need. `bounded`: ids of the columns
        whose bounds stay."""
        kept = {name: self.described[name] for name in _SHORT}
        for name in _BOUNDS:
            if (found := self.described.get(name)) is not None:
                pairs = zip(found["keys"], found["values"], strict=True)
                kept[name] = _pairs([pair for pair in pairs if pair[0] in bounded])
        return replace(self, described=kept)

    def keys(self) -> KeyFile:
        """The keys of an equality delete."""
        return KeyFile(self.location, self.size, tuple(self.described["equality-ids"]), self.sequence)

    def searched(self, vector: Deleted | None) -> DataFile:
        """The file in the form in which it is searched for keys. Raises `Unsearchable` for files of other
        formats, which tables of others may have."""
        if not self.is_parquet:
            raise Unsearchable(f"{self.location} is no Parquet file")
        return DataFile(self.location, self.location, self.size, self.rows, vector, self.sequence)


@dataclass(frozen=True)
class Deletes:
    """The deletes of a snapshot. `equality`: files of keys. `vectors`: deletion vectors, or files of position
    deletes, by the location of their data file."""

    equality: Sequence[Content]
    vectors: Mapping[str, Sequence[Content]]

    def rows(self, location: str) -> int:
        """How many rows of a data file the vectors delete. Two files of position deletes may have the same
        ones."""
        return sum(one.rows for one in self.vectors.get(location, ()))

    def vector(self, location: str) -> Deleted | None:
        several = self.vectors.get(location)
        if several is None:
            return None
        for found in several:  # a vector has all positions, also those of files from an earlier version
            if "content-offset" in found.described:
                place, size = (found.described[name] for name in ("content-offset", "content-size-in-bytes"))
                return Vector(found.location, place, size)
        return Positions(tuple((found.location, found.size) for found in several))


def data_files(classes: Classes, target: Any, snapshot: Any) -> Iterator[Content]:
    """The data files of a snapshot, with any partitions that the table has had."""
    for manifest in snapshot.dataManifests(target.io()):
        yield from _contents(classes, classes.data_manifest(manifest, target.io(), target.specs()))


def deletes(classes: Classes, target: Any, snapshot: Any) -> Deletes:
    """The deletes of a snapshot. Raises `Unsearchable` for position deletes that concern several data files,
    and for equality deletes that concern only one partition: Penstock writes neither."""
    equality: list[Content] = []
    vectors: dict[str, list[Content]] = {}
    for manifest in snapshot.deleteManifests(target.io()):
        reader = classes.delete_manifest(manifest, target.io(), target.specs())
        whole_table = reader.spec().isUnpartitioned()
        for found in _contents(classes, reader):
            if "equality-ids" in found.described:
                if not whole_table:
                    raise Unsearchable(f"{found.location} deletes rows of one partition only")
                equality.append(found)
            else:
                vectors.setdefault(_data_file_of(found), []).append(found)
    return Deletes(equality, vectors)


def _data_file_of(deletes: Content) -> str:
    """The location of the only data file that a vector or a file of position deletes concerns."""
    if (named := deletes.described.get("referenced-data-file")) is not None:
        return str(named)
    least, greatest = deletes.lower.get(FILE_PATH), deletes.upper.get(FILE_PATH)
    if least is None or least != greatest or not deletes.is_parquet:
        raise Unsearchable(f"{deletes.location} deletes rows of several data files")
    return least.decode()


def _contents(classes: Classes, reader: Any) -> Iterator[Content]:
    for form, sequence in classes.contents(reader):
        yield Content(form, sequence)


@dataclass(frozen=True)
class KeySpan:
    """The least and the greatest values of a key's columns, by Iceberg field id."""

    least: Mapping[int, Key]
    greatest: Mapping[int, Key]

    @classmethod
    def of_files(cls, files: Sequence[WrittenFile], fields: pa.Schema) -> KeySpan:
        """The span of files of keys that are not in a table."""
        kinds = {
            number: field.type == pa.string()
            for field in fields
            if (number := field_id(field)) is not None and field.type in _COMPARABLE_ARROW
        }
        found = [cls._of(*bounds(file, fields), kinds) for file in files]
        whole = [number for number in found[0].least if all(number in one.least for one in found)]
        return cls(
            {number: min(one.least[number] for one in found) for number in whole},
            {number: max(one.greatest[number] for one in found) for number in whole},
        )

    @classmethod
    def of_delete(cls, delete: Content, kinds: Mapping[int, bool]) -> KeySpan:
        """The span of an equality delete. `kinds`: see `comparable`."""
        return cls._of(delete.lower, delete.upper, kinds)

    @classmethod
    def _of(
        cls, lower: Mapping[int, bytes], upper: Mapping[int, bytes], kinds: Mapping[int, bool]
    ) -> KeySpan:
        least, greatest = (
            {
                number: _comparable(value, kinds[number])
                for number, value in bound.items()
                if number in kinds and number in lower and number in upper
            }
            for bound in (lower, upper)
        )
        return cls(least, greatest)

    def may_be_in(self, file: Content) -> bool:
        """Whether a data file may contain a row with one of the keys."""
        for number, least in self.least.items():
            if number not in file.lower or number not in file.upper:
                continue
            is_text = isinstance(least, bytes)
            low, high = (_comparable(bound[number], is_text) for bound in (file.lower, file.upper))
            if high < least or low > self.greatest[number]:  # type: ignore[operator]
                return False
        return True


def comparable(columns: Iterable[Mapping[str, Any]]) -> dict[int, bool]:
    """The columns of a table whose bounds can be compared, by field id, and whether they are texts.
    `columns`: see `schema_fields`."""
    return {
        column["id"]: column["type"] == "string"
        for column in columns
        if column["type"] in ("int", "long", "date", "string")
    }


def _pairs(pairs: Sequence[tuple[int, str]]) -> dict[str, list[Any]]:
    return {"keys": [number for number, _ in pairs], "values": [value for _, value in pairs]}


def _bounds(described: Mapping[str, Any] | None) -> dict[int, bytes]:
    if described is None:
        return {}
    return {
        number: bytes.fromhex(value)
        for number, value in zip(described["keys"], described["values"], strict=True)
    }


def _comparable(value: bytes, is_text: bool) -> Key:
    """The value of a bound. An integer has 4 or 8 bytes: its file may be older than the column's wider
    type."""
    if is_text:
        return value
    found: int = struct.unpack("<i" if len(value) == 4 else "<q", value)[0]
    return found
