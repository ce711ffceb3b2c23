"""Views: tables at the target that are kept equal to a query over other targets."""

from __future__ import annotations

import hashlib

from pydantic import Field, field_validator

from penstock.model.schema import TableId
from penstock.model.section import Section
from penstock.model.transforms import Names

DATABASE = "views"
"""The database of a view whose name gives none."""


VIEW_ERROR = "view.{name}.error"
"""Key of the state with the reason why a view is not up to date. Empty: it is."""


class ViewRule(Section):
    """One entry of `views`: a table at the target that is kept equal to a query."""

    sql: str = Field(min_length=1)
    """A SELECT in Spark SQL over captured tables, which it names `database.table` as at the source."""
    key: Names = ()
    """Columns of the result that identify its rows. Usually the query tells them: what it groups by, or
    the keys of all tables that it joins."""

    @field_validator("sql")
    @classmethod
    def _one_statement(cls, value: str) -> str:
        return value.strip().rstrip(";")

    @property
    def digest(self) -> str:
        """Identifies the query."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:32]


def view_table(name: str) -> TableId:
    """The table of a view with this name."""
    return TableId.parse(name) if "." in name else TableId(DATABASE, name)
