"""A client of a schema registry, over the REST API that Confluent's has and others offer.

A schema is looked up first. If its subject does not have it, the registry is asked whether it is compatible
with the newest version, and only then it is registered. So a change that consumers cannot read is refused
before the first message of it, with the registry's reasons.

All methods may be called by several threads. Ids are remembered: a subject never gives one schema two ids.
"""

from __future__ import annotations

import json
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.backoff import Backoff, Schedule
from penstock.connections.answers import STRANGE, NoAnswer, fits
from penstock.connections.http import Answer, HttpConnection, basic_authorization, is_outage
from penstock.encode.registry_access import RegistryAccess
from penstock.errors import ConfigError, TableError, TargetRefused, TransientError
from penstock.model.schema import TableId
from penstock.secret import Secret

_CONTENT = "application/vnd.schemaregistry.v1+json"
_RETRIES = Schedule(first_s=0.2, max_s=5.0, jitter=0.5)
_REASON_CHARACTERS_MAX = 1000
"""Characters of a registry's reason in a message."""
_ANSWER_BYTES_MAX = 16 * 1024**2
"""Bytes of an answer: a schema, or the names of all subjects."""
_ID_MAX = 2**31 - 1  # messages name their schema by four bytes
_SCHEMA = {"schema": str}
_REFERENCES = [{"name": str, "subject": str, "version": int}]
"""Of answers: what is read here."""

Strategy = Literal["topic", "record", "topic-record"]


class RegistryUnreachable(TransientError):
    """The registry does not answer, or says that it cannot now."""


class SchemaRefused(TableError):
    """The registry does not take a schema. Details: `table`, `subject`."""


@dataclass(frozen=True)
class Reference:
    """Another schema that one needs: the name it is imported by, and where it is registered."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class Schema:
    """A schema as registries store it. `type`: AVRO or PROTOBUF."""

    text: str
    type: str = "AVRO"
    references: tuple[Reference, ...] = ()

    def body(self) -> dict[str, Any]:
        found: dict[str, Any] = {"schema": self.text}
        if self.type != "AVRO":
            found["schemaType"] = self.type
        if self.references:
            found["references"] = [vars(reference) for reference in self.references]
        return found


@dataclass(frozen=True)
class RegistrySettings:
    """How a registry is reached. Can be pickled if the password can."""

    url: str
    user: str = ""
    password: Secret = field(default_factory=Secret)
    ca_file: str = ""
    """Certificates that sign the registry's, as PEM; empty: those of the system."""
    certificate_file: str = ""
    key_file: str = ""
    """Files with the certificate and the key of this client."""
    register: bool = True
    """False: schemas that are not registered are refused."""
    compatibility: bool = True
    """Whether the registry is asked before a schema is registered. It asks itself, too, but gives fewer
    reasons."""
    timeout_s: float = 10.0
    attempts: int = 5

    @classmethod
    def of(cls, access: RegistryAccess, **more: Any) -> RegistrySettings:
        """The settings in a section of the pipeline file. `more`: those that not all such sections have."""
        return cls(
            access.url,
            user=access.user,
            password=access.password,
            ca_file=access.ca_file,
            certificate_file=access.certificate_file,
            key_file=access.key_file,
            **more,
        )

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.url)
        if parts.username or parts.password:
            raise ConfigError(
                "The registry's URL has a user or a password.", hint="Give them as user and password."
            )
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"`{self.url}` is not the URL of a registry.", hint="Write it as http://host:8081."
            )


