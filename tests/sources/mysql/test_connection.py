"""How connections are made."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.sources.mysql.connection import connect
from penstock.sources.mysql.options import MySqlOptions


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
