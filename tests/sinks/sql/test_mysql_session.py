"""Sessions and definitions of the sink `jdbc` in MySQL and MariaDB."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StringType

from penstock.errors import TableError
from penstock.model.schema import Column, TableId
from penstock.sinks.sql.dialect import Place
from penstock.sinks.sql.mysql import MySql
from penstock.sinks.sql.options import JdbcOptions
from penstock.sinks.sql.registration import dialect_of
from penstock.testing import servers
from penstock.testing.servers import Database


@pytest.mark.parametrize(
    ("release", "time_limit"),
    [
        ("mysql80", "max_execution_time = 1"),
        pytest.param("mariadb118", "max_statement_time = 0.001", marks=pytest.mark.slow),
    ],
)
def test_limits_that_a_server_sets_for_every_session_hide_no_rows(release: str, time_limit: str) -> None:
    limits = f"SET sql_select_limit = 1, max_join_size = 1, completion_type = 'RELEASE', {time_limit}"
    with servers.FLAVORS[release]({"init_connect": limits}) as server:
        server.execute("CREATE DATABASE lake", "CREATE TABLE lake.t (k INT PRIMARY KEY)")
        # It does not concern accounts that may do anything.
        server.execute("CREATE USER u@'127.0.0.1' IDENTIFIED BY 'u'", "GRANT ALL ON lake.* TO u@'127.0.0.1'")
        url = f"mysql://{server.host}:{server.port}"
        dialect = dialect_of(
            JdbcOptions.model_validate({"type": "jdbc", "url": url, "user": "u", "password": "u"})
        )
        session = dialect.connect()
        for statement in ("BEGIN", "INSERT INTO lake.t VALUES (1), (2), (3)", "COMMIT"):
            dialect.run(session, statement)
        pairs = "SELECT a.k + SLEEP(0.01) FROM lake.t a, lake.t b WHERE a.k <> b.k"
        assert len(dialect.run(session, pairs)) == 6
        session.close()


@pytest.mark.parametrize("kind", [StringType(), BinaryType()])
def test_a_column_can_come_to_a_key_whose_text_had_all_the_room_of_an_index(
    mysql: Database, kind: Any
) -> None:
    options = {"type": "jdbc", "url": f"mysql://{mysql.host}:{mysql.port}", "user": mysql.user}
    dialect = dialect_of(JdbcOptions.model_validate({**options, "password": mysql.password}))
    assert isinstance(dialect, MySql)
    session, place = dialect.connect(), Place(mysql.name, "t")
    key = dialect.key_types({"k": kind}, {"k": Column("k", "varchar(20)", length=20)})
    dialect.make_new(session, place, {**key, "n": "int", "m": "longtext"}, key, unique=True)
    assert dialect.keys(session, place) == {"PRIMARY"}
    key = {"k": key["k"], "n": "int", "m": "longtext"}
    dialect.run(session, f"ALTER TABLE {dialect.target(place)} DROP PRIMARY KEY, {dialect.index_clause(key)}")
    assert dialect.keys(session, place) == {"penstock_key"}
    session.close()


@pytest.mark.parametrize(
    ("sql", "cure"),
    [
        ("INSERT INTO {} VALUES (1, 'secret')", "--recreate"),
        ("INSERT INTO {} VALUES (99999999999, 'a')", "--recreate"),
        ("INSERT INTO {} VALUES (1, 'a'), (1, 'b')", "unpark"),
    ],
)
def test_a_value_that_does_not_fit_has_another_cure_than_one_that_is_refused(
    mysql: Database, sql: str, cure: str
) -> None:
    options = {"type": "jdbc", "url": f"mysql://{mysql.host}:{mysql.port}", "user": mysql.user}
    dialect = dialect_of(JdbcOptions.model_validate({**options, "password": mysql.password}))
    mysql.execute("CREATE TABLE narrow (id INT PRIMARY KEY, k VARCHAR(3))")
    session = dialect.connect()
    with pytest.raises(dialect.errors) as refused:
        dialect.run(session, sql.format(f"`{mysql.name}`.narrow"))
    found = dialect.explained(refused.value, "Rows were not written", TableId("shop", "narrow"))
    assert isinstance(found, TableError) and cure in found.hint and "secret" not in str(found)
    session.close()
