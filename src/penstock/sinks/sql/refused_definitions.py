"""What databases refuse of a target's definition, and what helps.

For these errors, a server's message names columns, views and other objects, but no values of rows. So it is
shown. Sources: PostgreSQL's and MySQL's lists of errors.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import TableError
from penstock.model.schema import TableId
from penstock.printable import argument

DEPENDS = "Drop what depends on the column at the target (a view, rule, index or constraint)"
_RENAME = (
    "Give the column another name at the target, by `rename` in `transforms` (`penstock docs transforms`)"
)
_EXISTS = "Rename or drop what has this name at the target"
_TOO_MANY = "Leave columns out, by `exclude` in `transforms` (`penstock docs transforms`)"
_NO_KEY = (
    "Switch sql_require_primary_key off at the target's server: a key of long texts cannot be a primary key"
)

POSTGRESQL: Mapping[str, str] = {
    "0A000": DEPENDS, "2BP01": DEPENDS, "42P16": DEPENDS, "42701": _RENAME, "42703": DEPENDS,
    "42602": _RENAME, "42622": _RENAME, "42939": _RENAME, "42P07": _EXISTS, "42710": _EXISTS,
    "54011": _TOO_MANY, "42804": DEPENDS, "42846": DEPENDS,
}  # fmt: skip
MYSQL: Mapping[int, str] = {
    1050: _EXISTS, 1059: _RENAME, 1060: _RENAME, 1061: _EXISTS, 1072: DEPENDS, 1113: _TOO_MANY,
    1117: _TOO_MANY, 1118: _TOO_MANY, 1166: _RENAME, 1553: DEPENDS, 1828: DEPENDS, 1829: DEPENDS,
    1832: DEPENDS, 1833: DEPENDS, 3108: DEPENDS, 3750: _NO_KEY, 3780: DEPENDS, 3837: DEPENDS,
    3855: DEPENDS, 3959: DEPENDS, 4110: DEPENDS,
}  # fmt: skip


def refused(what: str, said: str, cure: str, table: TableId) -> TableError:
    """The error for a definition. `said`: the server's message. `cure`: of `POSTGRESQL` or `MYSQL`."""
    return TableError(
        f"{what}: the database says: {' '.join(said.split()).rstrip('.')}.",
        hint=f"{cure}. Then run `penstock unpark FILE {argument(table)}`.",
        table=str(table),
    )
