"""What sinks share that take whole epochs as messages (`LogSink`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from penstock.errors import DriverReplaced, InternalError
from penstock.model.schema import TableId, TableSchema
from penstock.sinks.base import (
    DEFINITIONS,
    Commit,
    EncodedBatch,
    EvolvedColumn,
    LogMessage,
    Narrowing,
    Route,
    Subject,
)
from penstock.sinks.refusals import REPLACED_HINT
from penstock.sinks.schema_registry import RegistryOptions

if TYPE_CHECKING:
    import pyarrow as pa


class FormatSettings(Protocol):
    """The options of such a sink that concern messages."""

    @property
    def format(self) -> str: ...

    @property
    def format_options(self) -> str: ...

    @property
    def registry(self) -> RegistryOptions | None: ...

    @property
    def tells_definitions(self) -> bool: ...

    @property
    def definitions_apart(self) -> bool: ...


class Messages:
    """Base class of such sinks. `pipeline`: its uuid."""

    def __init__(self, options: FormatSettings, pipeline: str) -> None:
        self.format = options.format
        self.format_options = options.format_options
        self.registry = options.registry
        self.tells_definitions = options.tells_definitions
        self._definitions_apart = options.definitions_apart
        self._pipeline = pipeline
        self._generation = 0

    def create(self, schema: TableSchema, arrow: pa.Schema) -> None:
        """A target is made with its first message."""

    def fence(self, table: TableId) -> None:
        """`begin` has done it for all targets."""

    def route_of(self, table: TableId) -> Route | None:
        return None

    def truncate(
        self, table: TableId, commit: Commit, *, sequence: int, timestamp_us: int | None = None
    ) -> bool:
        raise InternalError("A sink of messages was asked to truncate a table.")

    def evolve(
        self, table: TableId, columns: Sequence[EvolvedColumn], commit: Commit, *, narrowing: Narrowing
    ) -> bool:
        raise InternalError("A sink of messages was asked to change columns.")

    def subject_of(self, table: TableId) -> Subject:
        return DEFINITIONS if self._definitions_apart else table


def another_driver(where: str) -> DriverReplaced:
    """The error of a driver after which another one has written."""
    return DriverReplaced(
        f"Another driver has taken over this pipeline: it has written to {where} after this one began.",
        hint=REPLACED_HINT,
    )


def each_message(
    messages: Iterable[Sequence[LogMessage] | EncodedBatch],
) -> Iterator[tuple[Subject, bytes | None, bytes | None]]:
    """The messages that count, one by one: what each is about, its key and its value."""
    for batch in messages:
        if isinstance(batch, EncodedBatch):
            for number, key, value, offset in batch.encoded.messages():
                table = None if number is None else batch.tables[number]
                if table is None or offset >= batch.starts.get(table, 0):
                    yield table, key, value
        else:
            for subject, key, value, _ in batch:
                yield subject, key, value


def counter(subject: Subject) -> str:
    """The name under which a sink counts the messages about a subject. No two subjects share one."""
    if isinstance(subject, TableId):
        return f"{len(subject.database)}:{subject.database}.{subject.table}"
    return subject or ""
