"""What a snapshot of an unpartitioned Iceberg table consists of, read from its manifests.

Planning a scan tells it too, but says with each data file all the deletes that concern it: after hundreds of
small commits those are hundreds for each of hundreds of files.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.sinks.files import field_id
from penstock.sinks.lake.iceberg.files import Classes, bounds, each, local_path
from penstock.sinks.lake.lookup import DataFile, KeyFile, Unsearchable
from penstock.sinks.lake.vectors import Vector

Key = int | bytes
"""Of which the order is the same everywhere: an integer, or a text as UTF-8."""


@dataclass(frozen=True)
class Content:
    """A file as Iceberg describes it. `sequence`: of the commit that added it; equality deletes concern the
    rows of files with a lower one."""

    described: Mapping[str, Any]
    sequence: int

    @property
    def location(self) -> str:
        return str(self.described["file-path"])

    @property
    def path(self) -> str:
        return str(local_path(self.location))

    @property
    def rows(self) -> int:
        return int(self.described["record-count"])

    @property
    def size(self) -> int:
        """In bytes."""
        return int(self.described["file-size-in-bytes"])

    @cached_property
    def lower(self) -> dict[int, bytes]:
        return _bounds(self.described.get("lower-bounds"))

    @cached_property
    def upper(self) -> dict[int, bytes]:
        return _bounds(self.described.get("upper-bounds"))

    def told(self, classes: Classes, target: Any) -> Any:
        """For Iceberg."""
        return classes.described(self.described, target.spec())

    def keys(self) -> KeyFile:
        """Of an equality delete."""
        return KeyFile(self.path, tuple(self.described["equality-ids"]), self.sequence)

    def searched(self, vector: Vector | None) -> DataFile:
        return DataFile(self.location, self.path, self.rows, vector, self.sequence)


@dataclass(frozen=True)
class Deletes:
    """`equality`: files of keys. `vectors`: by the location of their data file."""

    equality: Sequence[Content]
    vectors: Mapping[str, Content]

    def vector(self, location: str) -> Vector | None:
        found = self.vectors.get(location)
        if found is None:
            return None
        place, size = (found.described[name] for name in ("content-offset", "content-size-in-bytes"))
        return Vector(found.path, place, size)


def data_files(classes: Classes, target: Any, snapshot: Any) -> Iterator[Content]:
    """Raises `Unsearchable` if some are from when the table had other partitions."""
    for manifest in snapshot.dataManifests(target.io()):
        yield from _contents(classes, target, classes.data_manifest(manifest, target.io(), target.specs()))


def deletes(classes: Classes, target: Any, snapshot: Any) -> Deletes:
    """Raises `Unsearchable` as `data_files` does, and if there are position deletes of format version 2."""
    equality, vectors = [], {}
    for manifest in snapshot.deleteManifests(target.io()):
        reader = classes.delete_manifest(manifest, target.io(), target.specs())
        for found in _contents(classes, target, reader):
            if "equality-ids" in found.described:
                equality.append(found)
            elif "content-offset" in found.described:
                vectors[found.described["referenced-data-file"]] = found
            else:
                raise Unsearchable(f"{found.location} holds position deletes of format version 2")
    return Deletes(equality, vectors)


def _contents(classes: Classes, target: Any, reader: Any) -> Iterator[Content]:
    spec = target.spec()
    if reader.spec().specId() != spec.specId():
        reader.close()
        raise Unsearchable("the table has had other partitions")
    for one in each(reader):
        yield Content(json.loads(classes.content_json(one, spec)), one.dataSequenceNumber())


@dataclass(frozen=True)
class KeySpan:
    """The least and the greatest values of a key's columns, by Iceberg field id."""

    least: Mapping[int, Key]
    greatest: Mapping[int, Key]

    @classmethod
    def of_files(cls, paths: Sequence[str], fields: pa.Schema) -> KeySpan:
        """Of files of keys that are in no table yet."""
        texts = {field_id(field) for field in fields if field.type == pa.string()}
        found = [cls._of(*bounds(pq.read_metadata(path)), texts) for path in paths]
        whole = [number for number in found[0].least if all(number in one.least for one in found)]
        return cls(
            {number: min(one.least[number] for one in found) for number in whole},
            {number: max(one.greatest[number] for one in found) for number in whole},
        )

    @classmethod
    def of_delete(cls, delete: Content, texts: Container[int]) -> KeySpan:
        """Of an equality delete. `texts`: columns that hold texts."""
        return cls._of(delete.lower, delete.upper, texts)

    @classmethod
    def _of(
        cls, lower: Mapping[int, bytes], upper: Mapping[int, bytes], texts: Container[int | None]
    ) -> KeySpan:
        least, greatest = (
            {number: _comparable(value, number in texts) for number, value in bound.items()}
            for bound in (lower, upper)
        )
        return cls(least, greatest)

    def may_be_in(self, file: Content) -> bool:
        """Whether a data file may have a row with one of the keys."""
        for number, least in self.least.items():
            if number not in file.lower or number not in file.upper:
                continue
            is_text = isinstance(least, bytes)
            low, high = (_comparable(bound[number], is_text) for bound in (file.lower, file.upper))
            if high < least or low > self.greatest[number]:  # type: ignore[operator]
                return False
        return True


def _bounds(described: Mapping[str, Any] | None) -> dict[int, bytes]:
    if described is None:
        return {}
    return {
        number: bytes.fromhex(value)
        for number, value in zip(described["keys"], described["values"], strict=True)
    }


def _comparable(value: bytes, is_text: bool) -> Key:
    """An integer has 4 or 8 bytes: a file may be older than its column's wider type."""
    if is_text:
        return value
    found: int = struct.unpack("<i" if len(value) == 4 else "<q", value)[0]
    return found
