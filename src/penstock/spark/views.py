"""Keeps views equal to their queries: after each epoch, before the next one is applied.

A view is true for one version of each table that it reads. These versions are in the state, and are stored
after the view has been written. So if the process is killed, the difference to the present versions is worked
out again, and writing it again changes nothing: rows of the keys concerned are replaced by what the query
says now.

`spark/view_plans.py` says for which queries only some keys are computed, and why that is right. The result of
every other query is computed whole and replaces the view in one commit. So is that of a query whose tables
have got other columns, or were created again, or whose earlier versions cannot be read any more.

If the user's `key` does not identify the rows of the result, a MERGE could not replace them one by one. So
each result is checked, and the view is computed whole as long as two of its rows have one key.

No epoch is applied meanwhile, so all tables show the same place of the log. While a table is read for the
first time, read again, parked or catching up, its views stay as they are.
"""

from __future__ import annotations

import importlib
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from py4j.java_gateway import is_instance_of
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.udtf import UserDefinedTableFunction

from penstock.config.dimensions import DATABASE, dimension_table
from penstock.errors import ConfigError, PenstockError
from penstock.failures.messages import first_line, one_sentence
from penstock.model.change import SEQUENCE
from penstock.model.offset import Offset
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.table import Parked, Streaming, TableState
from penstock.model.views import VIEW_ERROR, ViewRule, view_table
from penstock.sinks.base import Commit, Lasting, Missing
from penstock.sinks.lake.sink import LakeSink
from penstock.sinks.spark_sessions import shared_view
from penstock.sinks.spark_sql import quoted
from penstock.spark.dimensions import Dimensions
from penstock.spark.view_plans import ByKeys, rows_before_having, way_of
from penstock.state import StateStore

log = logging.getLogger(__name__)

VIEW = "view."
"""Prefix of keys of the state."""
_PRESENT = "_penstock_present"
_COMMANDS = [f"org.apache.spark.sql.catalyst.plans.logical.{name}" for name in ("Command", "ParsedStatement")]
_SAME_KEY = "two rows have one key"
_WORD = r"`(?:[^`]|``)+`|\w+"
_NAME = re.compile(
    r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|--[^\n]*|/\*.*?\*/"  # in which nothing is a name
    rf"|(?P<database>{_WORD})\s*\.\s*(?P<table>{_WORD})",
    re.DOTALL,
)

Versions = dict[str, str | None]


@dataclass(frozen=True)
class _View:
    """A view, and what it reads. `sql` has the bare names of `tables`. `keys`: of each by its bare name."""

    name: str
    rule: ViewRule
    table: TableId
    sql: str
    tables: tuple[TableId, ...]
    keys: Mapping[str, tuple[str, ...]]
    dimensions: Mapping[TableId, str]
    """The names of those `tables` that are not captured."""


