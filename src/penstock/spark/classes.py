"""An archive of the classes that Spark loads, so that the JVM can map them into memory instead of parsing
them.

A Spark driver loads about 15,000 classes from 280 jars before it processes the first row. Java's class-data
sharing writes the classes of one run into a file, and later runs with the same class path map that file
into memory. Measured on two cores: session and first job take 17.5 s without the archive and 9.5 s with it.
`training_run.py` makes the archive. A JVM to which the archive does not fit (another Java, other jars)
ignores it, so it is always safe to name one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

import pyspark

from penstock.artifacts.maven import cache_directory, java

QUIET = "-Xlog:disable -Xlog:all=warning:stderr"
"""Sends the JVM's own warnings to stderr. By default they go to stdout, which is for documents of
`--json`."""


ARCHIVES_MAX = 6
"""Limit of archives: enough for several environments and sinks. Each has 200 MB."""


def archive(paths: Iterable[Path]) -> Path:
    """The path of the archive for this Java, PySpark and additional jars, whether it exists or not."""
    # Resolved like the paths given to the JVM, because a virtual environment may be a link to another one.
    jars = sorted(Path(pyspark.__file__).resolve().parent.joinpath("jars").iterdir())
    facts = [_fact(Path(java()).resolve()), *[_fact(path) for path in (*paths, *jars)]]
    name = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    return cache_directory() / "classes" / f"spark-{pyspark.__version__}-{name}.jsa"


def java_options(paths: Iterable[Path]) -> str:
    """Options with which a JVM uses the archive, if it exists."""
    path = archive(paths)
    if not path.exists():
        return QUIET
    with contextlib.suppress(OSError):  # the file may belong to another account
        os.utime(path)  # the time of its last use, for `forget_unused`
    return f'{QUIET} -Xshare:auto "-XX:SharedArchiveFile={path}"'


def forget_unused(folder: Path) -> None:
    """Removes the archives that were not used for longest. Otherwise those of removed Javas and
    environments would stay."""
    for old in sorted(folder.glob("*.jsa"), key=lambda path: path.stat().st_mtime)[:-ARCHIVES_MAX]:
        old.unlink(missing_ok=True)


def _fact(path: Path) -> str:
    """Identifies a file by its path, size and time."""
    status = path.stat()
    return f"{path} {status.st_size} {status.st_mtime_ns}"
