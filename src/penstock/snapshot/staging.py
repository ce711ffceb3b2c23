"""Stages chunks: writes the rows as a Parquet file, then a manifest. Each appears completely or not at all.
The first manifest of a chunk wins.

Layout of the chunks' directory, where `TABLE` is the table's name in a safe form:

    TABLE/00000012-BOUNDS-ATTEMPT.parquet     the rows of one attempt
    TABLE/00000012-BOUNDS.json                the manifest of the attempt that counts

BOUNDS is a digest of the chunk's bounds, and of everything else that determines its rows. So a chunk of
another split of the table is a different chunk, even if its number is the same. An attempt writes its rows
under a name of its own, calls fsync, renames the file, and then links its manifest to the chunk's name. The
link fails if the name exists. So if several tasks read one chunk (after retries, or on executors that were
believed lost), exactly one attempt counts, and every task gets that one as its result. A plan contains the
attempt and its checksum; rows with another checksum are never placed.

A chunk that is void or has to be read again is discarded first. Only the planner discards, and only
attempts that no plan contains. Discarding removes the manifest and then the rows. A slow task of an earlier
round may still win the next round. That does no harm: its watermarks say correctly when it was read, and
the placement rule decides by them.
"""

from __future__ import annotations

import hashlib
import json
import os
import urllib.parse
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock import _core
from penstock.disk.replace import sync
from penstock.errors import RelayLogCorrupt, TransientError
from penstock.model.chunk import Chunk, StagedChunk
from penstock.model.schema import DEFAULT_TYPES, TableId, TableSchema, TypeOptions
from penstock.sources.chunks import ChunkReader, Host, ViewChoice

FORMAT = 1
"""Version of the manifest's format. Manifests of another version are refused."""
_NAME_BYTES_MAX = 150
"""Bytes of a table's name in its directory's name. File systems allow 255, of which a digest needs some."""
_READ_BYTES = 1024 * 1024
"""Bytes read at once for a checksum: few system calls, and little memory."""


class ChunkCorrupt(RelayLogCorrupt):
    """A staged chunk is damaged or missing. `path=` is required."""


# Names


def table_directory(directory: str | Path, table: TableId) -> Path:
    """The table's own directory. Its name is the table's, with all characters but ASCII letters, digits,
    `_` and `-` written as %XX."""
    name = ".".join(
        urllib.parse.quote(part, safe="").replace(".", "%2E").replace("~", "%7E")
        for part in (table.database, table.table)
    )
    # Names that differ only in case are two tables, but one directory on some file systems.
    if len(name) > _NAME_BYTES_MAX or name != name.lower():
        digest = hashlib.sha256(f"{table.database}\0{table.table}".encode()).hexdigest()[:16]
        name = f"{name[:_NAME_BYTES_MAX]}~{digest}"
    return Path(directory) / name


def _chunk_name(chunk: Chunk) -> str:
    """The common part of the names of a chunk's files."""
    what = [chunk.lower, chunk.upper, chunk.snapshot, chunk.part()]
    bounds = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:12]
    return f"{chunk.number:08d}-{bounds}"


# Writing


def stage_chunk(
    host: Host,
    schema: TableSchema,
    chunk: Chunk,
    directory: str,
    *,
    executed: str,
    types: TypeOptions = DEFAULT_TYPES,
    view: ViewChoice | None = None,
) -> StagedChunk:
    """Reads and stages one chunk over a connection of its own. Spark tasks call this.

    The connection is closed afterwards. Spark runs each task in any free process, so kept connections would
    soon be more than the chunks that are read at once.
    """
    with Stager(host, types=types, view=view) as stager:
        return stager.stage(schema, chunk, directory, executed=executed)


class Stager:
    """Stages chunks one after the other over one connection, which is opened for the first chunk.

    A context manager. On exit it waits until the server has closed its end of the connection; after an
    error it closes the connection at once. For one thread only. `view`: see
    `sources.chunks.Host.open_reader`.
    """

    def __init__(
        self, host: Host, *, types: TypeOptions = DEFAULT_TYPES, view: ViewChoice | None = None
    ) -> None:
        self._host = host
        self._types = types
        self._view = view
        self._reader: ChunkReader | None = None

    def __enter__(self) -> Stager:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        reader, self._reader = self._reader, None
        if reader is not None and error is None:
            reader.leave()
        elif reader is not None:
            reader.close()

    def stage(self, schema: TableSchema, chunk: Chunk, directory: str, *, executed: str) -> StagedChunk:
        """Stages one chunk. Its rows show everything in `executed`, which must include the log up to the
        table's start and its last schema change. If the chunk is already staged, nothing is read. After an
        error the object must not be used again."""
        if (known := find(directory, chunk)) is not None:
            return known
        if self._reader is None:
            self._reader = self._host.open_reader(types=self._types, view=self._view)
        self._reader.require(executed)
        return stage(self._reader, schema, chunk, directory, types=self._types)


def stage(
    reader: ChunkReader,
    schema: TableSchema,
    chunk: Chunk,
    directory: str | Path,
    *,
    types: TypeOptions = DEFAULT_TYPES,
) -> StagedChunk:
    """Makes one attempt to read the chunk. Returns the attempt that counts: this one or an earlier one."""
    folder = table_directory(directory, chunk.table)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    attempt = uuid.uuid4().hex
    path = folder / f"{_chunk_name(chunk)}-{attempt}.parquet"
    temporary = path.with_suffix(".tmp")
    try:
        read = reader.read(schema, chunk)
        _write_rows(temporary, _core.arrow_schema(schema.to_json(), "rows", types.to_json()), read)
        result = read.result
        checksum, size = _checksum(temporary)
        staged = StagedChunk(
            chunk=chunk, attempt=attempt, path=str(path.absolute()), rows=result.rows, bytes=size,
            checksum=checksum, schema_version=schema.version, watermarks=result.watermarks,
            server_uuid=result.server_uuid, bytes_read=result.bytes, at=result.at,
        )  # fmt: skip
        temporary.rename(path)
        winner = _publish(folder, staged)
    except BaseException:
        for leftover in (temporary, path):
            with suppress(FileNotFoundError):
                leftover.unlink()
        raise
    if winner.attempt != attempt:
        path.unlink()
    return winner


