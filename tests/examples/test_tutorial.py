"""The tutorial as a script and as a notebook, run as a newcomer would."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT, NOTEBOOK = ROOT / "examples" / "tutorial.py", ROOT / "examples" / "tutorial.ipynb"
CELLS = """
import json, sys
names = {"__name__": "__main__"}
for cell in json.load(open(sys.argv[1], encoding="utf-8"))["cells"]:
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), "cell", "exec"), names)
"""


def test_the_notebook_is_made_from_the_script() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "notebook.py"), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("what", ["script", "notebook"])
def test_the_tutorial_runs_as_it_is(what: str) -> None:
    command = [str(SCRIPT)] if what == "script" else ["-c", CELLS, str(NOTEBOOK)]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "1 tables into jdbc" in done.stdout and "shop.orders" in done.stdout
    left = Path(done.stdout.strip().rpartition("is in ")[2]).parent
    shutil.rmtree(left)
