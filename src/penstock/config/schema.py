"""The JSON Schema of a pipeline file, for completion and error marks in editors.

For each option it accepts what the models accept: sizes and durations as numbers or text, and `${NAME}`
wherever a value may come from the environment. It does not contain rules about several options together
(`cascades: apply` needs certain sinks); `penstock doctor` checks these. So a file that the schema refuses
is always wrong, and a file that it accepts is nearly always right.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from penstock.config.options import docs_of, first_paragraph

SCHEMA_FILE = Path(__file__).with_name("penstock.schema.json")
"""The committed schema, part of the package. `scripts/options_doc.py` writes it."""

_FROM_ENVIRONMENT, _NUMBER_AS_TEXT = "FromEnvironment", "NumberAsText"
_ENVIRONMENT = r"\$\{[A-Za-z_][A-Za-z0-9_]*\}"
_OWN: dict[str, Any] = {
    _FROM_ENVIRONMENT: {"type": "string", "pattern": _ENVIRONMENT},
    _NUMBER_AS_TEXT: {"type": "string", "pattern": rf"^[0-9]+$|{_ENVIRONMENT}"},
}
_WORDS = {"ge": "minimum", "le": "maximum", "oneOf": "anyOf"}
"""Words of pydantic's schemas, and those for editors. `${NAME}` may fit several variants, hence `anyOf`."""


def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    made = model.model_json_schema(mode="validation", by_alias=True, schema_generator=_Described)
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Penstock pipeline file"}
    found: dict[str, Any] = head | _open_to_environment(made)
    found["$defs"] |= _OWN
    return found


def schema_text(model: type[BaseModel]) -> str:
    return json.dumps(json_schema(model), indent=1, ensure_ascii=False) + "\n"


class _Described(GenerateJsonSchema):
    """Adds the text of each option. Omits names and defaults of sections, which have no meaning."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return self._described(super().model_schema(schema), schema["cls"])

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return self._described(super().dataclass_schema(schema), schema["cls"])

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def _described(self, made: JsonSchemaValue, model: type) -> JsonSchemaValue:
        texts = docs_of(model)
        if issubclass(model, BaseModel):
            texts = {(info.alias or name): texts.get(name, "") for name, info in model.model_fields.items()}
        for name, option in made.get("properties", {}).items():
            if texts.get(name):
                option["description"] = texts[name]
            if isinstance(option.get("default"), dict):
                del option["default"]
        made.pop("title", None)
        if "description" in made:
            made["description"] = first_paragraph(made["description"])
        return made


def _open_to_environment(node: Any) -> Any:
    """Allows `${NAME}` in options that otherwise accept only certain texts, or none."""
    if isinstance(node, list):
        return [_open_to_environment(one) for one in node]
    if not isinstance(node, dict):
        return node
    node = {_WORDS.get(name, name): value for name, value in node.items() if name != "discriminator"}
    if any(name in node for name in ("enum", "const", "pattern")) or node.get("type") == "boolean":
        instead = _FROM_ENVIRONMENT
    elif node.get("type") in ("integer", "number"):
        instead = _FROM_ENVIRONMENT if "format" in node else _NUMBER_AS_TEXT  # a unit has texts of its own
    else:
        made = {name: _inside(name, value) for name, value in node.items()}
        return made | ({"anyOf": _flat(made["anyOf"])} if "anyOf" in made else {})
    outside = {name: node.pop(name) for name in ("description", "default") if name in node}
    return {**outside, "anyOf": [node, {"$ref": f"#/$defs/{instead}"}]}


def _inside(name: str, value: Any) -> Any:
    if name in ("properties", "$defs"):  # its keys are names of options, not words of the schema
        return {key: _open_to_environment(one) for key, one in value.items()}
    if name in ("items", "anyOf", "allOf", "prefixItems", "additionalProperties"):
        return _open_to_environment(value)
    return value


def _flat(choices: list[Any]) -> list[Any]:
    """Merges nested choices into one list, without duplicates."""
    found: list[Any] = []
    for one in choices:
        for choice in one["anyOf"] if one.keys() == {"anyOf"} else [one]:
            if choice not in found:
                found.append(choice)
    return found
