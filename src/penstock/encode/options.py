"""Options of the message formats. The core knows them and their defaults; here they are read from text."""

from __future__ import annotations

import json
from collections.abc import Iterable

from penstock._core import DecodeError, LogEncoder
from penstock.errors import ConfigError

BINARY_FORMATS = ("avro", "protobuf", "canal-entry")
"""Formats whose messages are no text."""
FORMATS = ("json", "maxwell", "debezium", "canal", "cloudevents", *BINARY_FORMATS)


def options_json(options: Iterable[str]) -> str:
    """`name=value` as JSON. Debezium's documentation writes names with dots, so both ways are understood."""
    fields: dict[str, object] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or not name:
            raise ConfigError(f"`{option}` is not an option.", hint="Write it as name=value.")
        fields[name.strip().replace(".", "_")] = {"true": True, "false": False}.get(value.lower(), value)
    return json.dumps(fields)


def check_format(name: str, options: str) -> None:
    """Raises `ConfigError` for a format or an option that does not exist."""
    if name not in FORMATS:
        raise ConfigError(f"There is no format `{name}`.", hint=f"Formats: {', '.join(FORMATS)}.")
    try:
        LogEncoder([], name, options=options)
    except DecodeError as error:
        raise ConfigError(
            f"The {error.reason}.", hint="`penstock docs formats` lists the options."
        ) from error
