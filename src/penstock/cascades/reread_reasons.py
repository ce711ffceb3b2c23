"""Reasons to read a table again, because only the server knows what its foreign keys did."""

from __future__ import annotations

from penstock.errors import TableError
from penstock.model.column_type import DATES
from penstock.model.schema import CascadingKey, Column, TableId, TableSchema, TypeOptions
from penstock.printable import argument

PLAIN = "^[ -~]*$"
"""Texts that all collations without language-specific rules compare as we do."""


def reread_error(table: TableId, why: str) -> TableError:
    return TableError(
        f"Table {table} is read again: {why}.",
        hint=f"Nothing to do if this is rare. Otherwise let the application change rows of {table}, remove "
        f"the rule from the foreign key, and run `penstock resnapshot FILE {argument(table)}`.",
        table=str(table),
        read_again=True,
    )


def moved_while_read(table: TableId, key: CascadingKey) -> TableError:
    """A row whose key changes while the table is read may be in no chunk, or in two."""
    return reread_error(table, f"the foreign key {key.name} changed keys of its rows during the snapshot")


def unknown_order(table: TableId, key: CascadingKey, column: Column) -> TableError:
    return reread_error(table, f"the foreign key {key.name} compares texts by {column.collation}")


def zero_date(table: TableId, key: CascadingKey) -> TableError:
    return reread_error(table, f"a row that the foreign key {key.name} refers to may have had a zero date")


def beyond_ascii(table: TableId, key: CascadingKey, column: Column) -> TableError:
    return reread_error(
        table,
        f"the foreign key {key.name} changed rows with texts that are not plain ASCII, and "
        f"{column.collation} may consider other texts equal to them",
    )


def too_many(table: TableId, rows_max: int) -> TableError:
    return reread_error(
        table,
        f"a cascade touched more rows than the driver may hold (`epoch.cascade_rows_max`: {rows_max})",
    )


def generated(table: TableId) -> TableError:
    return reread_error(table, "a foreign key changed rows that have generated columns")


def hides_zero_dates(column: Column, types: TypeOptions) -> bool:
    return column.type in DATES and types.zero_dates == "null"


def shares_columns(schema: TableSchema, key: CascadingKey) -> bool:
    """Whether another key changes columns of this one."""
    others = [one for one in schema.foreign_keys if one.name != key.name]
    return any(not set(one.columns).isdisjoint(key.columns) for one in others)


def has_virtual_columns(schema: TableSchema) -> bool:
    return any(column.generated == "virtual" for column in schema.columns)
