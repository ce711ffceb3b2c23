"""Stages chunks: writes the rows as a Parquet file, then a manifest. Each appears completely or not at all.
The first manifest of a chunk wins.

Layout of the folder `chunks` of the pipeline's staging, which is a directory or an object store. `SNAPSHOT`
is a folder for each snapshot of a table (`staged_folders.py`), `TABLE` the table's name in a safe form:

    SNAPSHOT/TABLE/00000012-BOUNDS-ATTEMPT.parquet     the rows of one attempt
    SNAPSHOT/TABLE/00000012-BOUNDS.json                the manifest of the attempt that counts

BOUNDS is a digest of the chunk's bounds, and of everything else that determines its rows. So a chunk of
another split of the table is a different chunk, even if its number is the same. An attempt writes its rows
under a name of its own. When they are durable, it puts its manifest under the chunk's name, if there is none.
So if several tasks read one chunk (after retries, or on executors that were believed lost), exactly one
attempt counts, and every task gets that one as its result. A plan contains the attempt and its checksum; rows
with another checksum are never placed.

A store may not say whether it has taken a manifest (`store/base.py`). Then the attempt fails, and its rows
stay: the manifest may be there, or may still appear. If it does, the next attempt finds it. If it does not,
`recover` removes the rows at the next start.

A chunk that is void or has to be read again is discarded first. Only the planner discards, and only
attempts that no plan contains. Discarding removes the manifest and then the rows. A slow task of an earlier
round may still win the next round. That does no harm: its watermarks say correctly when it was read, and
the placement rule decides by them. A slow task of an earlier run may even publish a manifest after `recover`
has removed its rows. So a manifest counts only together with its rows. One without rows is removed by whoever
finds it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import urllib.parse
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock import _core
from penstock.errors import ChunkCorrupt, PenstockError, TransientError
from penstock.model.chunk import Chunk, StagedChunk
from penstock.model.schema import DEFAULT_TYPES, TableId, TableSchema, TypeOptions
from penstock.sources.chunks import ChunkReader, Host, ViewChoice
from penstock.store.base import Data, Store
from penstock.store.errors import ObjectExists, ObjectMissing, ObjectShorter
from penstock.store.files import NewFile
from penstock.store.folder import StoreFiles, StoreFolder, whole

log = logging.getLogger(__name__)

FORMAT = 1
"""Version of the manifest's format. Manifests of another version are refused."""
CHUNKS = "chunks"
"""The folder of all chunks."""
_NAME_BYTES_MAX = 150
"""Bytes of a table's name in its folder's name. File systems allow 255, of which a digest needs some."""
_READ_BYTES = 8 * 1024 * 1024
"""Bytes read at once for a checksum."""
_WHOLE_BYTES_MAX = 64 * 1024 * 1024
"""Rows of up to this size are read from an object store once, and held in memory. Larger ones are read twice:
for the checksum, and in row groups."""
_PUBLISH_ATTEMPTS = 5
"""How often a manifest is put or read if others remove it in between."""
_MANIFESTS_AT_ONCE = 8
"""Manifests that are read side by side: most of the time is waiting for the store."""


# Names


def table_folder(table: TableId) -> str:
    """The name of the table's own folder: the table's, with all characters but ASCII letters, digits, `_` and
    `-` written as %XX."""
    name = ".".join(
        urllib.parse.quote(part, safe="").replace(".", "%2E").replace("~", "%7E")
        for part in (table.database, table.table)
    )
    # Names that differ only in case are two tables, but one directory on some file systems.
    if len(name) > _NAME_BYTES_MAX or name != name.lower():
        digest = hashlib.sha256(f"{table.database}\0{table.table}".encode()).hexdigest()[:16]
        name = f"{name[:_NAME_BYTES_MAX]}~{digest}"
    return name


def snapshot_of(chunk: StagedChunk) -> str:
    """The name of its snapshot's folder."""
    return chunk.path.split("/")[-3]


def _chunk_name(chunk: Chunk) -> str:
    """The common part of the names of a chunk's files."""
    what = [chunk.lower, chunk.upper, chunk.snapshot, chunk.part()]
    bounds = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:12]
    return f"{chunk.number:08d}-{bounds}"


