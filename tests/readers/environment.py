"""The programs of others that read lake tables, in an environment of their own in the cache: Penstock needs
none of them."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

from penstock.artifacts.maven import cache_directory, make_in_cache
from penstock.disk import lock

PROGRAMS = Path(__file__).with_name("programs.py")
PINNED = Path(__file__).with_name("requirements.txt")
INSTALL_SECONDS = 900
READ_SECONDS = 120

Row = tuple[str | None, ...]


@functools.cache
def python() -> Path:
    """The interpreter of the environment, which is made if it does not exist. $PENSTOCK_READERS names another
    one."""
    if given := os.environ.get("PENSTOCK_READERS"):
        return Path(given)
    digest = hashlib.sha256(PINNED.read_bytes() + sys.version.encode()).hexdigest()[:12]
    path = cache_directory() / "readers" / digest
    make_in_cache(path.parent)
    with lock.held(path.with_name(f"{digest}.lock"), wait_seconds=INSTALL_SECONDS) as ours:
        assert ours is not None, f"another process installs {path}"
        if not (path / "complete").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", path], check=True)
            pip = [str(path / "bin" / "pip"), "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, "install", "-r", PINNED], check=True, timeout=INSTALL_SECONDS)
            (path / "complete").touch()
    return path / "bin" / "python"


def read(engine: str, kind: Literal["iceberg", "delta"], location: Path) -> list[Row] | str:
    """The table's rows as texts, or why the program refuses the table."""
    done = subprocess.run(
        [python(), PROGRAMS, engine, kind, location],
        capture_output=True, text=True, timeout=READ_SECONDS, check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )  # fmt: skip
    if done.returncode:
        return f"the process ended with code {done.returncode}: {done.stderr[-300:]}"
    found: Any = json.loads(done.stdout.splitlines()[-1])
    return str(found["refused"]) if isinstance(found, dict) else [tuple(row) for row in found]
