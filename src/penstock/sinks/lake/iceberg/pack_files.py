"""Merges small files without Spark. Rows are copied as Arrow, except deleted ones.

Iceberg's own action converts them to rows. It takes a quarter of a minute for two hundred files on two cores
that are busy with the stream: in that time, the stream writes more than two hundred new files.

A new file gets the sequence number of the snapshot from which its rows were read. So equality deletes of
others that are committed meanwhile concern it just as they concern the files that it replaces. Vectors may be
written meanwhile, too, by small commits above all: what they delete in the old files is deleted in the new
ones by vectors of the same commit (`carry_over.py`). Iceberg refuses the commit if somebody writes a vector
for one of the old files at the very moment, or has removed one of them. Rows keep their lineage: the values
that Iceberg would derive from their old place (`_row_id`, `_last_updated_sequence_number`) are written with
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from penstock.sinks.lake import vectors
from penstock.sinks.lake.iceberg.carry_over import Move, carried_over
from penstock.sinks.lake.iceberg.files import (
    ADD_DATA,
    ADD_VECTORS,
    DELETE_DATA,
    DELETE_DELETES,
    Classes,
    description,
    file_writer,
    is_refused,
    removed_if_refused,
    schema_fields,
)
from penstock.sinks.lake.iceberg.manifests import Content, Deletes, data_files, deletes
from penstock.sinks.lake.iceberg.mark_rows import Placed, new_vectors
from penstock.sinks.lake.iceberg.row_reader import LINEAGE, Reader
from penstock.sinks.lake.iceberg.stream import Stream
from penstock.sinks.lake.lookup import deleted_rows
from penstock.store.files import Files, Folder

INPUT_BYTES_MAX = 256 * 1024**2
"""Size of the files that are merged at a time. Meanwhile no larger epoch can be merged into the table."""
TRIES_MAX = 10
"""How often the commit is tried while another process makes small commits."""


@dataclass(frozen=True)
class Tier:
    """A rule: `count` files that are smaller than `below` bytes are merged into files of about `aim` bytes.
    `deleted`: it counts only files in which at least this share of the rows is deleted."""

    below: int
    aim: int
    count: int
    deleted: float = 0.0


def pack(spark: SparkSession, classes: Classes, target: Any, tier: Tier, stream: Stream) -> bool:
    """Merges small files. False, with nothing done: there are too few files that can be merged here.
    `stream`: small commits that may go on meanwhile.

    Raises `Unsearchable`, and Iceberg's errors if somebody else has changed the same files."""
    snapshot, writer = target.currentSnapshot(), file_writer(classes, target)
    if snapshot is None or writer is None or {*LINEAGE.names} & {*writer.fields.names}:
        return False
    present = deletes(classes, target, snapshot)
    small = by_partition(
        file
        for file in data_files(classes, target, snapshot)
        if file.size < tier.below and present.rows(file.location) >= tier.deleted * file.rows
    )
    groups = {partition: files for partition, files in small.items() if len(files) >= tier.count}
    if any(spec != target.spec().specId() for spec, _ in groups):
        return False  # Spark moves the rows of these files to the present partitions
    files = writer.folder.files
    lineage = LINEAGE if classes.is_v3(target) else pa.schema([])
    known = partial(classes.identity_columns, target)
    columns = schema_fields(classes, target)
    reader = Reader.of(columns, writer.fields, files, lineage, in_partitions=known)
    bins = list(_all_bins(groups.values(), reader, tier))
    if not bins:
        return False
    reader = replace(reader, deleted=_deleted(spark, files, [file for one in bins for file in one], present))
    writer = replace(writer, fields=pa.schema([*writer.fields, *lineage]), layout=None)
    moves: list[Move] = []
    locations: list[str] = []
    spec = target.spec().specId()
    with removed_if_refused(target, files, locations):
        for one in bins:
            partition = tuple(one[0].described["partition"])
            added = []
            for file in writer.files(batch for content in one for batch in reader.batches(content)):
                locations.append(file.location)
                described = description(spec, replace(file, partition=partition), writer.fields)
                added.append(Content(described, snapshot.sequenceNumber()))
            moves.append(Move(one, added, reader.deleted))
        with stream.expecting([file for one in moves for file in one.after]):
            for tries_left in reversed(range(TRIES_MAX)):
                try:
                    _commit_on_newest(classes, stream, snapshot, moves, writer.folder)
                    break
                except Py4JJavaError as error:
                    if not tries_left or not is_refused(error):
                        raise
    return True


