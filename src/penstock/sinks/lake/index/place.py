"""Where a pipeline has its key indexes, and what they may take."""

from __future__ import annotations

from pathlib import Path

INDEX_DIRECTORY = "spark.penstock.index"
"""Option of the session: the directory of the key indexes."""

KEY_INDEX_MEMORY = 256 * 1024**2
"""The default of the option `key_index_memory`: the entries of about ten million rows."""


def index_option(state: Path) -> dict[str, str]:
    """The option for a pipeline with this state directory."""
    return {INDEX_DIRECTORY: str(state.absolute() / "index")}
