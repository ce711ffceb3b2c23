"""Errors of the servers and of the client, as Penstock's: who acts, and what to do."""

from __future__ import annotations

from penstock.connections.verdicts import Codes, Verdict
from penstock.errors import ConfigError, PenstockError, TableError, TargetRefused, TransientError
from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sinks.hbase.cluster import ClusterError

_DENIED = {"AccessDeniedException", "FailedLoginException", "AccessControlException", "SaslException",
           "FallbackDisallowedException", "InsufficientPermissionException",
           "FatalConnectionException"}  # fmt: skip
_GONE = {"TableNotFoundException", "NoSuchColumnFamilyException"}
_CLOSED = {"TableNotEnabledException", "TableNotDisabledException"}
_PASSING = {"ConcurrentTableModificationException", "LeaseException", "LocalConnectionClosedException",
            "MasterStoppedException", "NoServerForRegionException", "NotAllMetaRegionsOnlineException",
            "OperationTimeoutExceededException", "OutOfOrderScannerNextException", "QuotaExceededException",
            "ScannerResetException", "ServerTooBusyException", "StoppedRpcClientException",
            "UnknownScannerException"}  # fmt: skip
"""Those that the client itself does not try again, but that pass, or that an administrator mends."""
_REFUSED = {"DoNotRetryIOException", "IllegalArgumentException"}
CODES = Codes(
    "https://hbase.apache.org/apidocs/org/apache/hadoop/hbase/DoNotRetryIOException.html and its subclasses",
    outage=frozenset({*_CLOSED, *_PASSING}),
    configuration=frozenset({*_DENIED, "ClassNotFoundException", "NoClassDefFoundError"}),
    poison=frozenset({*_REFUSED, *_GONE}),
    other=Verdict.OUTAGE,
)
"""By the simple names of Java's classes: those of an error and its causes, and the classes above each. Others
say that something is away."""


def means_gone(error: ClusterError) -> bool:
    """Whether the table, or its column family, is not there."""
    return bool(_GONE & set(error.kinds))


def explained(error: ClusterError, what: str, table: TableId | None) -> PenstockError:
    """The error of the cluster as Penstock's, without values of rows. `what` begins the message."""
    names = error.kinds
    kinds = {name for cause in error.causes for name in cause}
    poison = not kinds & _PASSING and Verdict.POISON in [CODES.verdict(*cause) for cause in error.causes]
    said = f"{what}: {names[-1]}."
    if kinds & _DENIED:
        return TargetRefused(
            said,
            hint="The cluster refuses this account, or how it connects. It needs the permissions READ, WRITE "
            "and CREATE on its tables and on `sink.control`, and ADMIN on namespaces that do not exist yet. "
            "For Kerberos, see `penstock docs sinks-hbase`.",
        )
    if kinds & _CLOSED:
        return TransientError(
            said, hint="The table is disabled, or on its way to that. It is tried again: enable it."
        )
    if "ClassNotFoundException" in kinds or "NoClassDefFoundError" in kinds:
        return ConfigError(said, hint="The Spark session lacks HBase's client: `penstock docs sinks-hbase`.")
    if table is not None and poison:
        return TableError(
            said,
            hint="Look for the reason in the region server's log. A cell that is too large needs a greater "
            f"`hbase.server.keyvalue.maxsize`. Then run `penstock unpark FILE {argument(table)}`.",
            table=str(table),
        )
    if poison:
        return ConfigError(said, hint="Check the section `sink`.")
    return TransientError(said, hint="It is tried again until the cluster answers.")
