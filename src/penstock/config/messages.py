"""What is wrong with the value of an option, in words of a pipeline file instead of Python's."""

from __future__ import annotations

from typing import Any

_SECTION = "this is a section: write its options below it, indented"
_EXPECTED = {
    "string_type": "write a text; put it in quotes",
    "int_type": "write a whole number",
    "int_parsing": "write a whole number",
    "int_from_float": "write a whole number",
    "float_type": "write a number",
    "float_parsing": "write a number",
    "bool_type": "write true or false",
    "bool_parsing": "write true or false",
    "list_type": "write a list: `- ` and a value on each line",
    "tuple_type": "write a list: `- ` and a value on each line",
    "dict_type": _SECTION,
    "model_type": _SECTION,
    "model_attributes_type": _SECTION,
    "dataclass_type": _SECTION,
}
"""Messages for the types of Pydantic's errors."""


def in_words(kind: str, value: Any, message: str) -> str:
    """`kind` and `message` are those of a validation error. The answer does not contain the value, which may
    be a secret."""
    found = _EXPECTED.get(kind)
    if found is None:
        return message.replace("Input should be", "it must be", 1)
    if kind == "string_type" and isinstance(value, bool):
        return f"{found} (without quotes, YAML takes on, off, yes and no for true or false)"
    if value is None and found is _SECTION:
        return f"{found}, or remove its line"
    return found