class Views:
    """The views of a pipeline. `sink` has the tables that they read; `lake` writes them."""

    def __init__(
        self,
        spark: SparkSession,
        sink: Lasting,
        lake: LakeSink,
        state: StateStore,
        rules: Mapping[str, ViewRule],
        dimensions: Dimensions,
    ) -> None:
        self._spark = spark
        self._sink = sink
        self._lake = lake
        self._state = state
        self._rules = rules
        self._dimensions = dimensions
        self._registered: set[tuple[str, str]] = set()
        self._waiting: dict[str, tuple[TableId, ...]] = {}
        """For views that were not refreshed because a target was not whole, their tables."""

    @property
    def is_due(self) -> bool:
        """Whether the views need a refresh although no epoch was applied."""
        return self._dimensions.is_due or self.is_behind

    @property
    def is_behind(self) -> bool:
        """Whether a view waited for tables whose targets are whole now. A table that catches up becomes so
        without an epoch."""
        known = self._state.tables() if self._waiting else {}
        return any(
            all(table in known and _is_whole(known[table]) for table in tables)
            for tables in self._waiting.values()
        )

    def refresh(self) -> None:
        """Brings all views up to date with the targets. A view that fails stays as it is. The state says
        why, and it is tried again after the next epoch."""
        self._dimensions.refresh()
        self._waiting = {}
        for name, rule in self._rules.items():
            try:
                self._note(name, self._refresh(name, rule))
            except Exception as error:
                reason = error.message if isinstance(error, PenstockError) else one_sentence(error)
                self._note(name, reason)
                log.warning("the view %s is not up to date: %s", name, reason)
        self._dimensions.keep(self._copies())

    def _copies(self) -> Iterator[str]:
        """The copies of dimensions for which views are true."""
        for name in self._rules:
            versions = json.loads(self._state.meta(VIEW + name) or "{}").get("versions", {})
            for table, version in versions.items():
                if TableId.parse(table).database == DATABASE:
                    yield version

    def close(self) -> None:
        """Ends background work at the tables of views."""
        self._lake.close()

    def _note(self, name: str, reason: str) -> None:
        key = VIEW_ERROR.format(name=name)
        if (self._state.meta(key) or "") != reason:
            self._state.set_meta(key, reason)

    def _refresh(self, name: str, rule: ViewRule) -> str:
        """Brings the view up to date. Returns why it cannot be, for example because a table is parked or a
        dimension cannot be read. Empty: it is up to date."""
        known = self._state.tables()
        rules = {dimension_table(one): (one, rule) for one, rule in self._dimensions.rules.items()}
        sql, read = tables_in(rule.sql, [*known, *rules])
        tables = [table for table in read if table not in rules]
        states = [known[table] for table in tables]
        if not tables or not all(map(_is_whole, states)):
            if not tables and known:
                raise ConfigError(
                    "Its query names no captured table.",
                    hint="Write tables as database.table, as the source has them. "
                    "A target of `merge_shards` cannot be in a view.",
                )
            self._waiting[name] = tuple(tables)
            return _waits_for(states)
        keys = {
            table.table: rules[table][1].key if table in rules else known[table].schema.key for table in read
        }
        if len(keys) < len(read):
            raise ConfigError("Its query reads two tables with one name, of different databases.")
        dimensions = {table: rules[table][0] for table in read if table in rules}
        view = _View(name, rule, view_table(name), sql, tuple(read), keys, dimensions)
        versions: Versions = {str(table): self._sink.version(table) for table in tables}
        versions |= {str(table): self._dimensions.version(one) for table, one in dimensions.items()}
        wrong = " ".join(filter(None, map(self._dimensions.errors.get, dimensions.values())))
        targets = {str(table): self._sink.target_id(table) for table in tables}
        before = json.loads(self._state.meta(VIEW + name) or "{}")
        made_by = f"{rule.digest}/{self._dimensions.round}" if dimensions else rule.digest
        now = {"rule": made_by, "versions": versions, "targets": targets}
        if {key: before.get(key) for key in now} == now:
            return wrong
        epoch = max(state.last_epoch for state in states)
        commit = Commit(self._state.uuid, epoch, self._dimensions.count if dimensions else 0)
        at = self._state.applied_offset() or Offset(0)
        unique = self._write(view, before, now, commit, at)
        self._state.set_meta(VIEW + name, json.dumps({**now, "unique": unique}))
        return wrong

    def _write(
        self, view: _View, before: dict[str, Any], now: dict[str, Any], commit: Commit, at: Offset
    ) -> bool:
        """Returns whether each row of the result has a key of its own."""
        versions: Versions = now["versions"]
        result = self._query(view, self._frames(view, versions))
        way = way_of(result, view.keys, view.rule.key)
        fits = before.get("rule") == now["rule"] and self._fits(view, result)
        if not fits:
            self._make(view, result)
        elif (
            isinstance(way, ByKeys)
            and before.get("targets") == now["targets"]
            and (way.unique or before.get("unique"))
        ):
            try:
                concerned = self._concerned(view, way, before["versions"], versions)
                if concerned is not None:
                    self._merge(view, result, way, concerned, commit, at)
                    return True
            except Exception as error:
                log.info("the view %s is computed whole: %s", view.name, one_sentence(error))
        self._replace(view, result, commit, at)
        return not isinstance(way, ByKeys) or way.unique or self._is_unique(view, way)

    # what the query says ------------------------------------------------------------------------------------

    def _frames(self, view: _View, versions: Versions) -> dict[TableId, DataFrame]:
        return {
            table: self._dimensions.frame(str(versions[str(table)]))
            if table in view.dimensions
            else self._sink.read(table, versions[str(table)])
            for table in view.tables
        }

    def _query(self, view: _View, frames: Mapping[TableId, DataFrame]) -> DataFrame:
        """The result of the query over these rows of the tables. Spark's plan refers to the rows themselves,
        so the names of the tables may be used again."""
        self._register(view.rule.functions)
        try:
            _refuse_commands(self._spark, view.sql)
            for table, frame in frames.items():
                frame.drop(SEQUENCE).createOrReplaceTempView(quoted(table.table))
            return self._spark.sql(view.sql)
        except AnalysisException as error:  # ParseException, too
            raise ConfigError(f"Spark refuses its query: {first_line(error)}") from None
        finally:
            for table in frames:
                self._spark.catalog.dropTempView(table.table)

    def _register(self, functions: Mapping[str, str]) -> None:
        """Makes Python functions known to Spark."""
        for name, path in functions.items():
            if (name, path) in self._registered:
                continue
            module, _, attribute = path.partition(":")
            try:
                found = getattr(importlib.import_module(module), attribute)
            except (ImportError, AttributeError) as error:
                raise ConfigError(f"Its function {name} is not to be found: {one_sentence(error)}") from None
            registry = self._spark.udtf if isinstance(found, UserDefinedTableFunction) else self._spark.udf
            registry.register(name, found)
            self._registered.add((name, path))

    def _concerned(self, view: _View, way: ByKeys, before: Versions, now: Versions) -> DataFrame | None:
        """The keys of the result that may have changed. None: that cannot be said."""
        old, new = self._frames(view, before), self._frames(view, now)
        if any(old[table].schema != new[table].schema for table in view.tables):
            return None
        parts = []
        for table in view.tables:
            if before[str(table)] == now[str(table)]:
                continue
            if (name := view.dimensions.get(table)) and self._dimensions.rules[name].recompute == "whole":
                return None
            for rows, others in ((old, new), (new, old)):
                if table in view.dimensions:
                    changed = rows[table].exceptAll(others[table])
                else:
                    changed = _only_in(rows[table], others[table], view.keys[table.table])
                made = rows_before_having(self._query(view, {**rows, table: changed}))
                parts.append(made.select(*[
                    f.col(quoted(name)).alias(f"_k{number}") for number, name in enumerate(way.made_as)
                ]))  # fmt: skip
        if not parts:
            return None
        return reduce(DataFrame.union, parts).distinct()

    # the view's table ---------------------------------------------------------------------------------------

    def _fits(self, view: _View, result: DataFrame) -> bool:
        """Whether the view exists, with the columns of the result."""
        if isinstance(self._lake.open(view.table), Missing):
            return False
        present = [(one.name, one.dataType) for one in self._lake.columns(view.table)]
        wanted = [(one.name, self._lake.stored(one.dataType)) for one in result.schema]
        return [one for one in present if one[0] != SEQUENCE] == wanted

    def _make(self, view: _View, result: DataFrame) -> None:
        """Creates the view's table, empty. An earlier one is removed."""
        self._lake.clear(view.table)
        columns = tuple(Column(name, "text") for name in result.columns)
        try:
            self._lake.create(TableSchema(view.table, columns), to_arrow_schema(result.schema))
        except PenstockError:
            raise
        except Exception as error:
            shown = ", ".join(f"{quoted(one.name)} {one.dataType.simpleString()}" for one in result.schema)
            raise ConfigError(
                f"Its table cannot be created with the columns {shown}: {one_sentence(error)}"
            ) from error

    def _replace(self, view: _View, result: DataFrame, commit: Commit, at: Offset) -> None:
        def run(session: SparkSession, target: str) -> None:
            names = ", ".join(map(quoted, [*result.columns, SEQUENCE]))
            with shared_view(result.withColumn(SEQUENCE, f.lit(int(at)).cast("long"))) as rows:
                session.sql(f"INSERT OVERWRITE {target} SELECT {names} FROM {rows}")

        self._lake.write_by_sql(view.table, commit, run)

    def _merge(
        self, view: _View, result: DataFrame, way: ByKeys, concerned: DataFrame, commit: Commit, at: Offset
    ) -> None:
        """Replaces the rows of the keys concerned."""
        numbered = [f"_k{number}" for number in range(len(way.key))]
        same = [
            f.col(other).eqNullSafe(f.col(f"r.{quoted(name)}"))
            for other, name in zip(numbered, way.key, strict=True)
        ]
        found = result.withColumn(_PRESENT, f.lit(True)).alias("r")
        values = [name for name in result.columns if name not in way.key]
        rows = concerned.join(found, reduce(lambda one, other: one & other, same), "left")
        if not way.unique:
            rows = _refusing_equal(rows, numbered)
        rows = rows.select(
            *[f.col(other).alias(name) for other, name in zip(numbered, way.key, strict=True)],
            *[f.col(f"r.{quoted(name)}").alias(name) for name in values],
            f.lit(int(at)).cast("long").alias(SEQUENCE),
            f.col(f"r.{_PRESENT}").isNotNull().alias(_PRESENT),
        )

        def run(session: SparkSession, target: str) -> None:
            with shared_view(rows) as made:
                session.sql(_merge_sql(target, made, way.key, [*way.key, *values, SEQUENCE]))

        self._lake.write_by_sql(view.table, commit, run)

    def _is_unique(self, view: _View, way: ByKeys) -> bool:
        """Whether each row of the view has a key of its own."""
        keys = self._lake.read(view.table).select(*[f.col(quoted(name)) for name in way.key])
        if keys.groupBy(*keys.columns).count().where("count > 1").isEmpty():
            return True
        log.info("the view %s is computed whole: %s", view.name, _SAME_KEY)
        return False


