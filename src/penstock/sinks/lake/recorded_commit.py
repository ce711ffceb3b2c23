"""The property of a lake table that records a pipeline's last commit."""

from __future__ import annotations

COMMIT = "penstock.commit"


def property_of(source: str) -> str:
    """The property's name. `source`: the table of the source, in a target that has several; else empty."""
    return f"{COMMIT}.{source}" if source else COMMIT
