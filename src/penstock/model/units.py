"""Numbers with a unit: how they can be written in a pipeline file, and how they are shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(B|KiB|MiB|GiB|TiB|kB|KB|MB|GB|TB)?\s*$")
_SIZE_UNITS = {
    "B": 1, "kB": 1000, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4,
    "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4,
}  # fmt: skip
_TIME = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)\s*$")
_TIME_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class Unit:
    """What a number counts. `pattern`: how it may be written as a text; `shown`: units to show it in."""

    name: str
    pattern: str
    shown: tuple[tuple[str, int], ...]

    def show(self, value: int) -> str:
        """Returns the shortest exact text of a number: `256MiB`, `10s`."""
        exact = [(name, size) for name, size in self.shown if value and value % size == 0]
        name, size = max(exact, key=lambda one: one[1], default=("", 1))
        return f"{value // size}{name}"

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        number = {**handler(schema), "format": self.name.split(",")[0]}
        return {"anyOf": [number, {"type": "string", "pattern": self.pattern}]}


def _shown(units: Mapping[str, int], *names: str) -> tuple[tuple[str, int], ...]:
    return tuple((name, units[name]) for name in names)


SIZE = Unit("size, such as 256MiB", _SIZE.pattern, _shown(_SIZE_UNITS, "B", "KiB", "MiB", "GiB", "TiB"))
DURATION = Unit("duration, such as 10s", _TIME.pattern, _shown(_TIME_UNITS_MS, "ms", "s", "min", "h", "d"))


def _bytes(value: Any) -> Any:
    if isinstance(value, str) and (match := _SIZE.match(value)):
        return int(float(match[1]) * _SIZE_UNITS[match[2] or "B"])
    if isinstance(value, str):
        raise ValueError(f"{value!r} is not a size; write for example 256MiB")
    return value


def _milliseconds(value: Any) -> Any:
    if isinstance(value, str) and (match := _TIME.match(value)):
        return int(float(match[1]) * _TIME_UNITS_MS[match[2]])
    if isinstance(value, str):
        raise ValueError(f"{value!r} is not a duration; write for example 500ms, 10s or 7d")
    return value


Bytes = Annotated[int, BeforeValidator(_bytes), Field(ge=0), SIZE]
"""A number of bytes, or a size with its unit."""
Milliseconds = Annotated[int, BeforeValidator(_milliseconds), Field(ge=0), DURATION]
"""A number of milliseconds, or a duration with its unit."""
