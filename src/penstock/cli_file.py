"""The pipeline file as an argument of commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

pipeline_file: list[Path] = []
"""The pipeline file of this command, once it has been parsed from the command line."""


def _remember(file: Path) -> Path:
    pipeline_file[:] = [file]
    return file


File = Annotated[
    Path, typer.Argument(help="The pipeline file (YAML).", show_default=False, callback=_remember)
]
