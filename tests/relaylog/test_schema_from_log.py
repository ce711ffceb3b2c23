"""What a log tells of definitions that are gone; the judge is what the catalog said at their time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.core.logs import decode_range
from tests.sources.mysql.receiving import receiving

from penstock.model.offset import LogRange
from penstock.model.schema import Column, TableId, TableSchema
from penstock.relaylog.schema_from_log import described
from penstock.sources.mysql.catalog import read_table
from penstock.testing.servers import MySqlServer

TABLE = TableId("d", "t")

CREATE = """CREATE TABLE d.t (
    a INT UNSIGNED NOT NULL, b BIGINT NOT NULL, c TINYINT, d SMALLINT UNSIGNED, e MEDIUMINT, f FLOAT,
    g DOUBLE, h DECIMAL(12, 3), i CHAR(10) CHARACTER SET utf8mb4, j VARCHAR(30) CHARACTER SET latin1,
    k BINARY(8), l VARBINARY(300), m TINYTEXT, n TEXT CHARACTER SET utf16, o MEDIUMTEXT, p LONGTEXT,
    q TINYBLOB, r BLOB,
    s MEDIUMBLOB, t LONGBLOB, u ENUM('x', 'ü') CHARACTER SET latin1, v SET('1', '2', '3'), w JSON, x GEOMETRY,
    y BIT(9), z YEAR, aa DATE, ab TIME(2), ac DATETIME(6), ad TIMESTAMP(3) NULL,
    ae CHAR(200) CHARACTER SET gbk,
    PRIMARY KEY (b, a))"""


def facts(schema: TableSchema | None) -> list[Column]:
    assert schema is not None
    unknown = {
        "default": None, "default_is_expression": False, "collation": None, "column_type": "",
        "auto_increment": None,
    }  # fmt: skip
    return [replace(column, **unknown) for column in schema.columns]  # type: ignore[arg-type]


def definition(server: MySqlServer) -> TableSchema:
    with server.connect() as connection:
        schema = read_table(connection, TABLE)
    assert schema is not None
    return schema


def test_a_definition_that_is_gone_is_told_by_the_log(
    emptied_mysql: Callable[..., MySqlServer], tmp_path: Path
) -> None:
    server = emptied_mysql(binlog_row_metadata="FULL")
    server.execute("CREATE DATABASE d", CREATE, "INSERT INTO d.t (a, b, j) VALUES (1, 2, 'three')")
    before = definition(server)
    types = [f"MODIFY {name} VARCHAR(20)" for name in "cdefghijkmnopqrsuvwz"]
    server.execute(
        f"ALTER TABLE d.t {', '.join(types)}, DROP COLUMN l, DROP COLUMN t, DROP COLUMN x,"
        "RENAME COLUMN y TO yy,"
        "MODIFY aa VARCHAR(9) FIRST, DROP COLUMN ab, DROP COLUMN ac, DROP COLUMN ad, DROP COLUMN ae,"
        "DROP PRIMARY KEY, ADD PRIMARY KEY (a)",
        "INSERT INTO d.t (a, b) VALUES (5, 6)",
    )
    now = definition(server)
    with receiving(server, tmp_path) as receiver:
        receiver.wait_until_level()
        log = receiver.log
    found = described(log, now, LogRange(log.start, log.end))
    assert found is not None
    assert facts(found) == facts(before) and found.key == ("b", "a")
    [altered] = [item for item in log.statements(LogRange(log.start, log.end)) if "MODIFY" in item.sql]
    [split] = log.splits(LogRange(log.start, altered.end), TABLE, bytes_aim=1 << 40)
    rows = decode_range(found, split.path, split.start, split.end)
    assert [rows[name].to_pylist() for name in ("a", "b", "j")] == [[1], [2], ["three"]]
    assert described(log, now, LogRange(altered.end, log.end)) == now


def test_maps_without_names_tell_no_definition(
    emptied_mysql: Callable[..., MySqlServer], tmp_path: Path
) -> None:
    server = emptied_mysql()
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1)")
    with receiving(server, tmp_path) as receiver:
        receiver.wait_until_level()
        log = receiver.log
    assert described(log, definition(server), LogRange(log.start, log.end)) is None
