"""The client of both sinks for Redis, and what they ask of a server before they use it."""

from __future__ import annotations

from typing import Any

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from penstock.connections.answers import STRANGE
from penstock.connections.tcp import BoundedSocket
from penstock.errors import ConfigError, TransientError
from penstock.sinks.redis.faults import explained
from penstock.sinks.redis.options import ServerOptions

_ANSWER_BYTES_MAX = 256 * 1024**2
"""Bytes of the answers to one call. A value has at most 512 MiB, but rows of MySQL are not so large."""
_STRANGE = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError, MemoryError)
"""Errors of the client when the server does not speak its protocol: it does not check what it reads."""
_KINDS: dict[str, tuple[type, ...]] = {
    "EVALSHA": (bytes,), "HGETALL": (dict,), "HMGET": (list,), "INFO": (dict,), "TYPE": (bytes,),
    "SCAN": (tuple, list), "GET": (bytes, type(None)), "SRANDMEMBER": (list, set),
}  # fmt: skip
"""What commands answer."""


def client(options: ServerOptions) -> Any:
    """A client whose errors are all `redis.RedisError`, whatever the server sends. An answer that no server
    gives is an `InvalidResponse`."""
    # A kept connection may have been closed meanwhile. All else is tried again with the epoch.
    account = _Account(options) if options.user or options.password else None
    made = _Client(**options.connection(), credential_provider=account, retry=Retry(NoBackoff(), 1))
    kind: type[Any] = made.connection_pool.connection_class

    class Bounded(kind):  # type: ignore[misc]
        def _connect(self) -> Any:
            seconds = options.timeout / 1000
            return BoundedSocket(super()._connect(), seconds=seconds, bytes_max=_ANSWER_BYTES_MAX)

        def read_response(self, *arguments: Any, **more: Any) -> Any:
            try:
                return super().read_response(*arguments, **more)
            except _STRANGE:
                self.disconnect()
                raise exceptions.InvalidResponse(STRANGE) from None

    made.connection_pool.connection_class = Bounded
    return made


class _Account(redis.CredentialProvider):
    """Is asked before each login."""

    def __init__(self, options: ServerOptions) -> None:
        self._options = options

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        password = self._options.password.reveal()
        return (self._options.user, password) if self._options.user else (password,)


class _Client(redis.Redis):
    def parse_response(self, connection: Any, command_name: Any, **options: Any) -> Any:
        try:
            parent: Any = super()
            found = parent.parse_response(connection, command_name, **options)
        except _STRANGE:
            raise exceptions.InvalidResponse(STRANGE) from None
        if (kinds := _KINDS.get(command_name)) is not None and not isinstance(found, kinds):
            connection.disconnect()
            raise exceptions.InvalidResponse(STRANGE)
        return found


def check_server(client: Any, options: ServerOptions) -> None:
    """Raises `ConfigError` if the server does not answer, or removes keys by itself."""
    try:
        memory = client.info("memory")
    except exceptions.RedisError as error:
        fault = explained(error, f"The server {options.url} cannot be used", None)
        if isinstance(fault, TransientError):
            raise ConfigError(fault.message, hint="Start it, or correct `sink.url`.") from None
        raise fault from None
    policy = str(memory.get("maxmemory_policy", "noeviction"))
    evicts = memory.get("maxmemory") and policy != "noeviction"
    if evicts and not options.allow_eviction:
        raise ConfigError(
            f"The server {options.url} removes keys when its memory is full ({policy}). Something would be "
            "missing, and nobody would know.",
            hint="Set its maxmemory-policy to noeviction, or accept that by `sink.allow_eviction: true`.",
        )
