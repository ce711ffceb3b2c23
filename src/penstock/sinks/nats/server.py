"""Connects to the first server that answers."""

from __future__ import annotations

from penstock.sinks.nats.connection import NatsConnection, Refused
from penstock.sinks.nats.credentials import Credentials
from penstock.sinks.nats.options import NatsOptions
from penstock.sinks.tcp_connection import Disconnected, tls_context


def connected(options: NatsOptions) -> NatsConnection:
    """Opens a connection to the first server that answers. Raises `Disconnected`, `Refused`, or `ConfigError`
    for files of certificates."""
    credentials = Credentials(options.user, options.password, options.token, options.credentials)
    tls = tls_context(options.ca, options.certificate, options.key)
    failed: Disconnected | Refused | None = None
    for host, port in options.addresses:
        try:
            return NatsConnection(
                host, port, tls=tls, tls_wanted=options.tls_wanted, credentials=credentials,
                seconds=options.timeout / 1000,
            )  # fmt: skip
        except (Disconnected, Refused) as error:
            failed = error
    assert failed is not None
    raise failed
