"""Penstock: change data capture for Spark.

The public API: `Pipeline` runs a pipeline file, `follow` and `ChangeReader` read changes without Spark, and
every error is a `PenstockError`. Other modules may change without notice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "ChangeBatch",
    "ChangeReader",
    "Committed",
    "PenstockError",
    "Pipeline",
    "TableChanged",
    "follow",
    "wait_until",
]

if TYPE_CHECKING:
    from penstock.changes import ChangeBatch, ChangeReader, Committed, TableChanged, follow
    from penstock.errors import PenstockError
    from penstock.runtime.completeness import wait_until
    from penstock.runtime.pipeline import Pipeline

_HOMES = {
    "Pipeline": "penstock.runtime.pipeline",
    "wait_until": "penstock.runtime.completeness",
    "PenstockError": "penstock.errors",
}


def __getattr__(name: str) -> Any:
    """Imports a name when it is first asked for: a Spark task that imports the package needs none of them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES.get(name, "penstock.changes")), name)
