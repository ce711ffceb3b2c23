"""Servers for sinks, one of each product in a run. They end with the process."""

from __future__ import annotations

import atexit
import functools
from collections.abc import Callable
from typing import Any

from penstock.secret import Secret
from penstock.sinks.redis.registration import RedisOptions
from penstock.sinks.sql.registration import JdbcOptions
from penstock.testing import servers

OTHERS: dict[str, Callable[[], Any]] = {"postgresql": servers.postgresql, "valkey": servers.valkey}


@functools.cache
def server(product: str) -> Any:
    if product in OTHERS:
        made = OTHERS[product]()
    else:
        made = servers.FLAVORS[product]({"max_allowed_packet": "64M"})
    atexit.register(made.close)
    return made


def options_of(made: Any) -> JdbcOptions:
    postgresql = isinstance(made, servers.PostgreSqlServer)
    url = f"jdbc:{made.url}" if postgresql else f"mysql://{made.host}:{made.port}"
    return JdbcOptions(type="jdbc", url=url, user=made.user, password=Secret(made.password))


def options(name: str) -> Any:
    """Options for `jdbc-postgresql`, `redis-json` and their like."""
    sink, _, detail = name.partition("-")
    if sink == "redis":
        made = server("valkey")
        return RedisOptions(type="redis", url=made.url, password=Secret(made.password), value=detail)
    return options_of(server(detail))
