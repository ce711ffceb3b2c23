"""Writes the notebooks in examples/ from the scripts of the same names, whose cells begin with `# %%`:
`python scripts/notebook.py`; with `--check` it only compares."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parent.parent / "examples"
SCRIPTS = (EXAMPLES / "tutorial.py", EXAMPLES / "lake.py")
_CELL = re.compile(r"^# %%(?P<kind>.*)\n", re.MULTILINE)


def notebook_text(script: str) -> str:
    """The notebook of a script. Results of cells are not in it."""
    parts = _CELL.split(script)[1:]
    cells: list[dict[str, Any]] = []
    for number, (kind, text) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
        lines = text.strip().splitlines()
        cell: dict[str, Any] = {"id": f"cell-{number}", "metadata": {}}
        if "[markdown]" in kind:
            cell |= {"cell_type": "markdown"}
            lines = [line.removeprefix("#").removeprefix(" ") for line in lines]
        else:
            cell |= {"cell_type": "code", "execution_count": None, "outputs": []}
        cells.append({**cell, "source": "\n".join(lines).splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    document = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def main() -> int:
    outdated = []
    for script in SCRIPTS:
        notebook, made = script.with_suffix(".ipynb"), notebook_text(script.read_text("utf-8"))
        if "--check" not in sys.argv:
            notebook.write_text(made, "utf-8")
        elif not notebook.exists() or notebook.read_text("utf-8") != made:
            outdated.append(notebook.name)
    if outdated:
        print(f"run python scripts/notebook.py: {', '.join(outdated)}")
    return 1 if outdated else 0


if __name__ == "__main__":
    sys.exit(main())