class Registry:
    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._known: dict[tuple[str, Schema], int] = {}
        self._lock = threading.Lock()

        def headers() -> dict[str, str]:
            own = {"Accept": f"{_CONTENT}, application/json"}
            if not settings.user:
                return own
            return own | basic_authorization(settings.user, settings.password.reveal())

        self._connection = HttpConnection(
            settings.url, headers, timeout_s=settings.timeout_s, tls=_tls(settings), through_proxy=True
        )

    def schema_id(self, subject: str, schema: Schema, *, table: str = "") -> int:
        """The id of a schema, which is registered under the subject if it is not yet.

        Raises `SchemaRefused` if the registry does not take it, `RegistryUnreachable` after some attempts,
        and `ConfigError` if the registry does not let this user in."""
        with self._lock:
            if (known := self._known.get((subject, schema))) is not None:
                return known
            found = self._looked_up(subject, schema, table)
            if found is None:
                found = self._registered(subject, schema, table)
            self._known[subject, schema] = found
            return found

    def schema(self, id: int) -> Schema | None:
        """The schema of an id. None: the registry has none.

        Raises `RegistryUnreachable` after some attempts, and `ConfigError` if the registry does not let this
        user in."""
        try:
            answer = self._ask("GET", f"/schemas/ids/{id}", _SCHEMA)
        except _Answered as error:
            if error.status == 404:
                return None
            raise self._not_let_in(error, "Check user and password, and the right to read.") from error
        if not fits(answer.get("references") or [], _REFERENCES):
            raise self._unreachable(STRANGE)
        references = tuple(
            Reference(one["name"], one["subject"], one["version"]) for one in answer.get("references") or []
        )
        return Schema(answer["schema"], str(answer.get("schemaType") or "AVRO"), references)

    def subjects(self) -> list[str]:
        return list(self._ask("GET", "/subjects", [str]))

    def _looked_up(self, subject: str, schema: Schema, table: str) -> int | None:
        try:
            return self._id(f"/subjects/{_quoted(subject)}", schema)
        except _Answered as error:
            if error.status == 404:
                return None
            raise self._refused(subject, error, table) from error

    def _registered(self, subject: str, schema: Schema, table: str) -> int:
        if not self._settings.register:
            raise SchemaRefused(
                f"The schema of {table or subject} is not registered under the subject `{subject}`.",
                hint="Register it, or let Penstock do it (`register`).", table=table, subject=subject,
            )  # fmt: skip
        if self._settings.compatibility:
            self._require_compatible(subject, schema, table)
        try:
            return self._id(f"/subjects/{_quoted(subject)}/versions", schema)
        except _Answered as error:
            raise self._refused(subject, error, table) from error

    def _id(self, path: str, schema: Schema) -> int:
        found: int = self._ask("POST", path, {"id": int}, schema.body())["id"]
        if not 0 <= found <= _ID_MAX:
            raise self._unreachable(STRANGE)
        return found

    def _require_compatible(self, subject: str, schema: Schema, table: str) -> None:
        place = f"/compatibility/subjects/{_quoted(subject)}/versions/latest?verbose=true"
        try:
            answer = self._ask("POST", place, {"is_compatible": bool}, schema.body())
        except _Answered as error:
            if error.status == 404:  # the subject has no version yet
                return
            raise self._refused(subject, error, table) from error
        if not answer["is_compatible"]:
            reasons = "; ".join(
                map(str, messages if isinstance(messages := answer.get("messages"), list) else [])
            )
            raise _incompatible(subject, reasons, table)

    def _refused(self, subject: str, error: _Answered, table: str) -> Exception:
        if error.status == 409:
            return _incompatible(subject, error.reason, table)
        if error.status in (401, 403):
            hint = f"Check user and password, and the rights to read and write the subject `{subject}`."
            return self._not_let_in(error, hint)
        return SchemaRefused(
            f"The schema registry refuses the schema of {table or subject} for the subject `{subject}` "
            f"(HTTP {error.status}): {error.reason}.",
            hint="Check that the registry supports this type of schema, and the options of the format.",
            table=table, subject=subject,
        )  # fmt: skip

    def _not_let_in(self, error: _Answered, hint: str) -> TargetRefused:
        return TargetRefused(
            f"The schema registry {self._settings.url} refuses the user "
            f"`{self._settings.user}` (HTTP {error.status}): {error.reason}.",
            hint=hint,
        )

    def _ask(self, method: str, path: str, shape: Any, body: Mapping[str, Any] | None = None) -> Any:
        """Sends a request, and returns the answer, which has this shape (`answers.fits`). Raises `_Answered`
        if it is an error."""
        backoff = Backoff(_RETRIES)
        while True:
            try:
                return self._ask_once(method, path, shape, body)
            except RegistryUnreachable:
                backoff.failed()
                if backoff.failures >= self._settings.attempts:
                    raise
                backoff.wait()

    def _ask_once(self, method: str, path: str, shape: Any, body: Mapping[str, Any] | None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {} if data is None else {"Content-Type": _CONTENT}
        try:
            answer = self._connection.request(method, path, data, headers, bytes_max=_ANSWER_BYTES_MAX)
            if answer.done:
                return answer.json(shape)
            if is_outage(answer.status):
                raise NoAnswer(f"HTTP {answer.status}: {_reason(answer)}")
            if answer.status not in (401, 403):
                code = answer.json({"error_code": int})["error_code"]
                if answer.status == 404 and code // 100 != 404:  # it has no such page: this is no registry
                    raise NoAnswer(f"HTTP 404: {_reason(answer)}")
        except NoAnswer as error:
            raise self._unreachable(str(error)) from None
        raise _Answered(answer.status, _reason(answer))

    def _unreachable(self, reason: str) -> RegistryUnreachable:
        return RegistryUnreachable(
            f"The schema registry {self._settings.url} cannot be used: {reason}.",
            hint="Check its address, and whether it runs.",
        )


class _Answered(Exception):
    """The registry's answer is an error."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason


def _reason(answer: Answer) -> str:
    """Why the registry refuses something. What is not its own, such as a page of HTML, is not shown."""
    try:
        text = str(answer.json({"message": str})["message"])
    except NoAnswer:
        text = ""
    return text[:_REASON_CHARACTERS_MAX].rstrip(".") or "no reason given"


def _incompatible(subject: str, reasons: str, table: str) -> SchemaRefused:
    why = f": {reasons.rstrip('.')[:_REASON_CHARACTERS_MAX]}" if reasons else ""
    return SchemaRefused(
        f"The new schema of {table or subject} is not compatible with the newest version of the subject "
        f"`{subject}`{why}.",
        hint="Change the compatibility of the subject at the registry, or let the consumers go on and write "
        "to another topic; then unpark the table.",
        table=table, subject=subject,
    )  # fmt: skip


def _tls(settings: RegistrySettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ca_file or None)
        if settings.certificate_file:
            context.load_cert_chain(settings.certificate_file, settings.key_file or None)
    except (OSError, ssl.SSLError) as error:
        names = ", ".join(filter(None, (settings.ca_file, settings.certificate_file, settings.key_file)))
        raise ConfigError(
            f"The certificates for the schema registry cannot be read: {error} ({names}).",
            hint="They have to be PEM files that this account can read.",
        ) from error
    return context


def _quoted(subject: str) -> str:
    return urllib.parse.quote(subject, safe="")


def subject_of(strategy: Strategy, *, topic: str, record: str, is_key: bool) -> str:
    """The subject of a schema, as Confluent's strategies name it."""
    match strategy:
        case "topic":
            return f"{topic}-{'key' if is_key else 'value'}"
        case "record":
            return record
        case "topic-record":
            return f"{topic}-{record}"


class SchemaIds:
    """Gives the core the ids of schemas: `schema_ids` of `LogEncoder` and `RowEncoder`. `topic_of`: the topic
    of a table's messages; of None: that of the messages about transactions."""

    def __init__(
        self, registry: Registry, topic_of: Callable[[TableId | None], str], strategy: Strategy = "topic"
    ) -> None:
        self._registry = registry
        self._topic_of = topic_of
        self._strategy = strategy

    def __call__(self, wanted: Mapping[str, Any]) -> int:
        table = None if wanted["table"] is None else TableId(*wanted["table"])
        topic = self._topic_of(table)
        subject = subject_of(self._strategy, topic=topic, record=wanted["name"], is_key=wanted["is_key"])
        schema = Schema(wanted["schema"], wanted["type"])
        return self._registry.schema_id(subject, schema, table="" if table is None else str(table))
