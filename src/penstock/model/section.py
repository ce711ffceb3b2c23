"""A section of the pipeline file: it refuses options that it does not have."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, GetJsonSchemaHandler, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from penstock.model.schema import TableId


def _table_name(value: str) -> str:
    TableId.parse(value)
    return value


_NAME_SCHEMA: dict[str, Any] = {"type": "string", "pattern": r".\.."}

TableName = Annotated[str, AfterValidator(_table_name), WithJsonSchema(_NAME_SCHEMA)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    shorthands: ClassVar[list[dict[str, Any]]] = []
    """JSON Schemas of short forms of the whole section."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        made = handler(schema)
        return {"anyOf": [made, *cls.shorthands]} if cls.shorthands else made
