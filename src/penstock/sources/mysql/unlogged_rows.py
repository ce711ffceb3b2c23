"""Changes by statements whose rows are not in the log: DML in statement format, and statements that cannot be
understood.

Such a statement may write more tables than it names: through a view, through a trigger of a table that it
writes, through a function that is called, through foreign keys, or into the tables of a MERGE table. The
catalog shows all of these as they are now, not as they were when the statement was executed. So the statement
concerns every captured table, unless one of these is certain:

- MySQL lists in the event the databases that the statement wrote to (`updates`, the status variable
  Q_UPDATED_DB_NAMES). The list has the databases of all tables that the server locked for the statement, also
  those of views, triggers, functions and MERGE tables. If foreign keys refer to one of the tables, or if
  there are more than 16 databases, the server lists nothing. (Tried on 5.7, 8.0 and 9.7 for each of these
  ways: `tests/sources/mysql/test_statement_format.py`.) A captured table of another database is then not
  concerned. MariaDB does not write the list.
- On MySQL, CREATE TABLE … SELECT writes only its own table, because the server refuses functions that write
  other tables during it. MariaDB allows them. There it certainly writes only its own table if the query calls
  no function and reads one captured table, which is no view.
- After a restart, the server's MEMORY tables are empty. When one is opened, the server writes `DELETE FROM
  `database`.`table`` to the log. No trigger runs for that. It was certainly no session if the event does not
  say what it wrote to, because MySQL says that for each session's DML. On MariaDB, it was certainly no
  session if the event is outside of a transaction, because a session's DML never is. (Newer servers write
  TRUNCATE TABLE.)

In row format, only DDL and administration are logged as statements, and these name their tables. `ddl.parse`
knows which of them change no row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.model.schema import TableId
from penstock.model.statement_head import statement_head
from penstock.relaylog.index import Statement
from penstock.sources.mysql.ddl import statement as syntax
from penstock.sources.mysql.ddl.tokens import keywords

_IMPLICIT = re.compile(r"DELETE FROM `(?:[^`]|``)+`\.`(?:[^`]|``)+`")
_RUNS = keywords("SELECT TABLE VALUES WITH CALL DO EXECUTE HANDLER BEGIN ANALYZE EXPLAIN DESC DESCRIBE")
"""First words of statements that may call functions. Their tables are not in the text."""


@dataclass(frozen=True)
class Written:
    """The tables that a statement may have written. `named`: those in the statement. `all_of`: databases in
    which it may have written any table; None: anywhere. `known`: it is certainly DML."""

    named: tuple[TableId, ...]
    all_of: frozenset[str] | None
    known: bool = True

    def tables(self, live: Iterable[TableId]) -> list[TableId]:
        """The captured tables that may have been written."""
        return [table for table in live if table in self.named or self._reaches(table.database)]

    def _reaches(self, database: str) -> bool:
        return self.all_of is None or database.lower() in self.all_of


def written(
    parsed: syntax.Statement, statement: Statement, live: Iterable[TableId], *, mariadb: bool
) -> Written | None:
    """The tables that a statement may have written without row events. None: none, apart from the table that
    it defines.

    A statement without `updates` that is not `unsaid` counts as one of which nothing is known.
    """
    databases = None if statement.updates is None else frozenset(name.lower() for name in statement.updates)
    match parsed:
        case syntax.RowStatement(tables=tables):
            if _is_implicit(statement, mariadb=mariadb):
                return Written(tables, frozenset())
            if databases is not None:  # a name of another database is an alias, or that of a query (WITH)
                tables = tuple(table for table in tables if table.database.lower() in databases)
            return Written(tables, databases)
        case syntax.Unknown(tables=tables) if tables is not None:
            return Written(tables, frozenset(), known=False)
        case syntax.Unknown(head=head):
            return Written((), databases, head.partition(" ")[0] in _RUNS)
        case syntax.SetVariables(calls=True):
            return Written((), databases)
        case syntax.CreateTable(as_select=True, query=query, calls=calls) if mariadb:
            if query is not None and not calls and query.table in set(live):
                return None
            return Written((), databases)
        case _:
            return None


def needs_event(parsed: syntax.Statement, statement: Statement, *, mariadb: bool) -> bool:
    """Whether the event may say more about the written tables than the index does."""
    if statement.truncated:
        return True
    matters = isinstance(parsed, syntax.RowStatement | syntax.Unknown)
    matters = matters or (isinstance(parsed, syntax.SetVariables) and parsed.calls)
    return matters and not mariadb and statement.updates is None and not statement.unsaid


def _is_implicit(statement: Statement, *, mariadb: bool) -> bool:
    if _IMPLICIT.fullmatch(statement.sql) is None:
        return False
    return statement.alone if mariadb else statement.unsaid


def reason(table: TableId, wrote: Written, statement: Statement, kind: str) -> str:
    """Why rows of the table may differ from what the log says."""
    head = statement_head(statement.sql) or "(no text)"
    form = "in statement format, which carries no rows"
    if table in wrote.named:
        return f"Rows of table {table} were changed by {kind} {form}: `{head}`."
    why = f"the log says that it wrote to database {table.database}"
    if wrote.all_of is None:
        why = "the log does not say which databases it wrote to"
    return (
        f"Rows of table {table} may have been changed by a statement {form}: `{head}`. "
        f"It may write through views, triggers, functions and foreign keys, and {why}."
    )


def reason_not_understood(table: TableId, wrote: Written, statement: Statement) -> str:
    """The reason for a statement that cannot be understood."""
    head = statement_head(statement.sql) or "(no text)"
    where = (
        ""
        if wrote.all_of is None or table in wrote.named
        else f", and the log says that it wrote to database {table.database}"
    )
    return f"a statement that is not understood may have changed its rows (`{head}`){where}"
