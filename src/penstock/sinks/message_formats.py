"""Options of the formats of messages, as sinks that take messages have them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.sinks.schema_registry import BINARY_FORMATS, RegistryOptions

Options = Mapping[str, str | bool | int | float]


def format_options(format: str, options: Options, source: str, *, single_rows: bool = False) -> str:
    """The format's options as the core takes them. `source`: Debezium's `topic.prefix`."""
    fields: dict[str, Any] = {name.replace(".", "_"): value for name, value in options.items()}
    if format in ("debezium", "cloudevents", *BINARY_FORMATS):
        fields.setdefault("topic_prefix", source)
    if single_rows:
        fields["single_rows"] = True
    return json.dumps(fields)


def tells_definitions(format: str, options: Options) -> bool:
    """Whether changed definitions have messages. Canal always tells them."""
    found = {name.replace(".", "_"): value for name, value in options.items()}
    wanted = {"maxwell": "output_ddl", "debezium": "include_schema_changes"}.get(format, "")
    return format == "canal" or found.get(wanted) is True


def check_format(format: str, options: str, registry: RegistryOptions | None) -> None:
    """Raises `ValueError` for a format, or an option of it, that is not known, and for a registry that is
    missing or not needed. `options`: of `format_options`."""
    from penstock._core import DecodeError, LogEncoder

    try:
        LogEncoder([], format, options=options)
    except DecodeError as error:
        raise ValueError(
            f"the {error.reason}; `penstock docs formats` lists formats and their options"
        ) from None
    if (format in BINARY_FORMATS) != (registry is not None):
        needs = "needs" if registry is None else "does not take"
        raise ValueError(f"the format {format} {needs} a schema registry (`sink.registry`)")
