"""What sinks share that take whole epochs as messages (`LogSink`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.errors import DriverReplaced, InternalError
from penstock.model.schema import TableId
from penstock.sinks.base import DEFINITIONS, Commit, EvolvedColumn, Narrowing, Subject
from penstock.sinks.refusals import REPLACED_HINT
from penstock.sinks.schema_registry import RegistryOptions


class MessageOptions(Protocol):
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

    def __init__(self, options: MessageOptions, pipeline: str) -> None:
        self.format = options.format
        self.format_options = options.format_options
        self.registry = options.registry
        self.tells_definitions = options.tells_definitions
        self._definitions_apart = options.definitions_apart
        self._pipeline = pipeline
        self._generation = 0

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
