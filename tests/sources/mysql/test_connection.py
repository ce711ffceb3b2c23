"""How connections are made."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.sources.mysql.connection import connect, query
from penstock.sources.mysql.options import MySqlOptions
from penstock.testing import servers


@pytest.mark.parametrize(("tls", "encrypted"), [("preferred", True), ("required", True), ("disabled", False)])
def test_tls_is_used_as_asked_for(mysql_server: Any, tls: str, encrypted: bool) -> None:
    config = MySqlOptions.model_validate(
        {
            "host": mysql_server.host,
            "port": mysql_server.port,
            "user": mysql_server.user,
            "password": mysql_server.password,
            "tls": tls,
        }
    )
    for _ in range(2):
        with connect(config) as connection, connection.cursor() as cursor:
            cursor.execute("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
            assert bool(cursor.fetchone()[1]) == encrypted


@pytest.mark.parametrize(
    ("release", "time_limit"),
    [
        ("mysql80", "max_execution_time = 1"),
        pytest.param("mysql57", "max_execution_time = 1", marks=pytest.mark.slow),
        pytest.param("mysql97", "max_execution_time = 1", marks=pytest.mark.slow),
        pytest.param("mariadb1011", "max_statement_time = 0.001", marks=pytest.mark.slow),
        pytest.param("mariadb118", "max_statement_time = 0.001", marks=pytest.mark.slow),
    ],
)
def test_limits_that_a_server_sets_for_every_session_hide_no_rows(release: str, time_limit: str) -> None:
    limits = f"SET sql_select_limit = 3, max_join_size = 1, {time_limit}"
    with servers.FLAVORS[release]({"init_connect": limits}) as server:
        server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (k INT PRIMARY KEY)")
        server.execute("INSERT INTO shop.t VALUES (1), (2), (3), (4)")
        # It does not concern accounts that may do anything.
        server.execute("CREATE USER u@'127.0.0.1' IDENTIFIED BY 'u'", "GRANT SELECT ON *.* TO u@'127.0.0.1'")
        config = MySqlOptions.model_validate(
            {"host": server.host, "port": server.port, "user": "u", "password": "u"}
        )
        with connect(config) as connection:
            rows = query(connection, "SELECT a.k + SLEEP(0.01) FROM shop.t a, shop.t b WHERE a.k <> b.k")
        assert len(rows) == 12
