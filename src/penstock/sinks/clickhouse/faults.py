"""Errors of the server as Penstock's: who acts, and what to do."""

from __future__ import annotations

from penstock.connections.answers import NoAnswer
from penstock.errors import ConfigError, PenstockError, TableError, TransientError
from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sinks.clickhouse.client import Refused

UNKNOWN_TABLE = 60
UNKNOWN_DATABASE = 81
_ACCOUNT = frozenset({192, 193, 194, 195, 291, 497, 516})
"""Unknown user, wrong password, no access."""
_PASSING = frozenset({159, 160, 202, 203, 209, 210, 236, 241, 242, 243, 252, 319, 425, 473, 999})
"""Timeouts, too many queries, memory, no space, too many parts, read only for a time, locks."""
_TOO_LARGE_TO_DROP = 359


def explained(error: Exception, what: str, table: TableId | None) -> PenstockError:
    """The error without values of rows. `what` begins the message."""
    if isinstance(error, NoAnswer):
        return TransientError(f"{what}: {error}.", hint="It is tried again until the server answers.")
    assert isinstance(error, Refused)
    said = f"code {error.code}" if error.code else f"status {error.status}"
    if error.code in _ACCOUNT or error.status in (401, 403):
        return ConfigError(
            f"{what}: the server refuses this account ({said}).",
            hint="Check `sink.user` and `sink.password`. The account needs to create, drop, alter, read and "
            "write databases, tables and views.",
        )
    if error.code in _PASSING or (not error.code and error.status >= 500):
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
