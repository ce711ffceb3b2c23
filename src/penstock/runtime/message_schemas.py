"""Gives the schemas of messages their ids, for a sink that takes messages of a binary format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.encode.registry import Registry, RegistrySettings, SchemaIds
from penstock.sinks.base import LogSink, Sink


def schema_ids(sink: Sink) -> Callable[[dict[str, Any]], int] | None:
    """The argument `schema_ids` of the core's encoders. None: the sink needs no registry."""
    if not isinstance(sink, LogSink) or sink.registry is None:
        return None
    options = sink.registry
    settings = RegistrySettings.of(
        options, register=options.register_schemas, compatibility=options.compatibility
    )
    return SchemaIds(Registry(settings), sink.topic_of, options.subjects)