@dataclass(frozen=True)
class Staging:
    """The staged chunks of a pipeline. May be pickled if the store may be."""

    store: Store

    @property
    def _chunks(self) -> StoreFolder:
        return StoreFolder(self.store, CHUNKS)

    def _folder(self, snapshot: str, table: TableId) -> StoreFolder:
        return self._chunks / snapshot / table_folder(table)

    # writing

    def stage(
        self,
        reader: ChunkReader,
        schema: TableSchema,
        chunk: Chunk,
        snapshot: str,
        *,
        types: TypeOptions = DEFAULT_TYPES,
        stopping: threading.Event | None = None,
    ) -> StagedChunk:
        """Makes one attempt to read the chunk. `snapshot`: the name of its snapshot's folder. Returns the
        attempt that counts: this one or an earlier one. Raises `TransientError` once `stopping` is set."""
        folder = self._folder(snapshot, chunk.table)
        attempt = uuid.uuid4().hex
        rows = folder.key(f"{_chunk_name(chunk)}-{attempt}.parquet")
        read = reader.read(schema, chunk)
        arrow = _core.arrow_schema(schema.to_json(), "rows", types.to_json())
        batches = _until(stopping, read, chunk)
        checksum, size = _write_rows(StoreFiles(self.store), rows, arrow, batches)
        try:
            result = read.result
            staged = StagedChunk(
                chunk=chunk, attempt=attempt, path=rows, rows=result.rows, bytes=size,
                checksum=checksum, schema_version=schema.version, watermarks=result.watermarks,
                server_uuid=result.server_uuid, bytes_read=result.bytes, at=result.at,
            )  # fmt: skip
        except BaseException:
            with suppress(PenstockError):
                self.store.delete(rows)
            raise
        winner = self._publish(folder, snapshot, staged)
        if winner.attempt != attempt:
            self.store.delete(rows)
        return winner

    def _publish(self, folder: StoreFolder, snapshot: str, staged: StagedChunk) -> StagedChunk:
        """Puts the manifest under the chunk's name, unless there is one. Returns the one that is there."""
        name = staged.path.rpartition("/")[2]
        document = {"format": FORMAT, **staged.to_json(), "path": name}
        manifest = folder.key(f"{_chunk_name(staged.chunk)}.json")
        for _ in range(_PUBLISH_ATTEMPTS):
            try:
                self.store.put_if_absent(manifest, json.dumps(document, ensure_ascii=False).encode())
                return staged
            except ObjectExists:
                known = self.find(snapshot, staged.chunk)
            if known is not None:
                return known
        raise TransientError(
            f"Chunk {staged.chunk.number} of {staged.chunk.table} was discarded while it was being staged."
        )

    # reading

    def staged(self, snapshot: str = "") -> list[StagedChunk]:
        """All staged chunks, or those of one snapshot, ordered by table and number."""
        folder = self._chunks / snapshot if snapshot else self._chunks
        keys = [found.key for found in folder.objects()]
        manifests = [key for key in keys if key.endswith(".json")]
        with ThreadPoolExecutor(_MANIFESTS_AT_ONCE, thread_name_prefix="manifests") as pool:
            loaded = [one for one in pool.map(self._load, manifests) if one is not None]
        present = set(keys)
        for broken in [one for one in loaded if one.path not in present]:
            self.discard(broken)
        found = [one for one in loaded if one.path in present]
        return sorted(found, key=lambda item: (item.chunk.table, item.chunk.number))

    def find(self, snapshot: str, chunk: Chunk) -> StagedChunk | None:
        """The attempt that counts for exactly this chunk; None: it is not staged."""
        known = self._load(self._folder(snapshot, chunk.table).key(f"{_chunk_name(chunk)}.json"))
        if known is None:
            return None
        try:
            self.store.stat(known.path)
        except ObjectMissing:
            self.discard(known)
            return None
        return known

    def open_chunk(self, chunk: StagedChunk) -> Iterator[pa.RecordBatch]:
        """The rows of an attempt in layout `rows`, after its checksum was verified.

        Raises `ChunkCorrupt` if the file is damaged or missing. Needs memory for one batch, and in an object
        store for `_WHOLE_BYTES_MAX`.
        """
        key = self._key(chunk.path)
        try:
            source: Any
            if self.store.location.kind != "local" and chunk.bytes <= _WHOLE_BYTES_MAX:
                source = whole(self.store, key, chunk.bytes)
                checksum = hashlib.sha256(source.getbuffer()).hexdigest()
            else:
                source = StoreFiles(self.store).source(key, chunk.bytes)
                checksum = self._checksum(key)
        except (ObjectMissing, ObjectShorter) as error:
            raise self._corrupt(chunk, "is missing or not complete") from error
        if checksum != chunk.checksum:
            raise self._corrupt(chunk, "is not what was written")
        with pq.ParquetFile(source) as file:
            for group in range(file.num_row_groups):
                yield from file.iter_batches(batch_size=2**31 - 1, row_groups=[group])

    def _checksum(self, key: str) -> str:
        digest, size = hashlib.sha256(), self.store.stat(key).size
        for start in range(0, size, _READ_BYTES):
            digest.update(self.store.get_range(key, start, min(start + _READ_BYTES, size)))
        return digest.hexdigest()

    def _key(self, path: str) -> str:
        """The key of rows. Older versions stored absolute paths of the state directory."""
        if not path.startswith("/"):
            return path
        return "/".join([CHUNKS, *path.split("/")[-3:]])

    def _corrupt(self, chunk: StagedChunk, why: str) -> ChunkCorrupt:
        place = self.store.location.url(self._key(chunk.path))
        return ChunkCorrupt(
            f"The staged chunk {chunk.chunk.number} of {chunk.chunk.table} {why}: {place}.",
            hint="Check the disk or store, then signal execute-snapshot for the table.",
            path=place,
            table=str(chunk.chunk.table),
        )

    def _load(self, manifest: str) -> StagedChunk | None:
        """Loads a staged chunk. None: it was discarded meanwhile."""
        try:
            data = self.store.get(manifest).data
        except ObjectMissing:
            return None
        try:
            document = json.loads(data)
            if document.pop("format") != FORMAT:
                raise ValueError("its format is unknown to this version")
            document["path"] = f"{manifest.rpartition('/')[0]}/{document['path']}"
            return StagedChunk.from_json(document)
        except (ValueError, KeyError, TypeError) as error:
            place = self.store.location.url(manifest)
            raise ChunkCorrupt(f"The chunk manifest {place} is damaged: {error}.", path=place) from error

    # removing

    def discard(self, chunk: StagedChunk) -> None:
        """Removes an attempt whose rows are at the target, or that is void or will be read again. A later
        attempt of the same chunk is not touched."""
        rows = self._key(chunk.path)
        manifest = f"{rows.rpartition('/')[0]}/{_chunk_name(chunk.chunk)}.json"
        known = self._load(manifest)
        if known is not None and known.attempt == chunk.attempt:
            self.store.delete(manifest)
        self.store.delete(rows)

    def discard_placed(self, chunks: Sequence[StagedChunk]) -> None:
        """Discards chunks whose rows are at the target, in an object store side by side. What cannot be
        removed now does no harm: it is removed with the folder of its snapshot."""
        if not chunks:
            return
        with ThreadPoolExecutor(StoreFiles(self.store).readers, thread_name_prefix="discard") as pool:
            discarding = [pool.submit(self.discard, chunk) for chunk in chunks]
        for one in discarding:
            if (error := one.exception()) is not None and not isinstance(error, TransientError):
                raise error
            if error is not None:
                log.warning("placed chunks are still staged: %s", error)

    def recover(self) -> list[StagedChunk]:
        """All staged chunks. Removes files that belong to no manifest: attempts that lost, or whose task
        died. May be called only while no task is staging: before the first one is started."""
        found = self.staged()
        named = {item.path for item in found}
        self.store.delete_many(
            [one.key for one in self._chunks.objects()
             if not one.key.endswith(".json") and one.key not in named]
        )  # fmt: skip
        return found

    def snapshots(self) -> set[str]:
        """The names of the folders of all snapshots that have staged chunks."""
        return {one.key.split("/")[1] for one in self._chunks.objects()}

    def has_chunks(self, snapshot: str, table: TableId) -> bool:
        """Whether there is anything of a table in the folder of a snapshot."""
        return next(iter(self._folder(snapshot, table).objects()), None) is not None

    def remove_snapshot(self, snapshot: str) -> None:
        """Removes everything of a snapshot, manifests first."""
        keys = [one.key for one in (self._chunks / snapshot).objects()]
        self.store.delete_many(sorted(keys, key=lambda key: not key.endswith(".json")))


