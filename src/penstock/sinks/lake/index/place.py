"""Where a pipeline has its key indexes."""

from __future__ import annotations

from pathlib import Path

INDEX_DIRECTORY = "spark.penstock.index"
"""Option of the session: the directory of the key indexes."""


def index_option(state: Path) -> dict[str, str]:
    """The option for a pipeline with this state directory."""
    return {INDEX_DIRECTORY: str(state.absolute() / "index")}
