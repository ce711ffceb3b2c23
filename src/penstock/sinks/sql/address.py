"""Where a SQL database is: the option `url`, in the spelling of JDBC or in that of other programs. Pure."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Product = Literal["postgresql", "mysql", "sqlite", "duckdb"]
FILES = ("sqlite", "duckdb")
"""Products whose database is a file."""

PRODUCTS: Mapping[str, Product] = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sqlite",
    "duckdb": "duckdb",
}
"""The scheme of a URL, and the product that it means. MariaDB is reached as MySQL is."""
PORTS: Mapping[Product, int] = {"postgresql": 5432, "mysql": 3306, "sqlite": 0, "duckdb": 0}
SSL_MODES = ("disabled", "preferred", "required", "verify_ca", "verify_identity")
_SECRETS = frozenset({"password", "pass", "pwd", "user", "username"})
_EXPECTED = (
    "write postgresql://host:5432/database, mysql://host:3306, mariadb://host:3306, "
    "sqlite:///path/file.db or duckdb:///path/file.duckdb; a `jdbc:` before it is ignored"
)


@dataclass(frozen=True)
class Address:
    """A URL in its parts. `database`: the name of PostgreSQL's, the path of the file for SQLite and DuckDB.
    `parameters`: those after `?`."""

    product: Product
    host: str
    port: int
    database: str
    parameters: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        if self.product in FILES:
            return self.database
        return f"{self.host}:{self.port}" + (f"/{self.database}" if self.database else "")


def parsed(url: str) -> Address:
    """Reads a URL. Raises `ValueError` without the URL in its text, because that may have a password."""
    text = url.strip().removeprefix("jdbc:")
    scheme, colon, rest = text.partition(":")
    product = PRODUCTS.get(scheme.lower())
    if not colon or product is None:
        raise ValueError(f"this is no URL of a database that is known; {_EXPECTED}")
    if product in FILES:
        return _file(product, rest)
    try:
        parts = urllib.parse.urlsplit(f"{scheme}:{rest}")
        port = parts.port or PORTS[product]
    except ValueError:
        raise ValueError(f"this is not a URL; {_EXPECTED}") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError("write the account into `sink.user` and `sink.password`, not into the URL")
    parameters = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
    if any(name.lower() in _SECRETS for name in parameters):
        raise ValueError("write the account into `sink.user` and `sink.password`, not into the URL")
    database = urllib.parse.unquote(parts.path.removeprefix("/"))
    if not parts.hostname or (product == "postgresql" and not database):
        raise ValueError(f"a host or a database is missing; {_EXPECTED}")
    if product == "mysql":
        _check_ssl(parameters)
        if database:
            raise ValueError(
                "leave the database out of the URL: `sink.namespace` names the databases of the targets"
            )
    return Address(product, parts.hostname, port, database, parameters)


def _file(product: Product, rest: str) -> Address:
    path = re.sub(r"^/{2,}", "/", urllib.parse.unquote(rest))
    if not path.startswith("/") or path.endswith("/"):
        raise ValueError(f"a file needs an absolute path: {product}:///path/file.db")
    return Address(product, "", 0, path)


def _check_ssl(parameters: Mapping[str, str]) -> None:
    for name, value in parameters.items():
        if name not in ("ssl-mode", "sslMode", "ssl-ca"):
            raise ValueError(f"MySQL's URL has no parameter {name!r} here; it may have ssl-mode and ssl-ca")
        if name != "ssl-ca" and value.lower() not in SSL_MODES:
            raise ValueError(f"{name} is one of {', '.join(SSL_MODES)}")
