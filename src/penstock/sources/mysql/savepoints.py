"""Functions and triggers of the source that set savepoints.

Their savepoints are of a level of their own. They end with the function, and leave a savepoint of the same
name that the transaction around it has set. The log has both alike, and like one that was moved by setting it
again. So it does not say which of them a ROLLBACK TO means (measured on MySQL 5.7 without GTIDs and on
MariaDB, `tests/sources/mysql/test_savepoints.py`; newer servers of MySQL do not log what was taken back).
The catalog can tell: if no function or trigger has the name in its text, the last one is meant. It shows them
as they are now, not as they were when the transaction ran.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

FUNCTIONS_AND_TRIGGERS = (
    "SELECT TRIGGER_SCHEMA, TRIGGER_NAME, ACTION_STATEMENT FROM information_schema.TRIGGERS"
    " WHERE ACTION_STATEMENT LIKE '%SAVEPOINT%' UNION ALL "
    "SELECT ROUTINE_SCHEMA, ROUTINE_NAME, ROUTINE_DEFINITION FROM information_schema.ROUTINES"
    " WHERE ROUTINE_TYPE = 'FUNCTION' AND ROUTINE_DEFINITION LIKE '%SAVEPOINT%'"
)
"""Those that set savepoints: database, name and text. Without the privileges of `_SEES_ALL`, some are left
out."""
_SEES_ALL = (
    "SELECT COUNT(*) FROM information_schema.USER_PRIVILEGES WHERE PRIVILEGE_TYPE IN ('SELECT', 'TRIGGER')"
    " AND GRANTEE = CONCAT('''', REPLACE(CURRENT_USER(), '@', '''@'''), '''')"
)
"""SELECT on all databases shows the text of functions, TRIGGER that of triggers."""


def may_set(connection: Any, rollback: str) -> bool:
    """Whether a function or trigger may set the savepoint of a ROLLBACK TO, as the server has written it."""
    with connection.cursor() as cursor:
        cursor.execute(_SEES_ALL)
        if cursor.fetchone() != (2,):
            return True
        cursor.execute(FUNCTIONS_AND_TRIGGERS)
        return names_savepoint((text for _, _, text in cursor.fetchall()), rollback)


def names_savepoint(texts: Iterable[str], rollback: str) -> bool:
    """Whether one of the texts may have the name of the savepoint. Servers compare names without case, and
    some without accents."""
    name = _plain(rollback.rpartition("ROLLBACK TO ")[2])
    return any(not name.isascii() or name in _plain(text) for text in texts)


def _plain(text: str) -> str:
    return re.sub(r"[`\"\s]", "", text).lower()
