"""The options of the sink `redis`."""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from penstock.model.change import SEQUENCE
from penstock.model.schema import TableId
from penstock.model.units import Milliseconds
from penstock.secret import Secret
from penstock.sinks import server_url
from penstock.sinks.kind import SinkOptions
from penstock.sinks.names import which_penstock_adds

SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss"}
KEY = "{key}"


class ServerOptions(SinkOptions):
    """How the server is reached."""

    url: str
    """The server: `redis://host:6379/0`, or `rediss://` for TLS. `valkey://`, `valkeys://`: the same."""
    user: str = ""
    """Account of the server's ACL. Empty: the default one."""
    password: Secret = Secret()
    """Its password; usually `${VARIABLE}`."""
    control: str = "penstock"
    """Prefix of the sink's own keys."""
    timeout: Milliseconds = Field(10_000, ge=100)
    """How long an answer of the server may take."""
    allow_eviction: bool = False
    """Accept a server that removes keys when its memory is full. Rows that it removes are then missing
    silently."""

    @field_validator("url")
    @classmethod
    def _is_url(cls, value: str) -> str:
        parts = server_url.checked(value, SCHEMES, "redis://host:6379/0, or rediss:// for TLS")
        if parts.path.strip("/") and not parts.path.strip("/").isdigit():
            raise ValueError("what follows the address is the number of a database: redis://host:6379/0")
        return value

    def connection(self) -> dict[str, Any]:
        """Arguments of the client, without the account."""
        parts = urlsplit(self.url)
        seconds = self.timeout / 1000
        return {
            "host": parts.hostname,
            "port": parts.port or 6379,
            "db": int(parts.path.strip("/") or 0),
            "ssl": SCHEMES[parts.scheme] == "rediss",
            "socket_timeout": seconds,
            "socket_connect_timeout": seconds,
        }


class RedisOptions(ServerOptions):
    """Rows as keys of Redis or Valkey (docs/sinks-redis.md)."""

    type: Literal["redis"]
    """Name of the sink."""
    key: str = "{database}:{table}:{key}"
    """Name of a row's key. `{key}`, at its end and after a colon, is the values of the table's key, joined by
    colons."""
    value: Literal["hash", "json"] = "hash"
    """`hash`: a hash with a field for each column that is not NULL. `json`: a text with one JSON object."""

    @field_validator("key")
    @classmethod
    def _ends_in_key(cls, value: str) -> str:
        if not value.endswith(KEY) or value.count(KEY) != 1 or value == KEY:
            raise ValueError("it ends in {key}, and something comes before that")
        if not value.endswith(f":{KEY}"):
            # Else the keys of a table `a` could begin like those of a table `a_b`.
            raise ValueError("a colon comes before {key}: no name of a table or database has one")
        return value

    @property
    def has_lists(self) -> bool:
        return self.value == "json"

    def prefix(self, table: TableId) -> str:
        """The beginning that all keys of a table have, and no other keys."""
        names = {"{database}": escaped(table.database), "{table}": escaped(table.table)}
        found = self.key.removesuffix(KEY)
        for name, text in names.items():
            found = found.replace(name, text)
        return found

    def place(self, table: TableId) -> tuple[str, ...] | None:
        return (self.prefix(table),)

    def reserved(self, column: str) -> str | None:
        return which_penstock_adds(column, [SEQUENCE])


def escaped(text: str) -> str:
    """A part of a key's name, in which colons mean nothing."""
    return text.replace("%", "%25").replace(":", "%3A")
