"""Connects to the first server that answers."""

from __future__ import annotations

from penstock.connections.answers import NoAnswer
from penstock.connections.tcp import tls_context
from penstock.sinks.nats.connection import NatsConnection, Refused
from penstock.sinks.nats.credentials import Credentials
from penstock.sinks.nats.options import NatsOptions


def connected(options: NatsOptions) -> NatsConnection:
    """Opens a connection to the first server that answers. Raises `NoAnswer`, `Refused`, or `ConfigError`
    for files of certificates."""
    credentials = Credentials(options.user, options.password, options.token, options.credentials)
    tls = tls_context(options.ca, options.certificate, options.key)
    failed: NoAnswer | Refused | None = None
    for host, port in options.addresses:
        try:
            return NatsConnection(
                host, port, tls=tls, tls_wanted=options.tls_wanted, credentials=credentials,
                seconds=options.timeout / 1000,
            )  # fmt: skip
        except (NoAnswer, Refused) as error:
            failed = error
    assert failed is not None
    raise failed
