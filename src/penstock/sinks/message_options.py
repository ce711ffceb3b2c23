"""Options that sinks of messages share: the format, and what the place of a message is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, NamedTuple

from pydantic import AfterValidator, Field, model_validator
from typing_extensions import Self

from penstock.model.schema import TableId
from penstock.sinks import message_formats
from penstock.sinks.kind import SinkOptions
from penstock.sinks.schema_registry import RegistryOptions

if TYPE_CHECKING:
    from penstock.sinks.base import Subject

_PARTS = ("{source}", "{database}", "{table}")


def _checked(value: str) -> str:
    rest = value
    for part in _PARTS:
        rest = rest.replace(part, "")
    if not value or "{" in rest or "}" in rest:
        raise ValueError("the name may have {source}, {database} and {table}")
    return value


Template = Annotated[str, AfterValidator(_checked)]
"""The name of a place. It may have `{source}`, `{database}` and `{table}`."""


def filled(
    template: str, source: str, table: TableId | None, escaped: Callable[[str], str] = lambda name: name
) -> str:
    """The template with the names in it. `escaped`: what becomes of those of databases and tables."""
    database, name = ("", "") if table is None else (escaped(table.database), escaped(table.table))
    parts = dict(zip(_PARTS, (source, database, name), strict=True))
    pieces, rest = [], template
    while rest:  # in one pass: names may have braces
        place, part = min((rest.find(one) % (len(rest) + 1), one) for one in _PARTS)
        pieces.append(rest[:place] + (parts[part] if place < len(rest) else ""))
        rest = rest[place + len(part) :]
    return "".join(pieces)


class Places(NamedTuple):
    """Templates of the places of messages: about rows, about transactions, and about changed definitions
    (None: with the format debezium `{source}`, and with others the table's own place)."""

    rows: str
    transactions: str
    definitions: str | None

    def of(self, subject: Subject) -> tuple[str, TableId | None]:
        if subject is None:
            return self.transactions, None
        if not isinstance(subject, TableId):
            return self.definitions or "{source}", None
        return self.rows, subject


class MessageOptions(SinkOptions):
    """Base class of the options of sinks that take messages."""

    format: str = "debezium"
    """Format of the messages: debezium, maxwell, canal, json, cloudevents, avro, protobuf."""
    options: dict[str, str | bool | int | float] = Field(default_factory=dict)
    """Options of the format (docs/formats.md), for example `topic.prefix: shop`."""
    registry: RegistryOptions | None = None
    source: str = "penstock"
    """What `{source}` stands for: the pipeline's name at the source. With the format debezium also its option
    `topic.prefix`."""

    @model_validator(mode="after")
    def _format_is_known(self) -> Self:
        message_formats.check_format(self.format, self.format_options, self.registry)
        return self

    @property
    def places(self) -> Places:
        raise NotImplementedError

    @property
    def format_options(self) -> str:
        return message_formats.format_options(self.format, self.options, self.source)

    @property
    def tells_definitions(self) -> bool:
        return message_formats.tells_definitions(self.format, self.options)

    @property
    def definitions_apart(self) -> bool:
        """Whether messages of definitions have a place of their own."""
        return self.tells_definitions and (self.format == "debezium" or self.places.definitions is not None)

    def place_of(self, subject: Subject) -> str:
        """The name of the place for messages about a subject."""
        template, table = self.places.of(subject)
        return filled(template, self.source, table)

    def place(self, table: TableId) -> tuple[str, ...] | None:
        return None  # several tables may share a place: their messages name them
