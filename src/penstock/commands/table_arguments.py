"""Parses table names on the command line."""

from __future__ import annotations

from penstock.errors import ConfigError
from penstock.model.schema import TableId


def table_named(text: str) -> TableId:
    """The table named by a command-line argument. Raises `ConfigError`."""
    try:
        return TableId.parse(text)
    except ValueError as error:
        raise ConfigError(
            f"{error}.", hint="A database whose name has dots stands in backticks: '`a.b`.t'."
        ) from None
