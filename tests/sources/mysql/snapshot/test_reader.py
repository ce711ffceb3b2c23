"""Reading a chunk: values against the server's own text and against the log, the session, errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Literal

import pyarrow as pa
import pytest
from tests.core import alltypes

from penstock import _core
from penstock.errors import ChunkOutdated, InternalError, TableError, TransientError
from penstock.model.chunk import Chunk
from penstock.model.schema import TableId, TableSchema, TypeOptions
from penstock.sources.mysql.catalog import read_table
from penstock.sources.mysql.snapshot.reader import MySqlChunkReader, execute, prepare_session, select_sql
from penstock.sources.mysql.snapshot.split import MySqlChunkPlanner
from penstock.sources.mysql.snapshot.window import MySqlWindows
from penstock.testing import servers
from penstock.testing.meanwhile import meanwhile
from penstock.testing.servers import Database


def schema_of(server: servers.MySqlClient, table: TableId) -> TableSchema:
    with server.connect() as connection:
        schema = read_table(connection, table)
    assert schema is not None
    return schema


def whole(schema: TableSchema) -> Chunk:
    return Chunk(schema.table, 0, None, None)


def rows_of(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.fixture(scope="module")
def every_type(
    mysql_server: servers.MySqlServer | servers.ExternalMySqlServer,
) -> Iterator[tuple[Database, TableSchema]]:
    database = Database(mysql_server)
    database.execute(
        "SET SESSION sql_mode = '', time_zone = '+00:00'", alltypes.create_table("t"), *alltypes.inserts("t")
    )
    yield database, schema_of(database, TableId(database.name, "t"))
    database.drop()


@pytest.mark.parametrize("zero_dates", ["null", "text"])
def test_every_value_of_every_type_is_what_the_server_prints(
    every_type: tuple[Database, TableSchema], zero_dates: Literal["null", "text"]
) -> None:
    database, schema = every_type
    reader = MySqlChunkReader(database.connect(), types=TypeOptions(zero_dates=zero_dates))
    ours = rows_of(list(reader.read(schema, whole(schema))))
    reader.close()
    with database.connect(charset="utf8mb4") as connection, connection.cursor() as cursor:
        for statement in alltypes.SELECT_SESSION:
            cursor.execute(statement)
        connection.decoders = {}  # the server's text as it is
        cursor.execute(alltypes.select("t"))
        theirs = cursor.fetchall()
    assert len(ours) == len(theirs) == alltypes.ROWS
    for mine, text in zip(ours, theirs, strict=True):
        for sample, printed in zip(alltypes.SAMPLES, text[1:], strict=True):
            value = mine[sample.name]
            if sample.name.startswith("c_zero_") and zero_dates == "null" and value is None:
                continue
            assert alltypes.same(value, printed), (sample.name, value, printed)


def test_a_session_reads_many_chunks_and_the_protocol_stays_in_step(mysql: Database) -> None:
    mysql.execute(
        "CREATE TABLE t (k INT PRIMARY KEY, v VARCHAR(100))",
        "INSERT INTO t SELECT a.n * 100 + b.n, REPEAT('x', b.n) FROM "
        + ", ".join(f"({' UNION ALL '.join(f'SELECT {n} n' for n in range(100))}) {name}" for name in "ab"),
    )
    schema = schema_of(mysql, TableId(mysql.name, "t"))
    connection = mysql.connect()
    reader = MySqlChunkReader(connection)
    chunks = list(MySqlChunkPlanner(connection, schema, chunk_rows=1000).chunks())
    keys = []
    for chunk in chunks:
        read = reader.read(schema, chunk)
        keys += [row["k"] for row in rows_of(list(read))]
    reader.close()
    assert len(chunks) > 5
    assert sorted(keys) == list(range(10_000))


def test_invisible_columns_of_other_sessions_settings_do_not_matter(mysql: Database) -> None:
    """Names that need quoting, an ANSI_QUOTES default, another time zone: the session has its own."""
    mysql.execute(
        'CREATE TABLE `t"``?` (`select` INT PRIMARY KEY, `a?``b` CHAR(3))',
        "INSERT INTO `t\"``?` VALUES (1, 'x')",
    )
    schema = schema_of(mysql, TableId(mysql.name, 't"`?'))
    connection = mysql.connect(
        init_command="SET sql_mode = 'ANSI_QUOTES,PAD_CHAR_TO_FULL_LENGTH', time_zone = '+09:00'"
    )
    reader = MySqlChunkReader(connection)
    assert rows_of(list(reader.read(schema, whole(schema)))) == [{"select": 1, "a?`b": "x"}]
    reader.close()


def test_low_is_executed_before_and_high_lies_behind_the_rows(mysql: Database) -> None:
    mysql.execute("CREATE TABLE t (k INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    schema = schema_of(mysql, TableId(mysql.name, "t"))
    reader = MySqlChunkReader(mysql.connect())
    before = mysql.gtid_executed()
    read = reader.read(schema, whole(schema))
    with pytest.raises(InternalError):
        _ = read.result
    batches = iter(read)
    first = next(batches)
    mysql.execute("INSERT INTO t VALUES (2)")
    file, position = mysql.position()
    assert list(batches) == []
    reader.close()
    assert first.num_rows == 1
    window = MySqlWindows().of(read.result.watermarks)
    assert _core.GtidSet(window.low) == _core.GtidSet(before)
    assert window.high.file == file
    assert window.high.position >= position


def test_rows_wider_than_one_packet_arrive_whole(mysql_factory: Any) -> None:
    server = mysql_factory(max_allowed_packet="64M")
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (k INT PRIMARY KEY, v LONGBLOB)")
    sizes = [0, 2**24 - 30, 2**24 - 12, *range(2**24 - 11, 2**24 - 5), 2**24 + 5, 33 * 2**20]
    with server.connect(max_allowed_packet=64 * 2**20) as connection, connection.cursor() as cursor:
        for number, size in enumerate(sizes):
            cursor.execute(f"INSERT INTO d.t VALUES ({number}, REPEAT(x'61', {size}))")
    schema = schema_of(server, TableId("d", "t"))
    reader = MySqlChunkReader(server.connect())
    found = [
        (row.as_py(), len(value.as_buffer()))
        for batch in reader.read(schema, whole(schema))
        for row, value in zip(batch.column(0), batch.column(1), strict=True)
    ]
    reader.close()
    assert found == list(enumerate(sizes))


def test_batches_are_bounded_by_rows_and_by_bytes(mysql: Database) -> None:
    mysql.execute("CREATE TABLE t (k INT PRIMARY KEY, v VARCHAR(1000))")
    mysql.execute("INSERT INTO t VALUES " + ", ".join(f"({n}, REPEAT('y', 1000))" for n in range(500)))
    schema = schema_of(mysql, TableId(mysql.name, "t"))
    cases: tuple[tuple[dict[str, Any], int], ...] = (({"batch_rows": 64}, 64), ({"batch_bytes": 10_500}, 10))
    for limits, rows in cases:
        connection = mysql.connect()
        prepare_session(connection)
        decoder = _core.ResultSetDecoder(schema.to_json(), **limits)
        sizes = [b.num_rows for b in execute(connection, select_sql(schema, whole(schema)), decoder)]
        connection.close()
        assert sum(sizes) == decoder.rows == 500
        assert max(sizes) == rows


@pytest.mark.parametrize(
    "ddl",
    [
        "ALTER TABLE t DROP COLUMN v",
        "ALTER TABLE t MODIFY v BIGINT",
        "ALTER TABLE t MODIFY v INT UNSIGNED",
        "ALTER TABLE t MODIFY v VARCHAR(10)",
        "ALTER TABLE t MODIFY w VARCHAR(10) CHARACTER SET latin1",
        "ALTER TABLE t MODIFY d DECIMAL(10,3)",
        "ALTER TABLE t MODIFY x DATETIME(3)",
        "RENAME TABLE t TO u",
        "DROP TABLE t",
    ],
)
def test_a_table_that_is_no_longer_as_planned_is_outdated_not_misread(mysql: Database, ddl: str) -> None:
    mysql.execute(
        "CREATE TABLE t (k INT PRIMARY KEY, v INT, w VARCHAR(10) CHARACTER SET utf8mb4,"
        " d DECIMAL(10,2), x DATETIME)",
        "INSERT INTO t VALUES (1, 2, 'é', 1.5, '2024-01-01')",
    )
    schema = schema_of(mysql, TableId(mysql.name, "t"))
    reader = MySqlChunkReader(mysql.connect())
    mysql.execute(ddl)
    with pytest.raises(ChunkOutdated, match="changed while"):
        list(reader.read(schema, whole(schema)))
    reader.close()


@pytest.mark.parametrize(
    "ddl",
    [None, "ALTER TABLE t ADD COLUMN x INT", "ALTER TABLE t MODIFY `*` INT FIRST"],
    ids=["as planned", "added", "moved"],
)
def test_a_column_called_star_is_read_by_its_name_or_not_at_all(mysql: Database, ddl: str | None) -> None:
    """MySQL 8.0 takes a quoted `*` for all columns."""
    mysql.execute("CREATE TABLE t (k INT PRIMARY KEY, `*` INT, `a` INT)", "INSERT INTO t VALUES (1, 2, 3)")
    schema = schema_of(mysql, TableId(mysql.name, "t"))
    if ddl is not None:
        mysql.execute(ddl)
    reader = MySqlChunkReader(mysql.connect())
    if ddl is None:
        assert rows_of(list(reader.read(schema, whole(schema)))) == [{"k": 1, "*": 2, "a": 3}]
    else:
        with pytest.raises(ChunkOutdated):
            list(reader.read(schema, whole(schema)))
    reader.close()


def test_columns_added_meanwhile_are_left_out(mysql: Database) -> None:
    mysql.execute("CREATE TABLE t (k INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    schema = schema_of(mysql, TableId(mysql.name, "t"))
    mysql.execute("ALTER TABLE t ADD COLUMN v INT FIRST")
    reader = MySqlChunkReader(mysql.connect())
    assert rows_of(list(reader.read(schema, whole(schema)))) == [{"k": 1}]
    reader.close()


def test_a_killed_session_is_transient_and_a_refused_value_parks_the_table(mysql: Database) -> None:
    mysql.execute("CREATE TABLE t (k INT PRIMARY KEY, d DATE)", "INSERT INTO t VALUES (1, NULL)")
    schema = schema_of(mysql, TableId(mysql.name, "t"))
    connection = mysql.connect()
    reader = MySqlChunkReader(connection)
    mysql.execute(f"KILL {connection.thread_id()}")
    with pytest.raises(TransientError):
        list(reader.read(schema, whole(schema)))
    with mysql.connect() as other, other.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        cursor.execute("INSERT INTO t VALUES (2, '0000-00-00')")
    strict = MySqlChunkReader(mysql.connect(), types=TypeOptions(zero_dates="error"))
    with pytest.raises(TableError, match="zero_dates"):
        list(strict.read(schema, whole(schema)))


def test_a_chunk_shows_one_moment_while_a_writer_goes_on(mysql: Database) -> None:
    """Two rows always change together; no chunk may see them differ."""
    mysql.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 0), (1000, 0)")
    mysql.execute("INSERT INTO t VALUES " + ", ".join(f"({n}, -1)" for n in range(2, 900)))
    schema = schema_of(mysql, TableId(mysql.name, "t"))

    def write(ending: threading.Event) -> None:
        with mysql.connect() as connection, connection.cursor() as cursor:
            while not ending.is_set():
                cursor.execute("UPDATE t SET v = v + 1 WHERE k IN (1, 1000)")

    with meanwhile(write):
        reader = MySqlChunkReader(mysql.connect())
        for _ in range(200):
            read = reader.read(schema, whole(schema))
            values = {row["v"] for row in rows_of(list(read)) if row["k"] in (1, 1000)}
            assert len(values) == 1
        reader.close()
