"""Dimensions: tables that are not captured, which queries of views join with captured ones."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from penstock.model.schema import TableId
from penstock.model.section import Section
from penstock.model.transforms import Names
from penstock.model.units import Milliseconds
from penstock.secret import Secret

DATABASE = "dimensions"
"""The database in whose name queries name dimensions."""


class JdbcQuery(Section):
    """Rows of a SQL database. No JDBC driver is needed."""

    url: str
    """As `sink.url` of the sink `jdbc`: `postgresql://host:5432/database`, `mysql://host:3306`,
    `mariadb://host:3306` or `sqlite:///path/file.db`."""
    user: str = ""
    """Account at the database. It only reads."""
    password: Secret = Secret()
    """Its password; usually `${VARIABLE}`."""
    query: str = Field(min_length=1)
    """A SELECT in the language of the database."""


class DimensionRule(Section):
    """One entry of `dimensions`: a small table that is not captured, for queries of `views`. Give one of
    `table`, `file` and `jdbc`."""

    table: str | None = None
    """A table that Spark knows, as `catalog.database.table`. The pipeline's own catalog is `lake`."""
    file: str | None = None
    """Path or URL of a file or folder, which the driver and Spark's executors can read."""
    format: str = ""
    """What the file is: `csv`, `json`, `parquet`, `orc` … Empty: as its name ends."""
    options: dict[str, str] = Field({})
    """Options for Spark's reader of the file, for example `sep`. `header` is `true` if it is not given."""
    columns: str = ""
    """Names and types of the file's columns, as `code STRING, rate DECIMAL(9,4)`. Empty: Spark guesses."""
    jdbc: JdbcQuery | None = None
    """A query at a SQL database."""
    key: Names = ()
    """Columns that identify a row. Without it, a view that has the rows of joins is computed whole, unless
    its own `key` says what identifies them."""
    refresh: Milliseconds = Field(600_000, ge=1000)
    """How often it is read again."""
    recompute: Literal["keys", "whole"] = "keys"
    """What is computed again when its rows change: the keys of a view that the changed rows concern, where
    that can be said, or the whole view."""
    rows_max: int = Field(1_000_000, ge=1)
    """Rows that it may have. The driver keeps a copy, and sends it to all tasks."""

    @model_validator(mode="after")
    def _one_place(self) -> DimensionRule:
        if sum(one is not None for one in (self.table, self.file, self.jdbc)) != 1:
            raise ValueError("give one of table, file and jdbc")
        if self.file is None and (self.format or self.options or self.columns):
            raise ValueError("format, options and columns have a meaning only with file")
        return self


def dimension_table(name: str) -> TableId:
    return TableId(DATABASE, name)
