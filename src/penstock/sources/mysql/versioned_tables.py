"""System-versioned tables of MariaDB (`WITH SYSTEM VERSIONING`).

Such a table keeps the versions that its rows had. A SELECT shows only the present ones, but the log has all
of them alike (tried on 10.11 and 11.8): an UPDATE is an update and an insert of the version before, and a
DELETE is an update. What tells them apart is the column ROW END. If nobody has declared it, it is in the log,
and neither in the catalog nor in the key. So such a table is parked. If its definition is not known (it was
renamed, or made like another one), its rows in the log have two columns that nothing explains, and decoding
refuses them (`core/src/plan.rs`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from penstock.model import plan
from penstock.model.offset import Offset
from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sources.mysql.connection import query
from penstock.sources.mysql.ddl.definition import TableDefinition
from penstock.sources.mysql.identifiers import quoted


def versioned_reason(table: TableId) -> tuple[str, str]:
    """Reason and hint for a captured table that is parked because it is system-versioned."""
    reason = (
        f"Table {table} is system-versioned: the log has earlier versions of its rows as if they were rows "
        "of the table."
    )
    hint = (
        f"Run `ALTER TABLE {quoted(table)} DROP SYSTEM VERSIONING`, which removes its history, and then "
        f"`penstock resnapshot FILE {argument(table)}`; or leave {table} out of the pipeline."
    )
    return reason, hint


def parks(table: TableId, definition: TableDefinition | None, offset: Offset) -> tuple[plan.Step, ...]:
    """The steps for a statement that gives the table this definition. A system-versioned table is parked."""
    if definition is None or not definition.versioned:
        return ()
    return (plan.Park(offset, *versioned_reason(table)),)


def read_versioned_tables(connection: Any, tables: Collection[TableId]) -> list[TableId]:
    """The tables among these that are system-versioned. Only MariaDB has such tables."""
    rows = query(
        connection,
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES "
        "WHERE TABLE_TYPE = 'SYSTEM VERSIONED'",
    )
    return sorted({TableId(str(database), str(name)) for database, name in rows} & set(tables))
