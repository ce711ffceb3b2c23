"""A difference of one value, one row, is found and its key is named; an equal table is proven equal."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.functions import lit, raise_error
from tests.conftest import spark_jobs

from penstock import _core
from penstock.model.offset import Offset, SourcePosition
from penstock.model.schema import Column, TableId, TableSchema
from penstock.sources.mysql.catalog import read_table
from penstock.sources.mysql.verify import sql
from penstock.sources.mysql.verify.read_view import MySqlReadView, read_view
from penstock.sources.windows import Window
from penstock.spark.verify import SparkTarget
from penstock.testing.servers import Database
from penstock.verify.check import Verification
from penstock.verify.report import TableReport
from penstock.verify.subject import ComparedVersion, NotCompared, Subject, Why

ROWS = 20_000


@dataclass
class Stopped:
    """A target that stands still, and a log in which `touched` says what happened."""

    touched: list[Collection[str] | None] = field(default_factory=list)
    schemas: dict[TableId, list[TableSchema | NotCompared]] = field(default_factory=dict)
    """What the pipeline knows of its tables, each time that it is asked; the last one stays."""
    held: int = 0

    def hold(self, tables: Collection[TableId]) -> Mapping[TableId, TableSchema | NotCompared]:
        self.held += 1
        return {table: self._next(table) for table in tables}

    def versions_at(
        self, tables: Collection[TableId], position: SourcePosition
    ) -> tuple[Offset, Mapping[TableId, Subject]]:
        now = {table: self._next(table) for table in tables}
        found: dict[TableId, Subject] = {
            table: one if isinstance(one, NotCompared) else ComparedVersion(None, one.version)
            for table, one in now.items()
        }
        return Offset(position.order[-1]), found

    def _next(self, table: TableId) -> TableSchema | NotCompared:
        known = self.schemas[table]
        return known.pop(0) if len(known) > 1 else known[0]

    def keys_touched(
        self, schema: TableSchema, window: Window, end: Offset, limit: int
    ) -> Collection[str] | None:
        return self.touched.pop(0) if self.touched else set()


@pytest.fixture(scope="module")
def spark(spark: Any) -> Any:
    """A session whose time zone is not UTC: what verify computes must not depend on it."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    return session


def create(mysql: Database, key: str) -> TableSchema:
    mysql.execute(
        "SET time_zone = '+00:00', cte_max_recursion_depth = 100000",
        f"""CREATE TABLE t (id BIGINT NOT NULL, code VARCHAR(20) NOT NULL, price DECIMAL(10,2),
            ratio DOUBLE, at DATETIME(6), seen TIMESTAMP(3) NULL, day DATE, big BIGINT UNSIGNED,
            raw VARBINARY(10), note TEXT, PRIMARY KEY ({key}))""",
        f"""INSERT INTO t WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})
            SELECT i * 7 - 1000, CONCAT('ä|', i), i / 3, i / 7, '2024-01-01' + INTERVAL i MICROSECOND,
            '2024-03-10 07:00:00.5' + INTERVAL i SECOND, '1582-10-01' + INTERVAL i DAY,
            18446744073709551615 - i, UNHEX(HEX(i)), REPEAT('x', i % 50) FROM n""",
        "UPDATE t SET price = NULL, note = NULL WHERE id % 5 = 0",
    )
    with mysql.connect() as connection:
        schema = read_table(connection, TableId(mysql.name, "t"))
    assert schema is not None
    return schema


def arrow_rows(mysql: Database, schema: TableSchema) -> pa.Table:
    """The table by PyMySQL: neither the snapshot's decoder nor the server's hash had a hand in it."""
    names = ", ".join(f"`{column.name}`" for column in schema.columns)
    with mysql.connect(use_unicode=True) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute(f"SELECT {names} FROM t")
        rows = cursor.fetchall()
    arrow = _core.arrow_schema(schema.to_json(), "rows")
    columns = []
    for number, kind in enumerate(arrow):
        values = [row[number] for row in rows]
        if pa.types.is_timestamp(kind.type) and kind.type.tz is not None:
            columns.append(pa.array(values, pa.timestamp("us")).cast(pa.int64()).cast(kind.type))
        elif pa.types.is_decimal(kind.type):
            columns.append(pa.array([None if v is None else Decimal(v) for v in values], kind.type))
        else:
            columns.append(pa.array(values).cast(kind.type))
    return pa.Table.from_arrays(columns, schema=arrow)


