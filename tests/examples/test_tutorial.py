"""The tutorials as a script and as a notebook, run as a newcomer would."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENDS = {"tutorial": "The table is in ", "lake": "All of it is in "}
"""The last line of each, before a path."""
CELLS = """
import json, sys
names = {"__name__": "__main__"}
for cell in json.load(open(sys.argv[1], encoding="utf-8"))["cells"]:
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), "cell", "exec"), names)
"""


def test_the_notebooks_are_made_from_the_scripts() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "notebook.py"), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["script", "notebook"])
@pytest.mark.parametrize("name", ENDS)
def test_a_tutorial_runs_as_it_is(name: str, kind: str) -> None:
    path = ROOT / "examples" / name
    command = (
        [str(path.with_suffix(".py"))] if kind == "script" else ["-c", CELLS, str(path.with_suffix(".ipynb"))]
    )
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stderr[-2000:]
    assert name != "tutorial" or ("1 table into jdbc" in done.stdout and "shop.orders" in done.stdout)
    left = Path(done.stdout.strip().rpartition(ENDS[name])[2])
    shutil.rmtree(left if left.is_dir() else left.parent)
