"""Parses table names on the command line."""

from __future__ import annotations

from penstock.errors import ConfigError
from penstock.model.schema import TableId


def table_named(text: str) -> TableId:
    """Returns the table that a command-line argument names. Raises `ConfigError` if the argument is not a
    valid name."""
    try:
        return TableId.parse(text)
    except ValueError as error:
        raise ConfigError(
            f"{error}.", hint="Write a database name with dots in backticks: '`a.b`.t'."
        ) from None
