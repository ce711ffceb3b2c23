"""The copies of dimensions: small tables that are not captured, for the queries of views.

A dimension is read whole from time to time. Its rows are stored in a file of the state directory, named by
its digest, and views use this copy until the next one is there. So all refreshes of a view see the same rows,
also after a kill, and what has changed is known: the rows of one copy that the other one lacks.

The state stores which copies are the present ones, and counts how often that has changed. The count is the
step of a view's commits. So a view is written again for a new copy, although the epoch is the same. Steps are
limited, so after `COUNT_MAX` changes the count begins anew in another round, for which views are made anew.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.config.dimensions import DimensionRule, JdbcQuery
from penstock.disk import directory
from penstock.disk.replace import replace_file
from penstock.errors import ConfigError, PenstockError
from penstock.failures.messages import one_sentence
from penstock.sinks.sql.options import JdbcOptions
from penstock.sinks.sql.registration import dialect_of
from penstock.state import StateStore

log = logging.getLogger(__name__)

FOLDER = "dimensions"
COUNT_MAX = 60_000
"""Delta's transaction identifiers have 16 bits for the step of a commit."""
_STATE = "dimensions"
"""Key of the state: `{count, round, present: {name: digest}}`."""


class Dimensions:
    def __init__(
        self, spark: SparkSession, state: StateStore, rules: Mapping[str, DimensionRule], folder: Path
    ) -> None:
        """`folder`: for the copies."""
        self._spark = spark
        self._state = state
        self.rules = rules
        self._folder = folder
        self._read_at: dict[str, float] = {}
        self.errors: dict[str, str] = {}
        """For a dimension that could not be read the last time, the reason."""
        known = json.loads(state.meta(_STATE) or "{}")
        self.count: int = known.get("count", 0)
        self.round: int = known.get("round", 0)
        present: dict[str, str] = known.get("present", {})
        self._present = {name: digest for name, digest in present.items() if self._path(digest).exists()}

    @property
    def is_due(self) -> bool:
        """Whether a dimension has to be read again."""
        return any(map(self._is_due, self.rules))

    def _is_due(self, name: str) -> bool:
        at = self._read_at.get(name)
        return at is None or time.monotonic() >= at + self.rules[name].refresh / 1000

    def refresh(self) -> None:
        """Reads the dimensions that are due. One that cannot be read keeps its copy."""
        found = dict(self._present)
        for name, rule in self.rules.items():
            if not self._is_due(name):
                continue
            try:
                found[name] = self._stored(self._read(name, rule))
                self.errors.pop(name, None)
            except Exception as error:
                reason = error.message if isinstance(error, PenstockError) else one_sentence(error)
                self.errors[name] = f"The dimension {name} cannot be read: {reason}"
                log.warning("the dimension %s cannot be read: %s", name, reason)
            self._read_at[name] = time.monotonic()
        if found != self._present:
            self.count, self._present = self.count + 1, found
            if self.count > COUNT_MAX:
                self.count, self.round = 0, self.round + 1
            known = {"count": self.count, "round": self.round, "present": found}
            self._state.set_meta(_STATE, json.dumps(known))

    def version(self, name: str) -> str:
        """The present copy. Raises `ConfigError` if there is none."""
        if name not in self._present:
            raise ConfigError(self.errors.get(name) or f"The dimension {name} was not read yet.")
        return self._present[name]

    def frame(self, digest: str) -> DataFrame:
        """The rows of a copy, which Spark sends to all tasks."""
        with pa.ipc.open_file(self._path(digest)) as file:
            rows = file.read_all()
        return f.broadcast(self._spark.createDataFrame(rows))

    def keep(self, digests: Iterable[str]) -> None:
        """Removes copies, except those that are named or present."""
        kept = {self._path(one).name for one in (*digests, *self._present.values())}
        for path in self._folder.glob("*.arrow"):
            if path.name not in kept:
                path.unlink(missing_ok=True)

    def _path(self, digest: str) -> Path:
        return self._folder / f"{digest}.arrow"

    def _stored(self, rows: pa.Table) -> str:
        data = _serialised(rows)
        digest = sha256(data).hexdigest()[:32]
        if not self._path(digest).exists():
            directory.make(self._folder, "state")
            replace_file(self._path(digest), data, durable=True)
        return digest

    # reading ------------------------------------------------------------------------------------------------

    def _read(self, name: str, rule: DimensionRule) -> pa.Table:
        if rule.jdbc is not None:
            rows = _query(rule.jdbc, rule.rows_max + 1)
        else:
            rows = self._of_spark(rule).limit(rule.rows_max + 1).toArrow()
        if rows.num_rows > rule.rows_max:
            raise ConfigError(
                f"It has more than {rule.rows_max} rows.",
                hint="A dimension is copied to all tasks: choose fewer rows, or raise `rows_max`.",
            )
        names = {one.lower(): one for one in rows.column_names}
        if missing := [one for one in rule.key if one.lower() not in names]:
            raise ConfigError(f"It has no column `{missing[0]}`, which `key` names.")
        _check_key(rows, [names[one.lower()] for one in rule.key])
        return rows

    def _of_spark(self, rule: DimensionRule) -> DataFrame:
        if rule.table is not None:
            self._spark.catalog.refreshTable(rule.table)
            return self._spark.table(rule.table)
        assert rule.file is not None, "the configuration has one of them"
        kind = rule.format or Path(rule.file).suffix.lstrip(".")
        reader = self._spark.read.format(kind) if kind else self._spark.read  # Spark's own default
        if kind == "csv":
            reader = reader.options(header="true", inferSchema=str(not rule.columns).lower())
        reader = reader.options(**rule.options)
        return (reader.schema(rule.columns) if rule.columns else reader).load(rule.file)


