"""Spark's Python daemon with the waste taken out of its start and of each task
(`spark.python.daemon.module`).

Spark puts `pyspark.zip` in front of the path. It holds sources only: whoever imports from it compiles them
anew, which takes as long as all other imports together (0.45 of 0.95 CPU-s). Where the archive is that of an
installed PySpark, the package beside it is imported instead, which has its bytecode.

PySpark's worker calls `importlib.invalidate_caches()` at the start of every task. On Python 3.10 to 3.12 that
makes every zip importer read its archive again: 17 of them, all `pyspark.zip`, 0.37 CPU-s a task. Archives do
not change while a session runs, directories may (`addPyFile`): so here only the finders of directories
forget.

Modules that every task of ours needs are imported before the fork, so workers share them. None of them starts
a thread on import.
"""

from __future__ import annotations

import sys
import types
from importlib.machinery import FileFinder, PathFinder
from pathlib import Path


def without_archive(path: list[str]) -> list[str]:
    """A module path without `pyspark.zip`, if the package it was made from is found on the rest."""
    rest = [entry for entry in path if Path(entry).name != "pyspark.zip"]
    found = PathFinder.find_spec("pyspark", rest)
    if found is None or found.origin is None:
        return path
    own = Path(found.origin).parent / "python" / "lib" / "pyspark.zip"
    archives = [Path(entry) for entry in path if entry not in rest]
    return rest if all(own.exists() and own.samefile(archive) for archive in archives) else path


def invalidate_directory_caches() -> None:
    """What `importlib.invalidate_caches()` does, except for archives."""
    for path, finder in list(sys.path_importer_cache.items()):
        if finder is None:
            del sys.path_importer_cache[path]
        elif isinstance(finder, FileFinder):
            finder.invalidate_caches()


def patch() -> None:
    """Replaces the call in PySpark's worker, and only there: user code keeps the real function."""
    from pyspark import worker_util

    replacement = types.ModuleType("importlib")
    replacement.invalidate_caches = invalidate_directory_caches  # type: ignore[attr-defined]
    worker_util.importlib = replacement  # type: ignore[attr-defined]


def main() -> None:
    sys.path[:] = without_archive(sys.path)
    patch()
    import pandas  # noqa: F401  # pyarrow looks for it when it is first given a list
    import pyarrow  # noqa: F401
    import pyspark.sql.pandas.serializers  # noqa: F401
    from pyspark.daemon import manager

    from penstock.spark.tasks import first_imports

    list(first_imports(()))
    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