def stage_chunk(
    host: Host,
    staging: Staging,
    schema: TableSchema,
    chunk: Chunk,
    snapshot: str,
    *,
    executed: str,
    types: TypeOptions = DEFAULT_TYPES,
    view: ViewChoice | None = None,
) -> StagedChunk:
    """Reads and stages one chunk over a connection of its own. Spark tasks call this.

    The connection is closed afterwards. Spark runs each task in any free process, so kept connections would
    soon be more than the chunks that are read at once.
    """
    with Stager(host, staging, types=types, view=view) as stager:
        return stager.stage(schema, chunk, snapshot, executed=executed)


class Stager:
    """Stages chunks one after the other over one connection, which is opened for the first chunk.

    A context manager. On exit it waits until the server has closed its end of the connection; after an
    error it closes the connection at once. For one thread only. `view`: see
    `sources.chunks.Host.open_reader`. `stopping`: ends the read of a chunk when it is set.
    """

    def __init__(
        self,
        host: Host,
        staging: Staging,
        *,
        types: TypeOptions = DEFAULT_TYPES,
        view: ViewChoice | None = None,
        stopping: threading.Event | None = None,
    ) -> None:
        self._host = host
        self._staging = staging
        self._types = types
        self._view = view
        self._stopping = stopping
        self._reader: ChunkReader | None = None

    def __enter__(self) -> Stager:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        reader, self._reader = self._reader, None
        if reader is not None and error is None:
            reader.leave()
        elif reader is not None:
            reader.close()

    def stage(self, schema: TableSchema, chunk: Chunk, snapshot: str, *, executed: str) -> StagedChunk:
        """Stages one chunk. Its rows show everything in `executed`, which must include the log up to the
        table's start and its last schema change. If the chunk is already staged, nothing is read. After an
        error the object must not be used again."""
        if (known := self._staging.find(snapshot, chunk)) is not None:
            return known
        if self._reader is None:
            self._reader = self._host.open_reader(types=self._types, view=self._view)
        self._reader.require(executed)
        return self._staging.stage(
            self._reader, schema, chunk, snapshot, types=self._types, stopping=self._stopping
        )


class _Digested:
    """A file that is written, and its checksum."""

    def __init__(self, file: NewFile) -> None:
        self._file = file
        self._digest = hashlib.sha256()

    @property
    def closed(self) -> bool:
        return self._file.closed

    def write(self, data: Data) -> int:
        self._digest.update(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()

    def checksum(self) -> str:
        return self._digest.hexdigest()


def _until(
    stopping: threading.Event | None, batches: Iterable[pa.RecordBatch], chunk: Chunk
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if stopping is not None and stopping.is_set():
            raise TransientError(f"The read of chunk {chunk.number} of {chunk.table} was interrupted.")
        yield batch


def _write_rows(
    files: StoreFiles, key: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> tuple[str, int]:
    """Writes one row group per batch. The file is durable on return. Returns its checksum and its bytes.
    After an error there is no file."""
    with files.create(key) as new:
        file = _Digested(new)
        with pq.ParquetWriter(
            file, schema, compression="zstd", compression_level=1, use_dictionary=False,
            write_statistics=False,
        ) as out:  # fmt: skip
            for batch in batches:
                out.write_batch(batch)
        return file.checksum(), file.tell()