def _refuse_commands(spark: SparkSession, sql: str) -> None:
    """Raises `ConfigError` for a statement that is no query. Spark runs such statements at once."""
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(sql)
    if any(is_instance_of(spark.sparkContext._gateway, plan, kind) for kind in _COMMANDS):
        raise ConfigError("It is no query. Write a SELECT.")


def _refusing_equal(rows: DataFrame, key: list[str]) -> DataFrame:
    """The rows. Reading them fails if two have one key."""
    count = f.count("*").over(Window.partitionBy(*key))
    return rows.withColumn("_penstock_count", count).where(
        f.when(f.col("_penstock_count") > 1, f.raise_error(f.lit(_SAME_KEY)).cast("boolean")).otherwise(True)
    )


def _waits_for(states: Iterable[TableState]) -> str:
    """Why a view stays as it is. Empty: its tables are being read, or there are none."""
    for state in states:
        if state.gone or isinstance(state.phase, Parked):
            why = "it was dropped, or is not captured any more" if state.gone else "it is parked"
            return f"The view stays as it is because of {state.table}: {why}."
    return ""


def _merge_sql(target: str, made: str, key: Iterable[str], columns: Iterable[str]) -> str:
    match = " AND ".join(f"t.{quoted(name)} <=> s.{quoted(name)}" for name in key)
    names = [quoted(name) for name in columns]
    sets = ", ".join(f"t.{name} = s.{name}" for name in names)
    return (
        f"MERGE INTO {target} AS t USING {made} AS s ON {match} "
        f"WHEN MATCHED AND NOT s.{_PRESENT} THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {sets} "
        f"WHEN NOT MATCHED AND s.{_PRESENT} THEN INSERT ({', '.join(names)}) "
        f"VALUES ({', '.join(f's.{name}' for name in names)})"
    )


