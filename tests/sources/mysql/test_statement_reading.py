"""What Canal calls statements. The answers are those of Canal 1.1.7 (`tests/serve/test_beside_canal.py` asks
it)."""

from __future__ import annotations

import pytest

from penstock.sources.mysql.ddl.parse import parse
from penstock.sources.mysql.ddl.server import Server
from penstock.sources.mysql.statement_reading import canal_type


@pytest.mark.parametrize(
    ("sql", "kind", "table"),
    [
        ("ALTER TABLE x RENAME TO other.y", "RENAME", ("other", "y")),
        ("ALTER TABLE x ADD z INT, RENAME TO y", "ALTER", ("shop", "x")),
        ("ALTER TABLE x ADD INDEX i (v)", "CINDEX", ("shop", "x")),
        ("ALTER TABLE x ADD PRIMARY KEY (id)", "CINDEX", ("shop", "x")),
        ("ALTER TABLE x ADD CONSTRAINT c UNIQUE (v)", "CINDEX", ("shop", "x")),
        ("ALTER TABLE x ADD COLUMN q INT, ADD UNIQUE KEY u (q)", "ALTER", ("shop", "x")),
        ("ALTER TABLE x DROP INDEX i", "DINDEX", ("shop", "x")),
        ("ALTER TABLE x DROP KEY i", "DINDEX", ("shop", "x")),
        ("ALTER TABLE x DROP PRIMARY KEY", "ALTER", ("shop", "x")),
        ("ALTER TABLE x COMMENT = 'y'", "ALTER", ("shop", "x")),
        ("CREATE INDEX i ON x (v)", "CINDEX", ("shop", "x")),
        ("DROP INDEX i ON x", "DINDEX", ("shop", "x")),
    ],
)
def test_statements_have_the_types_that_canal_gives_them(sql: str, kind: str, table: tuple[str, str]) -> None:
    assert canal_type(parse(sql, "shop", Server()), sql) == (kind, [table])
