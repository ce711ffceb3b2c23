"""Errors of the servers and of the client, as Penstock's: who acts, and what to do.

Only the names of Java's classes are used: a message may have keys of rows.
"""

from __future__ import annotations

from typing import Any

from penstock.errors import ConfigError, PenstockError, TableError, TransientError
from penstock.model.schema import TableId
from penstock.printable import argument

_DENIED = {"AccessDeniedException", "FailedLoginException", "AccessControlException", "SaslException",
           "FallbackDisallowedException", "InsufficientPermissionException"}  # fmt: skip
_GONE = {"TableNotFoundException", "NoSuchColumnFamilyException"}
_CLOSED = {"TableNotEnabledException", "TableNotDisabledException"}
_REFUSED = {"DoNotRetryIOException", "IllegalArgumentException", "InvalidFamilyOperationException",
            "DoNotRetryRegionException", "ConstraintException", "FailedSanityCheckException",
            "NamespaceNotFoundException"}  # fmt: skip
GONE = "gone"


def java_names(error: Any) -> list[str]:
    """The names of the Java classes of an error and its causes, the outermost first."""
    found: list[str] = []
    waiting = [error.java_exception]
    while waiting and len(found) < 20:
        one = waiting.pop(0)
        if one is None:
            continue
        name = one.getClass().getSimpleName()
        found.append(name)
        if name == "RetriesExhaustedWithDetailsException":
            waiting += list(one.getCauses())[:3]
        waiting.append(one.getCause())
    return found


def means_gone(error: Any) -> bool:
    """Whether the table, or its column family, is not there."""
    return bool(_GONE & set(java_names(error)))


def explained(error: Any, what: str, table: TableId | None) -> PenstockError:
    """The error without values of rows. `what`: a sentence's begin."""
    names = java_names(error)
    kinds = set(names)
    telling = next((one for one in reversed(names) if not one.endswith("RemoteException")), names[0])
    said = f"{what}: {telling}."
    if kinds & _DENIED:
        return ConfigError(
            said,
            hint="The cluster refuses this account. It needs the permissions READ, WRITE and CREATE on its "
            "tables and on `sink.control`, and ADMIN on namespaces that do not exist yet. For Kerberos, see "
            "docs/sinks-hbase.md.",
        )
    if kinds & _CLOSED:
        return TransientError(
            said, hint="The table is disabled, or on its way to that. It is tried again: enable it."
        )
    if "ClassNotFoundException" in kinds or "NoClassDefFoundError" in kinds:
        return ConfigError(said, hint="The Spark session lacks HBase's client: docs/sinks-hbase.md.")
    if table is not None and kinds & (_REFUSED | _GONE):
        return TableError(
            said,
            hint="Look for the reason in the region server's log. A cell that is too large needs a greater "
            f"`hbase.server.keyvalue.maxsize`. Then run `penstock unpark FILE {argument(table)}`.",
            table=str(table),
        )
    if kinds & (_REFUSED | _GONE):
        return ConfigError(said, hint="Check the section `sink`.")
    return TransientError(said, hint="It is tried again until the cluster answers.")