def _check_key(rows: pa.Table, key: list[str]) -> None:
    if not key:
        return
    if any(rows.column(name).null_count for name in key):
        raise ConfigError("Its `key` has NULL in some rows.")
    if rows.group_by(key).aggregate([]).num_rows < rows.num_rows:
        raise ConfigError("Its `key` does not identify its rows: some have the same.")


def _serialised(rows: pa.Table) -> bytes:
    """The rows as bytes: the same bytes whatever order the rows came in, if their types have an order."""
    rows = rows.replace_schema_metadata(None)
    # Other bytes for the same rows only mean that nothing is found to have changed.
    with suppress(pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowInvalid):
        rows = rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in rows.column_names]))
    out = pa.BufferOutputStream()
    with pa.ipc.new_file(out, rows.schema) as file:
        file.write_table(rows.combine_chunks())
    return bytes(out.getvalue())


def _query(rule: JdbcQuery, rows_max: int) -> pa.Table:
    options = JdbcOptions(type="jdbc", url=rule.url, user=rule.user, password=rule.password)
    if options.address.product == "sqlite":
        with closing(sqlite3.connect(f"file:{options.address.database}?mode=ro", uri=True)) as session:
            return _fetched(session, rule.query, rows_max)
    dialect = dialect_of(options)
    try:
        with closing(dialect.connect()) as session:
            return _fetched(session, rule.query, rows_max)
    except dialect.errors as error:
        raise dialect.explained(error, "The query failed", None) from error


def _fetched(session: Any, query: str, rows_max: int) -> pa.Table:
    with closing(session.cursor()) as cursor:
        cursor.execute(query)
        names = [one[0] for one in cursor.description or ()]
        rows = cursor.fetchmany(rows_max)
    if not names:
        raise ConfigError("Its query returns no rows.", hint="Write a SELECT.")
    return pa.table({name: _column([row[at] for row in rows]) for at, name in enumerate(names)})


def _column(values: list[Any]) -> pa.Array:
    if any(isinstance(one, Decimal) for one in values):
        values = [None if one is None else Decimal(one) for one in values]
    found = pa.array(values)
    return found.cast(pa.string()) if pa.types.is_null(found.type) else found
