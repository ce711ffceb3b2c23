"""Spark's Python daemon (`spark.python.daemon.module`), with a faster start of workers and tasks.

Spark puts `pyspark.zip` at the front of the module path. It contains only sources, so each process that
imports from it compiles them again, which takes as long as all other imports together (0.45 of 0.95 CPU
seconds). If the archive belongs to an installed PySpark, that package is imported instead, which has
bytecode.

PySpark's worker calls `importlib.invalidate_caches()` at the start of every task. On Python 3.10 to 3.12,
each zip importer then reads its archive again: 17 importers, all of `pyspark.zip`, 0.37 CPU seconds per
task. Archives do not change during a session, but directories may (`addPyFile`). So only the caches of
directories are invalidated.

Modules that every task of Penstock needs are imported before the fork, so that workers share them. None of
them starts a thread when it is imported.

PySpark's worker collects garbage after every task, and would look at all objects of these modules each time
(0.04 CPU seconds). So they are set apart for good.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import types
from importlib.machinery import FileFinder, PathFinder
from pathlib import Path

EXPECTED = "PENSTOCK_EXPECTS_PYTHON"
"""The variable with the driver's version of Python, on clusters (`spark/environment.py`)."""


def without_archive(path: list[str]) -> list[str]:
    """The module path without `pyspark.zip`, if the rest of the path has the package that the archive was
    made from."""
    rest = [entry for entry in path if Path(entry).name != "pyspark.zip"]
    found = PathFinder.find_spec("pyspark", rest)
    if found is None or found.origin is None:
        return path
    own = Path(found.origin).parent / "python" / "lib" / "pyspark.zip"
    archives = [Path(entry) for entry in path if entry not in rest]
    return rest if all(own.exists() and own.samefile(archive) for archive in archives) else path


def invalidate_directory_caches() -> None:
    """Does what `importlib.invalidate_caches()` does, except for archives."""
    for path, finder in list(sys.path_importer_cache.items()):
        if finder is None:
            del sys.path_importer_cache[path]
        elif isinstance(finder, FileFinder):
            finder.invalidate_caches()


def patch() -> None:
    """Replaces the call in PySpark's worker only. User code keeps the real function."""
    from pyspark import worker_util

    replacement = types.ModuleType("importlib")
    replacement.invalidate_caches = invalidate_directory_caches  # type: ignore[attr-defined]
    worker_util.importlib = replacement  # type: ignore[attr-defined]


def refuse_other_python() -> None:
    """Ends this process with a message for the driver if packages of another Python would be imported. That
    would end in messages about missing modules."""
    expected = os.environ.get(EXPECTED, "")
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if expected and expected != own:
        sys.exit(f"[PENSTOCK_OTHER_PYTHON] {own} instead of {expected}")


def main() -> None:
    refuse_other_python()
    sys.path[:] = without_archive(sys.path)
    patch()
    with contextlib.suppress(ImportError):  # clusters run without it
        import pandas  # noqa: F401  # pyarrow looks for it when it is first given a list
    import pyarrow  # noqa: F401
    import pyspark.sql.pandas.serializers  # noqa: F401
    from pyspark.daemon import manager

    from penstock.epochs.tasks import first_imports

    list(first_imports(()))
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
