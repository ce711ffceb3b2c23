"""Signals from a topic of Kafka, as Debezium takes them: the key is the pipeline's name, the value a JSON
object `{"id", "type", "data"}`. The topic has one partition."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import Any

from penstock.config import SignalTopicConfig
from penstock.errors import ConfigError, PenstockError, TransientError
from penstock.model.signal import Signal
from penstock.signals.acceptance import InvalidInput, accept
from penstock.signals.commands import parse_data
from penstock.state import StateStore

log = logging.getLogger(__name__)

MESSAGES_MAX = 1000
"""Messages that are taken per poll. The next one comes soon."""
SAID_AGAIN_S = 60.0
"""How often the log says that brokers still do not answer."""
START_WAIT_S = 10.0
"""How long the first start of a pipeline waits for the end of the topic. Later starts do not need it."""


class TopicChannel:
    """`channels.Channel`. At its first start it begins at the end of the topic; from then on no signal is
    lost and none is accepted twice, because the position is stored with the signals."""

    name = "kafka"
    offset = None

    def __init__(self, config: SignalTopicConfig, pipeline: str, state: StateStore) -> None:
        """Raises `ConfigError` if the client's package is missing, or if the end of the topic is needed and
        cannot be read."""
        try:
            import confluent_kafka
        except ImportError as error:
            raise ConfigError(
                f"`signals.kafka` needs a package that is missing: {error.name}.",
                hint="pip install 'penstock[kafka]'",
            ) from error
        self._library: Any = confluent_kafka
        self._config = config
        self._topic, self._key, self._state = config.topic, pipeline.encode(), state
        self._meta = f"signals of topic {config.topic}"
        self._failure: Any = None
        self._trouble, self._said = "", 0.0
        self._settings = self._client_settings()
        self._consumer = self._connected()
        if state.meta(self._meta) is None:
            state.set_meta(self._meta, str(self._end()))
        self._assign()

    def _client_settings(self) -> dict[str, str]:
        return {name: secret.reveal() for name, secret in self._config.client.items()}

    def _connected(self) -> Any:
        own: dict[str, Any] = {
            "bootstrap.servers": self._config.bootstrap,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",  # messages that are gone are no reason to stop
            "isolation.level": "read_committed",
            "allow.auto.create.topics": False,
            "log_level": 2,
            "error_cb": self._failed,
        }
        try:
            return self._library.Consumer({"group.id": "penstock-signals", **self._settings, **own})
        except (self._library.KafkaException, ValueError, TypeError) as error:
            raise ConfigError(
                f"Kafka's client refuses its settings: {error}.", hint="See `signals.kafka.client`."
            ) from error

    def _failed(self, error: Any) -> None:
        """Called by the client, while it is polled, for errors that belong to no message."""
        self._failure = error

    def _end(self) -> int:
        partition = self._library.TopicPartition(self._topic, 0)
        try:
            found = self._consumer.list_topics(self._topic, timeout=START_WAIT_S).topics.get(self._topic)
            if found is None or found.error is not None:
                why = "the broker does not list it" if found is None else found.error.str()
                raise ConfigError(f"The topic of `signals.kafka` cannot be read: {why}.")
            if len(found.partitions) != 1:
                raise ConfigError(
                    f"The topic {self._topic} of `signals.kafka` has {len(found.partitions)} partitions.",
                    hint="Signals have an order, so their topic needs exactly one partition.",
                )
            _, end = self._consumer.get_watermark_offsets(partition, timeout=START_WAIT_S)
        except self._library.KafkaException as error:
            raise ConfigError(
                f"The topic of `signals.kafka` cannot be read ({self._config.bootstrap}): "
                f"{error.args[0].str()}."
            ) from error
        return int(end)

    def _assign(self) -> None:
        at = int(self._state.meta(self._meta) or 0)
        self._consumer.assign([self._library.TopicPartition(self._topic, 0, at)])

    def poll(self) -> None:
        """Takes what has come. Never waits: the client fetches in threads of its own."""
        messages = self._consumer.consume(MESSAGES_MAX, timeout=0)
        taken = [one for one in messages if one.error() is None]
        failures = [one.error() for one in messages if one.error() is not None]
        if self._failure is not None:
            failures.append(self._failure)
            self._failure = None
        if failures:
            self._warn(failures[-1])
            self._log_in_again()
        if not taken:
            return
        self._trouble = ""
        invalid = InvalidInput(f"the topic {self._topic}")
        try:
            with self._state.transaction():
                for message in taken:
                    if message.key() == self._key:
                        self._accept(message, invalid)
                self._state.set_meta(self._meta, str(taken[-1].offset() + 1))
        except BaseException:
            self._assign()  # nothing of them was stored, so they are read again
            raise
        invalid.end()

    def _warn(self, error: Any) -> None:
        trouble, now = error.str(), time.monotonic()
        if error.code() == self._library.KafkaError._ALL_BROKERS_DOWN:
            trouble = "no broker answers"
        if trouble != self._trouble or now > self._said + SAID_AGAIN_S:
            where = self._config.bootstrap
            log.warning("signals of the topic %s cannot be read now (%s): %s", self._topic, where, trouble)
            self._trouble, self._said = trouble, now

    def _log_in_again(self) -> None:
        """Takes over passwords that were changed: a client of librdkafka keeps those that it was made
        with."""
        with contextlib.suppress(TransientError):  # it is tried at the next failure
            settings = self._client_settings()
            if settings == self._settings:
                return
            self._settings = settings
            self._consumer.close()
            self._consumer = self._connected()
            self._assign()

    def _accept(self, message: Any, invalid: InvalidInput) -> None:
        place = f"the message at offset {message.offset()}"
        try:
            fields = parse_data((message.value() or b"").decode("utf-8"))
            # Debezium's signals may do without an id. This one is the same each time the message is read.
            known_as = fields.get("id", f"{self._topic}-{message.offset()}")
            data = fields.get("data", {})
            accept(self._state, known_as, fields.get("type"), data, self.name, limited=False)
        except PenstockError as error:
            invalid.warn(place, str(error))
        except UnicodeDecodeError:
            invalid.warn(place, "It is not UTF-8.")

    def answered(self, signal: Signal) -> None:
        """Does nothing: answers are shown by `penstock signals`."""
