"""Names of floating-point values that are no numbers. JSON has no such values, so they are texts there, with
the names that Java, JavaScript and Kafka Connect's converters know."""

from __future__ import annotations

import math
from typing import Any

NAN, INFINITY, MINUS_INFINITY = "NaN", "Infinity", "-Infinity"
NAMES = (NAN, INFINITY, MINUS_INFINITY)


def name_of(value: float) -> str:
    if math.isnan(value):
        return NAN
    return INFINITY if value > 0 else MINUS_INFINITY


def with_names(value: Any) -> Any:
    """The value with names instead of what is no number, also inside of dicts and lists."""
    if isinstance(value, float):
        return value if math.isfinite(value) else name_of(value)
    if isinstance(value, dict):
        return {name: with_names(one) for name, one in value.items()}
    return [with_names(one) for one in value] if isinstance(value, list | tuple) else value