def by_partition(files: Iterable[Content]) -> dict[tuple[int, str], list[Content]]:
    """The files of each partition."""
    found: dict[tuple[int, str], list[Content]] = {}
    for file in files:
        found.setdefault(file.partition, []).append(file)
    return found


def _all_bins(groups: Iterable[Sequence[Content]], reader: Reader, tier: Tier) -> Iterator[Sequence[Content]]:
    """The bins of all partitions, together of at most `INPUT_BYTES_MAX`."""
    total = 0
    for group in groups:
        for one in _bins([file for file in group if reader.reads(file)], tier):
            size = sum(file.size for file in one)
            if total and total + size > INPUT_BYTES_MAX:
                return
            total += size
            yield one


def _bins(files: Sequence[Content], tier: Tier) -> Iterator[Sequence[Content]]:
    """Groups of files, each of which becomes one file of about `tier.aim` bytes. The last group may be
    smaller, but not too small."""
    taken: list[Content] = []
    total = 0
    for file in sorted(files, key=lambda file: file.sequence):
        total += file.size
        if total > INPUT_BYTES_MAX and total > file.size:
            break
        taken.append(file)
        if sum(one.size for one in taken) >= tier.aim:
            yield taken
            taken = []
    if len(taken) >= min(tier.count, max(2, tier.count // 2)):
        yield taken


def _deleted(
    spark: SparkSession, access: Files, files: Sequence[Content], present: Deletes
) -> Mapping[str, BitMap64]:
    """Positions of deleted rows, by the location of their data file."""
    found = {file.location: vector for file in files if (vector := present.vector(file.location)) is not None}
    deleted = {location: vectors.read(vector, access) for location, vector in found.items()}
    if present.equality:
        searched = [file.searched(found.get(file.location)) for file in files]
        keys = [one.keys() for one in present.equality]
        for location, bitmap, count in deleted_rows(spark, access, searched, keys):
            if count:
                deleted[location] = BitMap64.deserialize(bitmap)
    return deleted


def _commit_on_newest(
    classes: Classes, stream: Stream, read: Any, moves: Sequence[Move], folder: Folder
) -> None:
    """Commits on the newest snapshot, in which more rows of the old files may be deleted than in the one that
    was read."""
    target = stream.load()
    now = stream.files(target)
    deleted = partial(stream.deleted, now, folder.files)
    found = [one for move in moves for one in carried_over(move, deleted)]
    new = {file.location: file for move in moves for file in move.after}
    written: list[str] = []
    with removed_if_refused(target, folder.files, written):
        placed = new_vectors(classes, target, folder, new, found, written) if found else {}
        _commit(classes, target, read, moves, now.deletes, placed)
    old = [file.location for one in moves for file in one.before]
    snapshot = int(target.currentSnapshot().snapshotId())
    stream.expect(now.after(snapshot, new.values(), placed, removed=old))


def _commit(
    classes: Classes,
    target: Any,
    read: Any,
    moves: Sequence[Move],
    present: Deletes,
    placed: Placed,
) -> None:
    """Commits the new files. `read`: the snapshot from which rows were read. `present`: the deletes of the
    target's newest snapshot. `placed`: the vectors of new files."""
    change = target.newRewrite().validateFromSnapshot(target.currentSnapshot().snapshotId())
    before = [file for one in moves for file in one.before]
    marking = [vector for file in before for vector in present.vectors.get(file.location, ())]
    after = [file for one in moves for file in one.after]
    new = [vector for several in placed.values() for vector in several]
    steps = (DELETE_DATA, before), (DELETE_DELETES, marking), (ADD_DATA, after), (ADD_VECTORS, new)
    for step, files in steps:
        classes.for_each(target, step, change, [file.described for file in files])
    change.dataSequenceNumber(read.sequenceNumber()).commit()