def as_frame(spark: Any, rows: pa.Table) -> Any:
    """By way of a file, which keeps zoned and unzoned times apart."""
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        pq.write_table(rows, file.name)
        frame = spark.read.parquet(file.name).cache()
        frame.count()
    return frame


def verification(mysql: Database, frame: Any, log: Stopped) -> Verification:
    @contextmanager
    def views() -> Iterator[MySqlReadView]:
        with mysql.connect() as connection, read_view(connection) as view:
            yield view

    return Verification(views, SparkTarget(lambda table, version: frame), log, log)


def report_on(mysql: Database, frame: Any, schema: TableSchema, log: Stopped) -> TableReport:
    log.schemas.setdefault(schema.table, [schema])
    [report] = verification(mysql, frame, log).verify([(schema.table, ROWS)])
    return report


def verify(
    mysql: Database, spark: Any, schema: TableSchema, change: list[str], log: Stopped | None = None
) -> TableReport:
    """The target has the table as it is now; then the source gets the changes."""
    frame = as_frame(spark, arrow_rows(mysql, schema))
    mysql.execute("SET time_zone = '+00:00'", *change)
    return report_on(mysql, frame, schema, log or Stopped())


@pytest.mark.parametrize("key", ["id", "code", "id, code"])
def test_an_equal_table_is_proven_equal(mysql: Database, spark: Any, key: str) -> None:
    schema = create(mysql, key)
    report = verify(mysql, spark, schema, [])
    assert report.error is None
    assert report.equal, report.lines()
    assert (report.rows_source, report.rows_target, report.unverified) == (ROWS, ROWS, 0)
    assert report.ranges > 1


@pytest.mark.parametrize("key", ["id", "code"])
@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ("UPDATE t SET ratio = ratio + 1e-9 WHERE id = 6000", "different"),
        ("UPDATE t SET seen = seen + INTERVAL 1 HOUR WHERE id = 6000", "different"),
        ("UPDATE t SET note = '' WHERE id = 6000", "different"),
        ("DELETE FROM t WHERE id = 6000", "extra"),
    ],
)
def test_one_changed_row_is_named(mysql: Database, spark: Any, key: str, change: str, kind: str) -> None:
    schema = create(mysql, key)
    [(code,)] = mysql.query("SELECT code FROM t WHERE id = 6000")
    report = verify(mysql, spark, schema, [change])
    name = {"id": "6000"} if key == "id" else {"code": code}
    assert [(found.key, found.kind) for found in report.keys_different] == [(name, kind)]
    assert not report.equal and report.error is None


def test_a_row_that_never_came_is_named_missing(mysql: Database, spark: Any) -> None:
    schema = create(mysql, "id")
    report = verify(mysql, spark, schema, ["INSERT INTO t (id, code) VALUES (999999999, 'new')"])
    assert [(found.key, found.kind) for found in report.keys_different] == [({"id": "999999999"}, "missing")]


def test_keys_touched_between_the_marks_are_looked_at_again(mysql: Database, spark: Any) -> None:
    schema = create(mysql, "id")
    change = ["UPDATE t SET note = 'other' WHERE id = 6000", "UPDATE t SET note = 'other' WHERE id = 6007"]
    log = Stopped(touched=[{"6000", "6007"}, {"6007"}, None])
    report = verify(mysql, spark, schema, change, log)
    assert sorted(found.key["id"] or "" for found in report.keys_different) == ["6000", "6007"]
    log = Stopped(touched=[{"6007"}] * 10)
    report = report_on(mysql, as_frame(spark, arrow_rows(mysql, schema)), schema, log)
    assert report.equal


def test_keys_that_never_settle_are_counted_and_not_called_equal(mysql: Database, spark: Any) -> None:
    schema = create(mysql, "id")
    log = Stopped(touched=[{"6000"}] * 10)
    report = verify(mysql, spark, schema, ["UPDATE t SET note = 'other' WHERE id = 6000"], log)
    assert (report.unverified, report.keys_different, report.equal) == (1, [], False)
    assert log.held > 1


def test_a_wholly_different_table_is_reported_in_bounded_output(mysql: Database, spark: Any) -> None:
    schema = create(mysql, "id")
    report = verify(mysql, spark, schema, ["UPDATE t SET big = big - 1"])
    assert len(report.keys_different) == 100
    assert report.keys_not_listed == ROWS - 100


