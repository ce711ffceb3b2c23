"""Connects to the first server that answers."""

from __future__ import annotations

from penstock.connections.answers import NoAnswer
from penstock.connections.tcp import tls_context
from penstock.sinks.rabbitmq_streams.connection import Failed, StreamConnection
from penstock.sinks.rabbitmq_streams.options import RabbitMqStreamsOptions


def connected(options: RabbitMqStreamsOptions) -> StreamConnection:
    """Opens a connection to the first server that answers. Raises `NoAnswer`, `Failed`, or `ConfigError`
    for files of certificates."""
    tls = tls_context(options.ca, options.certificate, options.key) if options.tls_wanted else None
    failed: NoAnswer | Failed | None = None
    for host, port in options.addresses:
        try:
            return StreamConnection(
                host, port, tls=tls, user=options.user, password=options.password.reveal(),
                virtual_host=options.virtual_host, seconds=options.timeout / 1000,
            )  # fmt: skip
        except (NoAnswer, Failed) as error:
            failed = error
    assert failed is not None
    raise failed
