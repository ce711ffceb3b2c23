"""Writes notifications and heartbeats into topics of Kafka, while a pipeline runs.

**At least once, and always the same.** A message is stored before it is sent, with its id and its time, and
removed from the store after brokers have acknowledged it. So after a crash, or an outage of the brokers, the
same messages are sent again, and none is left out.

A thread of its own does this. The pipeline never waits for it, except for a moment at its end.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
import uuid
from typing import Any

from penstock.config import NotificationsConfig, PipelineConfig
from penstock.errors import ConfigError, TransientError
from penstock.model.table import TableState
from penstock.notifications.events import PartSeen, Progress, Seen, TableSeen, Told, changes
from penstock.relaylog.status import SILENT_SECONDS, age_seconds, read_status
from penstock.signals.settings import paused
from penstock.state import StateStore

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
"""Seconds between two checks for news, which is soon enough for people and schedulers."""
SEND_SECONDS = 10.0
"""How long one attempt waits for brokers."""
END_SECONDS = 3.0
"""How long the end of a run waits until all messages are sent. The next run sends the rest."""
_META = "notifications"


class Notifier:
    """Begins with `start`. `stop` sends the messages that are left, if brokers answer."""

    def __init__(self, config: PipelineConfig, wanted: NotificationsConfig, state: StateStore) -> None:
        """Raises `ConfigError` if the client's package is missing, or refuses its settings."""
        self._pipeline, self._wanted, self._state = config.name, wanted, state
        self._relay_log = config.relay_log_path
        self._heartbeat_topic = wanted.heartbeat_topic.replace("{name}", config.name)
        self._client = _Client(wanted)
        self._beaten = 0.0
        self._looked_at: tuple[Any, ...] = ()
        self._trouble = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="notifier", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(END_SECONDS)

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            self._work(SEND_SECONDS)
        self._work(END_SECONDS)

    def _work(self, seconds: float) -> None:
        try:
            self._tell(seconds)
            self._beat(seconds)
            self._trouble = ""
        except self._client.failures as error:
            trouble = error.args[0].str() if isinstance(error, self._client.library_error) else str(error)
            if trouble != self._trouble:
                log.warning("notifications cannot be sent for now (%s): %s", self._wanted.bootstrap, trouble)
            self._trouble = trouble
            self._client.connect_again()
        except Exception:
            if not self._stopping.is_set():  # the state may be closed by then
                log.exception("notifications are not sent any more")
            self._stopping.set()

    def _tell(self, seconds: float) -> None:
        at = (self._state.revision(), self._trouble)
        if self._wanted.topic is None or at == self._looked_at:
            return
        fields = json.loads(self._state.meta(_META) or "{}")
        if "unsent" not in fields:
            told = Told.from_json(fields["told"]) if fields else Told()
            found, after = changes(told, self._look(told), str(uuid.uuid4()))
            if not found and after == told:
                self._looked_at = at
                return
            now_ms = time.time_ns() // 1_000_000
            messages = [one.to_json(pipeline=self._pipeline, at_ms=now_ms) for one in found]
            fields = {"told": after.to_json(), "unsent": messages}
            if found:
                self._state.set_meta(_META, json.dumps(fields))
        key = self._pipeline.encode()
        values = [(key, json.dumps(one, ensure_ascii=False).encode()) for one in fields["unsent"]]
        self._client.send(self._wanted.topic, values, seconds)
        self._state.set_meta(_META, json.dumps({"told": fields["told"]}))

    def _look(self, told: Told) -> Seen:
        state = self._state
        with state.reading():
            tables = {str(name): self._table(one) for name, one in state.tables().items()}
            parts = {one.number: PartSeen(one.signal, str(one.table)) for one in state.partials()}
            for number, part in told.parts.items():
                if number not in parts:
                    parts[number] = self._ended(number, part)
            return Seen(tables, dict(sorted(parts.items())), bool(paused(state)))

    def _table(self, table: TableState) -> TableSeen:
        if table.parked is not None:
            return TableSeen("parked", int(table.start), reason=table.parked.reason)
        progress: Progress = "none"
        if table.snapshot in ("splitting", "reading"):
            progress = "reading"
        elif table.snapshot == "done":
            progress = "done"
        rows = self._state.rows_placed(table.table)[0] if progress == "done" else 0
        return TableSeen(progress, int(table.start), rows)

    def _ended(self, number: int, part: PartSeen) -> PartSeen:
        for one in self._state.partials(signal=part.signal):
            if one.number == number:
                return PartSeen(
                    part.signal, part.table, "done" if one.status == "done" else "stopped", one.rows
                )
        return PartSeen(part.signal, part.table, "stopped")

    def _beat(self, seconds: float) -> None:
        """A heartbeat says that the pipeline runs, and that its receiver hears the source."""
        every_s = self._wanted.heartbeat_interval / 1000
        if not every_s or time.monotonic() < self._beaten + every_s:
            return
        receiver = read_status(self._relay_log)
        if receiver.get("state") != "streaming" or age_seconds(receiver) > SILENT_SECONDS:
            return
        self._client.send(
            self._heartbeat_topic, [heartbeat(self._pipeline, time.time_ns() // 1_000_000)], seconds
        )
        self._beaten = time.monotonic()


def heartbeat(prefix: str, at_ms: int) -> tuple[bytes, bytes]:
    """Key and value of Debezium's message in the topic `__debezium-heartbeat.PREFIX`."""
    key, value = {"serverName": prefix}, {"ts_ms": at_ms}
    return json.dumps(key).encode(), json.dumps(value).encode()


class Undelivered(Exception):
    """Brokers have not acknowledged a message."""


class _Client:
    """A producer that is made when it is first needed."""

    def __init__(self, wanted: NotificationsConfig) -> None:
        try:
            import confluent_kafka
            import confluent_kafka.admin
        except ImportError as error:
            raise ConfigError(
                f"`notifications` needs a package that is missing: {error.name}.",
                hint="pip install 'penstock[kafka]'",
            ) from error
        self._library: Any = confluent_kafka
        self._wanted = wanted
        self._settings = self._client_settings()
        self._producer = self._connected()
        self._made: set[str] = set()
        self.library_error = confluent_kafka.KafkaException
        self.failures = (confluent_kafka.KafkaException, Undelivered, BufferError)

    def _client_settings(self) -> dict[str, Any]:
        return {
            **{name: secret.reveal() for name, secret in self._wanted.client.items()},
            "bootstrap.servers": self._wanted.bootstrap,
            "log_level": 2,
        }

    def _connected(self) -> Any:
        try:
            return self._library.Producer({
                **self._settings, "enable.idempotence": True, "linger.ms": 0,
                "message.timeout.ms": round(SEND_SECONDS * 1000),
            })  # fmt: skip
        except (self._library.KafkaException, ValueError, TypeError) as error:
            raise ConfigError(
                f"Kafka's client refuses its settings: {error}.", hint="See `notifications.client`."
            ) from error

    def connect_again(self) -> None:
        """Makes another producer. One that has lost messages may refuse more, and it keeps passwords that
        were changed."""
        self._producer.purge()
        with contextlib.suppress(TransientError):  # the password cannot be read now
            self._settings = self._client_settings()
        self._producer = self._connected()

    def send(self, topic: str, messages: list[tuple[bytes, bytes]], seconds: float) -> None:
        """Returns when brokers have acknowledged all of them."""
        self._make(topic, seconds)
        failed: list[str] = []

        def reported(error: Any, message: Any) -> None:
            if error is not None:
                failed.append(error.str())

        for key, value in messages:
            self._producer.produce(topic, key=key, value=value, on_delivery=reported)
        left = self._producer.flush(seconds)
        if left or failed:
            raise Undelivered(failed[0] if failed else f"no broker answers for {seconds:g} s")

    def _make(self, topic: str, seconds: float) -> None:
        """Creates the topic, with one partition, unless it exists. An account that may not create topics may
        still write to one."""
        if topic in self._made:
            return
        codes = self._library.KafkaError
        admin = self._library.admin.AdminClient(self._settings)
        wanted = self._library.admin.NewTopic(topic, 1)
        done = admin.create_topics([wanted], request_timeout=seconds)
        try:
            done[topic].result()
        except self._library.KafkaException as error:
            known = (codes.TOPIC_ALREADY_EXISTS, codes.TOPIC_AUTHORIZATION_FAILED,
                     codes.CLUSTER_AUTHORIZATION_FAILED)  # fmt: skip
            if error.args[0].code() not in known:
                raise
        self._made.add(topic)
