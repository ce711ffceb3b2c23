"""What both sinks for Redis ask of a server before they use it."""

from __future__ import annotations

from typing import Any

from redis import exceptions

from penstock.errors import ConfigError, TransientError
from penstock.sinks.redis.faults import explained
from penstock.sinks.redis.options import ServerOptions


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