def test_a_row_that_the_target_has_twice_is_named(mysql: Database, spark: Any) -> None:
    schema = create(mysql, "id")
    rows = arrow_rows(mysql, schema)
    frame = as_frame(spark, pa.concat_tables([rows, rows.slice(5, 1)]))
    report = report_on(mysql, frame, schema, Stopped())
    key = {"id": str(rows.column("id")[5].as_py())}
    assert [(found.key, found.kind) for found in report.keys_different] == [(key, "duplicate")]


def test_a_table_that_is_gone_is_an_error_of_that_table(mysql: Database, spark: Any) -> None:
    schema = create(mysql, "id")
    report = verify(mysql, spark, schema, ["DROP TABLE t"])
    assert report.error is not None and "does not exist" in report.error
    assert not report.equal


def test_a_table_that_is_parked_before_the_mark_is_not_compared(mysql: Database, spark: Any) -> None:
    schema = create(mysql, "id")
    parked = NotCompared(Why.PARKED, "It is parked.")
    log = Stopped(schemas={schema.table: [schema, parked]})
    report = verify(mysql, spark, schema, ["UPDATE t SET note = 'other' WHERE id = 6000"], log)
    assert (report.not_compared, report.equal, report.error) == (parked, False, None)


def test_a_table_whose_definition_changes_meanwhile_is_compared_by_the_new_one(
    mysql: Database, spark: Any
) -> None:
    schema = create(mysql, "id")
    old = replace(schema, columns=(*schema.columns, Column("gone", "int")), version=schema.version - 1)
    report = verify(mysql, spark, schema, [], Stopped(schemas={schema.table: [old, schema]}))
    assert report.equal, report.lines()
    endless = [replace(schema, version=number) for number in range(100)]
    report = verify(mysql, spark, schema, [], Stopped(schemas={schema.table: [*endless]}))
    assert report.not_compared is not None and report.not_compared.why == Why.READING


def test_small_tables_are_compared_together_and_each_has_its_own_report(mysql: Database, spark: Any) -> None:
    schema = create(mysql, "id")
    mysql.execute(
        "CREATE TABLE other LIKE t", "INSERT INTO other SELECT * FROM t", "CREATE TABLE gone (a INT)"
    )
    other, lost = (replace(schema, table=TableId(mysql.name, name)) for name in ("other", "lost"))
    frame = as_frame(spark, arrow_rows(mysql, schema))
    mysql.execute("UPDATE other SET note = 'different' WHERE id = 6000")
    log = Stopped(schemas={one.table: [one] for one in (schema, other, lost)})
    work = verification(mysql, frame, log)
    before = spark_jobs(spark)
    reports = {
        one.table.table: one for one in work.verify([(one.table, ROWS) for one in (schema, other, lost)])
    }
    assert spark_jobs(spark) - before <= 2, "the sums of all in one job, the keys of one in another"
    assert log.held == 1
    assert reports["t"].equal
    assert [(key.key, key.kind) for key in reports["other"].keys_different] == [({"id": "6000"}, "different")]
    assert "does not exist" in (reports["lost"].error or "")


def test_one_target_that_cannot_be_read_does_not_keep_the_others_from_being_compared(
    mysql: Database, spark: Any
) -> None:
    schema = create(mysql, "id")
    mysql.execute("CREATE TABLE other LIKE t", "INSERT INTO other SELECT * FROM t")
    other = replace(schema, table=TableId(mysql.name, "other"))
    frame = as_frame(spark, arrow_rows(mysql, schema))
    broken = frame.withColumn("note", raise_error(lit("a file is missing")))
    log = Stopped(schemas={one.table: [one] for one in (schema, other)})
    work = verification(mysql, frame, log)
    work._target = SparkTarget(lambda table, version: broken if table.table == "other" else frame)
    reports = {one.table.table: one for one in work.verify([(schema.table, ROWS), (other.table, ROWS)])}
    assert reports["t"].equal
    assert "cannot be read" in (reports["other"].error or "")


def test_a_server_whose_hash_function_answers_null_is_named(
    mysql: Database, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = create(mysql, "id")
    monkeypatch.setattr(sql, "row_hash", lambda *_, **__: "NULL")
    report = verify(mysql, spark, schema, [])
    assert "SHA2() returns NULL" in (report.error or "")
