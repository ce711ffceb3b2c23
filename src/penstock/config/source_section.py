"""The section `source` of the pipeline file: read with the options of the source that its `type` names."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Annotated, Any

from pydantic import BeforeValidator, GetJsonSchemaHandler, SerializeAsAny, TypeAdapter
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from penstock.config.typed_section import read_section
from penstock.sources import registry
from penstock.sources.kind import SourceOptions


def options_model(section: dict[str, Any]) -> type[SourceOptions]:
    """The options of the source that a section names. Raises `ConfigError` if there is none of its name."""
    return registry.kind(str(section.get("type", registry.DEFAULT))).options


def _read(section: Any) -> SourceOptions:
    return read_section(section, "source", SourceOptions, options_model)


class OwnSources:
    """The options of Penstock's own sources, for the JSON Schema and the page of options. They are loaded
    when these are made, and not when a pipeline file is read."""

    @property
    def written(self) -> Any:
        """The type of what stands in the file."""
        return reduce(or_, (registry.kind(entry.name).options for entry in registry.OWN))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(TypeAdapter(self.written).core_schema)


SourceSection = Annotated[SerializeAsAny[SourceOptions], BeforeValidator(_read), OwnSources()]
