"""Names of tables and namespaces in HBase. Pure.

HBase allows letters, digits and underscores in namespaces, also hyphens and points in tables. Any other name
gets underscores in place of what is not allowed, and ends in a digest of the whole name.
"""

from __future__ import annotations

import hashlib
import re

RESERVED = frozenset({"hbase"})
_NAMESPACE = re.compile(r"[A-Za-z0-9_]{1,64}")
_TABLE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


def namespace_name(name: str) -> str:
    plain = _NAMESPACE.fullmatch(name) and name.lower() not in RESERVED
    return name if plain else f"{_cleaned(name)}__{_digest(name)}"


def table_name(name: str) -> str:
    return name if _TABLE.fullmatch(name) else f"{_cleaned(name)}-{_digest(name)}"


def _cleaned(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", name)[:40]


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
