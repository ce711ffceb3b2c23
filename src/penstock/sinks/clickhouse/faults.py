"""Errors of the server as Penstock's: who acts, and what to do."""

from __future__ import annotations

from penstock.connections.answers import NoAnswer
from penstock.connections.verdicts import Codes, Verdict
from penstock.errors import ConfigError, PenstockError, TableError, TransientError
from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sinks.clickhouse.client import Refused
from penstock.sinks.refusals import refusal

UNKNOWN_TABLE = 60
UNKNOWN_DATABASE = 81
_RIGHTS = frozenset({164, 291, 497})
CODES = Codes(
    "https://github.com/ClickHouse/ClickHouse/blob/master/src/Common/ErrorCodes.cpp",
    outage=frozenset({
        86, 95, 96, 100, 101, 102, 198, 209, 210, 236, 279, 297, 364, 410, 519, 1000,  # the network, also
        # between servers
        159, 160, 201, 202, 203, 290, 335, 337, 367, 373, 384, 394, 411, 439, 473,  # time, quotas, number of
        # queries, threads, cancelled queries, locks
        242,  # a table that is read only, since its ZooKeeper is away
        173, 204, 214, 241, 243, 252, 272, 273, 274, 275, 298, 299, 400, 425, 499,  # memory, disks, too many
        # parts
        74, 75, 76, 77, 87, 88, 172,  # files
        225, 234, 244, 254, 255, 265, 285, 286, 289, 305, 319, 341, 369, 379, 415, 416, 517, 529, 999,
        # ZooKeeper, and replication that waits for it
        700, 745,  # too many sessions, too much load
    }),
    # user, password, rights, a read-only account
    configuration=frozenset({192, 193, 194, 195, 516, *_RIGHTS}),
)  # fmt: skip
"""By the number of the server's exception."""
_TOO_LARGE_TO_DROP = 359


def explained(error: Exception, what: str, table: TableId | None) -> PenstockError:
    """The error without values of rows. `what` begins the message."""
    if isinstance(error, NoAnswer):
        return TransientError(f"{what}: {error}.", hint="It is tried again until the server answers.")
    assert isinstance(error, Refused)
    said = f"code {error.code}" if error.code else f"status {error.status}"
    verdict = CODES.verdict(error.code)
    if verdict is Verdict.CONFIGURATION or not error.code:  # 401 or 403, perhaps of a proxy
        kind, details = refusal(table, of_table=error.code in _RIGHTS)
        return kind(
            f"{what}: the server refuses this account ({said}).",
            hint="Check `sink.user` and `sink.password`. The account needs to create, drop, alter, read and "
            "write databases, tables and views.",
            **details,
        )
    if verdict is Verdict.OUTAGE:
        return TransientError(f"{what}: the server answers {said}.", hint="It is tried again.")
    if error.code == _TOO_LARGE_TO_DROP:
        return TransientError(
            f"{what}: the server does not drop so large a table ({said}).",
            hint="Raise its `max_table_size_to_drop`. It is tried again.",
        )
    if table is not None:
        return TableError(
            f"{what}: the server refuses it ({said}).",
            hint="Look for the reason in the server's log, then run "
            f"`penstock resnapshot --recreate FILE {argument(table)}`.",
            table=str(table),
        )
    return ConfigError(f"{what}: the server refuses it ({said}).", hint="Check the section `sink`.")