def _only_in(rows: DataFrame, others: DataFrame, key: Iterable[str]) -> DataFrame:
    """The rows that are missing in `others`, or have another version there. Equal `_sequence` means equal
    rows."""
    names = [*key, SEQUENCE]
    there = others.select(*[f.col(quoted(name)).alias(f"_o{at}") for at, name in enumerate(names)])
    same = [f.col(quoted(name)).eqNullSafe(f.col(f"_o{at}")) for at, name in enumerate(names)]
    return rows.join(there, reduce(lambda one, other: one & other, same), "left_anti")


def _is_whole(state: TableState) -> bool:
    """Whether the target has the rows of its table at the place that the pipeline has applied."""
    return isinstance(state.phase, Streaming) and state.complete and state.last_epoch > 0


def tables_in(sql: str, known: Iterable[TableId]) -> tuple[str, list[TableId]]:
    """The query with the bare names of the known tables that it reads, and these tables in order. Names are
    compared as Spark compares them, without letter case."""
    by_name = {(one.database.lower(), one.table.lower()): one for one in known}
    found: dict[TableId, None] = {}

    def bare(match: re.Match[str]) -> str:
        if match["table"] is None:
            return match[0]
        table = by_name.get((_plain(match["database"]), _plain(match["table"])))
        if table is None:
            return match[0]
        found[table] = None
        return quoted(table.table)

    return _NAME.sub(bare, sql), list(found)


def _plain(word: str) -> str:
    return (word[1:-1].replace("``", "`") if word.startswith("`") else word).lower()
