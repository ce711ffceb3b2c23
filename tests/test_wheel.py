"""The wheel is enough: who installs it needs no Rust, no checkout and no extra."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NAME = re.compile(r"penstock-[0-9.]+-cp310-abi3-manylinux_2_28_[a-z0-9_]+\.whl")


def run(*command: object, environment: dict[str, str], folder: Path, timeout: int) -> str:
    done = subprocess.run(
        [str(word) for word in command], env=environment, cwd=folder, timeout=timeout,
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def without_checkout(folder: Path, venv: Path) -> dict[str, str]:
    """An environment that neither finds the checkout nor a Rust toolchain."""
    shims = folder / "shims"
    shims.mkdir()
    for name in ("cargo", "rustc", "maturin"):
        (shims / name).write_text("#!/bin/sh\necho 'there is no Rust here' >&2\nexit 127\n")
        (shims / name).chmod(0o755)
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
    return {**kept, "PATH": f"{venv / 'bin'}:{shims}:{os.environ['PATH']}"}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_demo_runs_from_the_wheel_and_its_lock_alone(tmp_path: Path) -> None:
    built = run(
        ROOT / "scripts" / "wheel", tmp_path / "dist", environment=dict(os.environ), folder=ROOT, timeout=1800
    )
    wheel, lock = map(Path, built.splitlines())
    assert NAME.fullmatch(wheel.name), wheel.name

    venv = tmp_path / "venv"
    environment = without_checkout(tmp_path, venv)
    run(sys.executable, "-m", "venv", venv, environment=environment, folder=tmp_path, timeout=120)
    for what in (("--require-hashes", "-r", lock), ("--no-deps", "--no-index", wheel)):
        run("pip", "install", "--quiet", *what, environment=environment, folder=tmp_path, timeout=1200)
    where = run("python", "-c", "import penstock; print(penstock.__file__)",
                environment=environment, folder=tmp_path, timeout=60)  # fmt: skip
    assert Path(where.strip()).is_relative_to(venv)
    pages = run("penstock", "docs", environment=environment, folder=tmp_path, timeout=60)
    assert pages.startswith("readme") and "\noperations " in pages
    missing = (
        "import importlib.util as u; print([n for n in ('starlette', 'pytest', 'mkdocs') if u.find_spec(n)])"
    )
    assert run("python", "-c", missing, environment=environment, folder=tmp_path, timeout=60).strip() == "[]"

    said = run("penstock", "demo", "--rows", 50_000, "--json",
               environment=environment, folder=tmp_path, timeout=1200)  # fmt: skip
    result = json.loads(said.splitlines()[-1])
    assert result["equal"] and result["rows"] >= 50_000 and result["kills"] == ["receiver", "driver"]
