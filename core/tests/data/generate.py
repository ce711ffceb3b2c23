"""Writes the small log `changes.binlog` and the schema `changes.json` of its table, from a real MySQL 8.0.

PYTHONPATH=src .venv/bin/python core/tests/data/generate.py
"""

from __future__ import annotations

import shutil
from pathlib import Path

from penstock.model.schema import TableId
from penstock.sources.mysql.catalog import read_table
from penstock.testing import servers

COLUMNS = """
  id INT UNSIGNED NOT NULL, c CHAR(5) CHARACTER SET latin1 NOT NULL, y YEAR, u BIGINT UNSIGNED,
  dec_a DECIMAL(20,5), dec_b DECIMAL(65,30), f FLOAT, d DOUBLE, b1 BIT, b40 BIT(40), da DATE, dt DATETIME(3),
  ts TIMESTAMP(6) NULL, t TIME(2), v VARCHAR(500), tx MEDIUMTEXT CHARACTER SET gbk, bi BINARY(4), bl BLOB,
  e ENUM('a','b'), s SET('x','y','z'), j JSON, g GEOMETRY, PRIMARY KEY (id, c)
"""


def main() -> None:
    here = Path(__file__).parent
    with servers.MySqlServer({"binlog_row_metadata": "FULL"}) as server:
        server.execute("CREATE DATABASE d", f"CREATE TABLE d.t ({COLUMNS})", "CREATE TABLE d.o (a INT)")
        server.execute("FLUSH BINARY LOGS")
        row = """'é', 1999, 18446744073709551615, -1.5, 2.25, 0.5, -1e300, 1, 5, '2024-02-29',
            '1999-12-31 23:59:59.123', '2001-02-03 04:05:06.789', '-838:59:59', 'text', '中文', x'01',
            x'00ff', 'b', 'x,z', '{"a": [1, 2.5, null, "x"], "b": {"c": 123456789012}}', POINT(1, 2)"""
        server.execute(
            "SET time_zone = '+00:00'",
            f"INSERT INTO d.t VALUES (1, {row}), (2, {row})",
            "INSERT INTO d.t (id, c) VALUES (3, ''), (4, '')",
            "INSERT INTO d.o VALUES (1)",
            "BEGIN",
            "UPDATE d.t SET y = 2000, j = JSON_ARRAY(DATE '2020-01-01', 1.50) WHERE id < 3",
            "UPDATE d.t SET id = 9 WHERE id = 3",
            "DELETE FROM d.t WHERE id = 4",
            "COMMIT",
        )
        server.execute("FLUSH BINARY LOGS")
        shutil.copy(server.binlog_files()[-2], here / "changes.binlog")
        with server.connect() as connection:
            schema = read_table(connection, TableId("d", "t"))
        assert schema is not None
        (here / "changes.json").write_text(schema.to_json() + "\n")


if __name__ == "__main__":
    main()
