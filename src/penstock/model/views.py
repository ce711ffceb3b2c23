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

    functions: dict[str, str] = Field({})
    """Python functions and table functions of the query, by the names that it gives them: `module:object`,
    made with `udf` or `udtf` of PySpark."""

    @field_validator("functions")
    @classmethod
    def _importable(cls, value: dict[str, str]) -> dict[str, str]:
        for name, path in value.items():
            module, colon, attribute = path.partition(":")
            if not (name.isidentifier() and colon and module and attribute.isidentifier()):
                raise ValueError(f"{name}: {path!r} is no function; write name: module:object")
        return value

    @field_validator("sql")
    @classmethod
    def _one_statement(cls, value: str) -> str:
        return value.strip().rstrip(";")

    @property
    def digest(self) -> str:
        """Identifies the query."""
        text = self.model_dump_json(exclude=None if self.functions else {"functions"})
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def view_table(name: str) -> TableId:
    """The table of a view with this name."""
    return TableId.parse(name) if "." in name else TableId(DATABASE, name)
