"""The options of the sink `nats`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator
from typing_extensions import Self

from penstock.model.schema import TableId
from penstock.model.units import Bytes, Milliseconds
from penstock.secret import Secret
from penstock.sinks import server_url
from penstock.sinks.message_options import MessageOptions, Places, Template, filled
from penstock.sinks.nats.subjects import check_subject, escaped, is_covered, stream_name
from penstock.sinks.table_entries import Texts

if TYPE_CHECKING:
    from penstock.sinks.base import Subject

_SCHEMES = {"nats": False, "tls": True}
PORT = 4222  # of NATS


class NatsOptions(MessageOptions):
    """Messages in a stream of NATS JetStream, in a format that consumers of other tools know
    (docs/nats.md)."""

    type: Literal["nats"]
    """Name of the sink."""
    url: Texts
    """The servers: `nats://host:4222`, or `tls://` for TLS. Of several, the first that answers is used."""
    user: str = ""
    """Account, if the server has them."""
    password: Secret = Secret()
    """Its password; usually `${VARIABLE}`."""
    token: Secret = Secret()
    """Instead of an account: the server's token."""
    credentials: Path | None = None
    """Instead of an account: a `.creds` file with a JWT and a key, or a file with the seed of an NKey."""
    ca: Path | None = None
    """File with the certificates to trust for TLS. None: those of the system."""
    certificate: Path | None = None
    """Certificate of the client, for servers that ask for one."""
    key: Path | None = None
    """The private key of the certificate. None: it is in the same file."""
    domain: str = ""
    """Domain of JetStream, on servers that have several."""
    subject: Template = "{source}.{database}.{table}"
    """Subject of a table's messages. In names of databases and tables, characters that subjects forbid become
    `%` and hexadecimal digits, as in URLs."""
    transaction_subject: Template = "{source}.transaction"
    """Subject of the messages BEGIN and END (`provide.transaction.metadata` of the format debezium)."""
    schema_subject: Template | None = None
    """Subject of the messages of changed definitions. None: with the format debezium
    (`include.schema.changes`) `{source}`, and with others the table's own subject."""
    fence_subject: Template = "{source}.penstock"
    """Subject of an empty message with which a driver begins: it ends what an earlier one may still send. It
    is removed from the stream at once."""
    stream: str = Field("", pattern=r"^[A-Za-z0-9_-]*$")
    """Name of the stream. Empty: `source`, with `_` for characters that streams forbid in names."""
    create_stream: bool = True
    """Create the stream if it does not exist."""
    subjects: Texts = ()
    """Subjects of a stream that is created. Empty: `{source}` and `{source}.>`."""
    storage: Literal["file", "memory"] = "file"
    """Where the stream keeps messages. A server that restarts has lost those in memory; then the pipeline
    ends."""
    replicas: int | None = Field(None, ge=1, le=5)
    """Copies of the stream in a cluster. None: 1 when it is created."""
    messages_max: int | None = Field(None, ge=1)
    """About so many messages are kept. None: no limit when the stream is created."""
    bytes_max: Bytes | None = None
    """About so many bytes are kept. None: no limit when the stream is created."""
    age_max: Milliseconds | None = None
    """How long messages are kept. None: no limit when the stream is created."""
    discard: Literal["old", "new"] | None = None
    """What happens when the stream is full. `old`: the oldest messages are removed. `new`: new ones are
    refused, and the pipeline waits. None: `old` when the stream is created."""
    control: str = Field("penstock", pattern=r"^[A-Za-z0-9_-]+$")
    """Name of the key-value bucket in which pipelines remember what they have written."""
    timeout: Milliseconds = Field(10_000, ge=100)
    """How long an answer of the server may take."""

    @field_validator("url")
    @classmethod
    def _is_url(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            example = "nats://host:4222, or tls:// for TLS"
            if server_url.checked(one, _SCHEMES, example).path.strip("/"):
                raise ValueError(f"write {example}")
        if len({urlsplit(one).scheme for one in value}) != 1:
            raise ValueError("write at least one server, and all with the same scheme")
        return value

    @model_validator(mode="after")
    def _is_one_proof(self) -> Self:
        if (bool(self.user) + bool(self.token) + (self.credentials is not None)) > 1:
            raise ValueError("use one of `user`, `token` and `credentials`")
        return self

    @model_validator(mode="after")
    def _subjects_are_possible(self) -> Self:
        check_subject(self.source)
        others = [self.transaction_subject, self.fence_subject]
        for template in (*others, *([self.schema_subject] if self.schema_subject else [])):
            if "{database}" in template or "{table}" in template:
                raise ValueError(f"{template}: it is not about one table, so it has only {{source}}")
        for template in (self.subject, *others):
            check_subject(filled(template, self.source, TableId("d", "t")))
        for pattern in self.stream_subjects:
            check_subject(pattern, wildcards=True)
        fence = self.fence_place
        if not is_covered(fence, self.stream_subjects):
            raise ValueError(f"`subjects` has no subject that covers {fence} (`fence_subject`)")
        return self

    @property
    def places(self) -> Places:
        return Places(self.subject, self.transaction_subject, self.schema_subject)

    @property
    def stream_subjects(self) -> tuple[str, ...]:
        """Subjects of a stream that is created."""
        return self.subjects or (self.source, f"{self.source}.>")

    @property
    def stream_name(self) -> str:
        return self.stream or stream_name(self.source)

    @property
    def fence_place(self) -> str:
        return filled(self.fence_subject, self.source, None)

    @property
    def tls_wanted(self) -> bool:
        return _SCHEMES[urlsplit(self.url[0]).scheme]

    @property
    def addresses(self) -> list[tuple[str, int]]:
        parts = [urlsplit(one) for one in self.url]
        return [(one.hostname or "", one.port or PORT) for one in parts]

    def place_of(self, subject: Subject) -> str:
        template, table = self.places.of(subject)
        return filled(template, self.source, table, escaped)
