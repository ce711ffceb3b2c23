"""Servers for the sink `jdbc`, one of each product in a run. They end with the process."""

from __future__ import annotations

import atexit
import functools
from typing import Any

from penstock.secret import Secret
from penstock.sinks.sql.registration import JdbcOptions
from penstock.testing import servers


@functools.cache
def server(product: str) -> Any:
    made = (
        servers.postgresql()
        if product == "postgresql"
        else servers.FLAVORS[product]({"max_allowed_packet": "64M"})
    )
    atexit.register(made.close)
    return made


def options_of(made: Any) -> JdbcOptions:
    postgresql = isinstance(made, servers.PostgreSqlServer)
    url = f"jdbc:{made.url}" if postgresql else f"mysql://{made.host}:{made.port}"
    return JdbcOptions(type="jdbc", url=url, user=made.user, password=Secret(made.password))


def jdbc(name: str) -> JdbcOptions:
    """Options for `jdbc-postgresql` and its like."""
    return options_of(server(name.removeprefix("jdbc-")))
