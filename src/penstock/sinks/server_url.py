"""Checks the address of a server in the options of a sink."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import SplitResult, urlsplit


def checked(value: str, schemes: Collection[str], example: str) -> SplitResult:
    """The parts of an address with one of these schemes. Raises `ValueError` for any other, and if it has an
    account or parameters. `example`: how to write it."""
    parts = urlsplit(value)
    if parts.scheme not in schemes or not parts.hostname:
        raise ValueError(f"write {example}")
    if parts.username or parts.password:
        raise ValueError("write the account into `sink.user` and `sink.password`, not into the URL")
    if parts.query:
        raise ValueError(f"write {example}, without parameters")
    return parts