def _write_rows(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Writes one row group per batch. The file's content is durable on return."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        with pq.ParquetWriter(
            file,
            schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=False,
            write_statistics=False,
        ) as out:
            for batch in batches:
                out.write_batch(batch)
        file.flush()
        os.fsync(file.fileno())


def _publish(folder: Path, staged: StagedChunk) -> StagedChunk:
    """Links the manifest to the chunk's name, unless the name exists. Returns the manifest that then has
    the name."""
    document = {"format": FORMAT, **staged.to_json(), "path": Path(staged.path).name}
    temporary = folder / f"{_chunk_name(staged.chunk)}-{staged.attempt}.manifest.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(document, file, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())
    # The names of the file and of the directories above it must be durable before a manifest refers to them.
    # An fsync of a directory without changes costs next to nothing.
    for made in (folder, folder.parent, folder.parent.parent):
        sync(made)
    final = folder / f"{_chunk_name(staged.chunk)}.json"
    try:
        with suppress(FileExistsError):
            os.link(temporary, final)
    finally:
        temporary.unlink()
    sync(folder)
    try:
        return _load(final)
    except FileNotFoundError:
        raise TransientError(
            f"Chunk {staged.chunk.number} of {staged.chunk.table} was discarded while it was being staged."
        ) from None


# Reading


def staged(directory: str | Path) -> list[StagedChunk]:
    """All staged chunks, ordered by table and number."""
    found = []
    for path in Path(directory).glob("*/*.json"):
        with suppress(FileNotFoundError):  # discarded meanwhile
            found.append(_load(path))
    return sorted(found, key=lambda item: (item.chunk.table, item.chunk.number))


def find(directory: str | Path, chunk: Chunk) -> StagedChunk | None:
    """The attempt that counts for exactly this chunk; None: it is not staged."""
    try:
        return _load(table_directory(directory, chunk.table) / f"{_chunk_name(chunk)}.json")
    except FileNotFoundError:
        return None


def open_chunk(chunk: StagedChunk) -> Iterator[pa.RecordBatch]:
    """The rows of an attempt in layout `rows`, after its checksum was verified.

    Raises `ChunkCorrupt` if the file is damaged or missing. Needs memory for one batch.
    """
    path = Path(chunk.path)
    try:
        checksum, _ = _checksum(path)
    except OSError as error:
        raise _corrupt(chunk, f"cannot be read ({error.strerror})") from error
    if checksum != chunk.checksum:
        raise _corrupt(chunk, "is not what was written")
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            yield from file.iter_batches(batch_size=2**31 - 1, row_groups=[group])


def _corrupt(chunk: StagedChunk, why: str) -> ChunkCorrupt:
    return ChunkCorrupt(
        f"The staged chunk {chunk.chunk.number} of {chunk.chunk.table} {why}: {chunk.path}.",
        hint="Check the disk, then signal execute-snapshot for the table.",
        path=chunk.path,
        table=str(chunk.chunk.table),
    )


def _load(path: Path) -> StagedChunk:
    text = path.read_text("utf-8")
    try:
        document = json.loads(text)
        if document.pop("format") != FORMAT:
            raise ValueError("its format is unknown to this version")
        document["path"] = str((path.parent / document["path"]).absolute())
        return StagedChunk.from_json(document)
    except (ValueError, KeyError, TypeError) as error:
        raise ChunkCorrupt(f"The chunk manifest {path} is damaged: {error}.", path=str(path)) from error


def _checksum(path: Path) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    with open(path, "rb") as file:
        while piece := file.read(_READ_BYTES):
            digest.update(piece)
            size += len(piece)
    return digest.hexdigest(), size


def folders(directory: Path) -> list[Path]:
    """The directories of all snapshots that have staged chunks."""
    return list(directory.iterdir()) if directory.exists() else []


# Removing


def discard(chunk: StagedChunk) -> None:
    """Removes an attempt whose rows are at the target, or that is void or will be read again. A later
    attempt of the same chunk is not touched."""
    path = Path(chunk.path)
    manifest = path.parent / f"{_chunk_name(chunk.chunk)}.json"
    with suppress(FileNotFoundError):
        if _load(manifest).attempt == chunk.attempt:
            manifest.unlink()
            sync(path.parent)
    with suppress(FileNotFoundError):
        path.unlink()


def discard_table(directory: str | Path, table: TableId) -> None:
    """Removes all staged chunks of a table, manifests first. No task may be staging chunks of the table."""
    folder = table_directory(directory, table)
    for pattern in ("*.json", "*"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        folder.rmdir()


def sweep(directory: str | Path) -> int:
    """Removes files that belong to no manifest: attempts that lost, or whose task died. Returns the number
    of files.

    May be called only while no task is staging: before the first one is started.
    """
    named = {item.path for item in staged(directory)}
    removed = 0
    for pattern in ("*/*.parquet", "*/*.tmp"):
        for path in Path(directory).glob(pattern):
            if str(path.absolute()) not in named:
                path.unlink(missing_ok=True)
                removed += 1
    return removed
