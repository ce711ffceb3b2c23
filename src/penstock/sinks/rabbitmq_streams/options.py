"""The options of the sink `rabbitmq-streams`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from pydantic import Field, field_validator

from penstock.model.units import Bytes, Milliseconds
from penstock.secret import Secret
from penstock.sinks import server_url
from penstock.sinks.message_options import MessageOptions, Places, Template
from penstock.sinks.table_entries import Texts

_PORTS = {"rabbitmq-stream": 5552, "rabbitmq-stream+tls": 5551}


class RabbitMqStreamsOptions(MessageOptions):
    """Messages in streams of RabbitMQ, in a format that consumers of other tools know
    (docs/rabbitmq-streams.md)."""

    type: Literal["rabbitmq-streams"]
    """Name of the sink."""
    url: Texts
    """The servers: `rabbitmq-stream://host:5552/virtual%20host`, or `rabbitmq-stream+tls://`. Of several,
    the first that answers is used."""
    user: str = "guest"
    """Account."""
    password: Secret = Secret()
    """Its password; usually `${VARIABLE}`."""
    ca: Path | None = None
    """File with the certificates to trust for TLS. None: those of the system."""
    certificate: Path | None = None
    """Certificate of the client, for servers that ask for one."""
    key: Path | None = None
    """The private key of the certificate. None: it is in the same file."""
    stream: Template = "{source}.{database}.{table}"
    """Name of a table's stream."""
    transaction_stream: Template = "{source}.transaction"
    """Stream of the messages BEGIN and END (`provide.transaction.metadata` of the format debezium)."""
    schema_stream: Template | None = None
    """Stream of the messages of changed definitions. None: with the format debezium
    (`include.schema.changes`) `{source}`, and with others the table's own stream."""
    create_streams: bool = True
    """Create streams that do not exist. Without it, their tables are parked."""
    bytes_max: Bytes | None = None
    """About so many bytes are kept in a stream that is created. None: no limit."""
    age_max: Milliseconds | None = Field(None, ge=1000)
    """How long messages are kept in a stream that is created. None: no limit."""
    segment_bytes: Bytes | None = None
    """Size of a file of a stream that is created; limits remove whole files. None: 500 MB, the server's
    own."""
    replicas: int | None = Field(None, ge=1)
    """Copies of a stream that is created. None: as the server decides."""
    timeout: Milliseconds = Field(10_000, ge=100)
    """How long an answer of the server may take."""

    @field_validator("url")
    @classmethod
    def _is_url(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            server_url.checked(one, _PORTS, "rabbitmq-stream://host:5552, or rabbitmq-stream+tls:// for TLS")
        if len({(urlsplit(one).scheme, urlsplit(one).path) for one in value}) != 1:
            raise ValueError("write at least one server, and all with the same scheme and virtual host")
        return value

    @property
    def places(self) -> Places:
        return Places(self.stream, self.transaction_stream, self.schema_stream)

    @property
    def tls_wanted(self) -> bool:
        return urlsplit(self.url[0]).scheme.endswith("+tls")

    @property
    def addresses(self) -> list[tuple[str, int]]:
        parts = [urlsplit(one) for one in self.url]
        return [(one.hostname or "", one.port or _PORTS[one.scheme]) for one in parts]

    @property
    def virtual_host(self) -> str:
        return unquote(urlsplit(self.url[0]).path.removeprefix("/")) or "/"

    @property
    def arguments(self) -> dict[str, str]:
        """Settings of a stream that is created, as the protocol has them."""
        found = {
            "max-length-bytes": self.bytes_max,
            "max-age": None if self.age_max is None else f"{self.age_max // 1000}s",
            "stream-max-segment-size-bytes": self.segment_bytes,
            "initial-cluster-size": self.replicas,
        }
        return {name: str(value) for name, value in found.items() if value is not None}
