"""The section `sink` of the pipeline file. Its `type` names a sink, whose options the section then has."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Annotated, Any

from pydantic import BeforeValidator, SerializeAsAny

from penstock.config.typed_section import read_section
from penstock.sinks import registry
from penstock.sinks.kind import SinkOptions


def options_model(section: dict[str, Any]) -> type[SinkOptions]:
    """The options of the named sink. Raises `ConfigError` if there is no such sink."""
    return registry.kind(str(section.get("type", registry.DEFAULT.name))).options


def _read(section: Any) -> SinkOptions:
    return read_section(section, "sink", SinkOptions, options_model)


_EVERY: Any = reduce(or_, (kind.options for kind in registry.OWN))
"""For the JSON Schema and the page of options, which describe only Penstock's own sinks."""

SinkSection = Annotated[SerializeAsAny[SinkOptions], BeforeValidator(_read, json_schema_input_type=_EVERY)]
