"""The receiver turns messages of Debezium's topics into a log, and appends it to the relay log.

`Receiver.run` works until it is stopped or cannot continue. It is a loop of sessions, one for each consumer.
A session first cuts the log to its last committed transaction end. The log itself says which messages it has,
partition by partition, and what is known of their tables (`_core.topic_records`). So the consumer asks for
exactly the messages that the log does not have, and nothing outside of the log can disagree with it: nothing
is lost and nothing is stored twice, even if the last session ended by `kill -9`. No offsets are committed to
Kafka.

`_core.TopicTranslator` does all work that is needed for each message.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock._core import DecodeError, Framer, TopicTranslator, topic_records
from penstock.config import PipelineConfig
from penstock.disk.replace import replace_file
from penstock.errors import (
    LogDiverged,
    RelayLogCorrupt,
    SourceError,
    TransientError,
)
from penstock.model.offset import Offset
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment import DAMAGED_HINT
from penstock.relaylog.segment_format import ROWS, set_of
from penstock.sources.debezium import positions
from penstock.sources.debezium.connection import Batch, Place, Topics
from penstock.sources.debezium.options import DebeziumOptions, options_of
from penstock.sources.debezium.topic_schemas import TopicSchemas
from penstock.sources.sessions import SessionReceiver
from penstock.sources.stop_signals import Stopping, ensure_end

log = logging.getLogger(__name__)

IDS_FILE = "topics.json"
"""File in the log's folder with the ids of its topics."""
LOOK_S = 0.2
"""How often the ends of partitions are asked for while messages come."""
IDLE_LOOK_S = 1.0
"""Seconds between two looks while no messages come. Each look adds a line to the index."""
FIND_S = 5.0
"""How often new topics and partitions are looked for."""
WAIT_S = 0.1
"""Longest wait for a message. A request to stop is noticed after it."""
FLUSH_PAUSE_S = 0.002
"""Pause between two flushes. Each costs two fsyncs and an index line."""
STALLED_S = 60.0
"""A client that gets nothing for so long, though a partition has more, gives way to a new one."""
SKIPPED_LOGGED_MAX = 100
"""Skipped messages that are logged one by one. Then only the status counts them."""
ON_ERROR_HINT = (
    "Correct what writes the topic. With `source.on_error: skip`, the pipeline goes on without this message, "
    "whose change is lost."
)


def receive(config: PipelineConfig, stopping: Stopping) -> None:
    """Writes the relay log until it is asked to stop. Raises errors that it cannot retry."""
    ensure_end(stopping)
    source = options_of(config)
    log.info(
        "receiving %s from %s into %s", ", ".join(source.topics), source.bootstrap, config.relay_log_path
    )
    Receiver(config, source, stopping).run()


@dataclass
class _Session:
    """One consumer and its state."""

    topics: Topics
    translator: TopicTranslator
    framer: Framer
    reached: dict[Place, int]
    """The offset after the last message that was read, of each partition."""
    time_us: int
    """The last time at which the log had everything."""
    held: list[tuple[dict[Place, int], dict[Place, int]]] = field(default_factory=list)
    """New partitions of topics that have others, with where they begin; and how far these must be read
    first."""
    wanted: tuple[int, dict[Place, int]] | None = None
    """A time, and the ends that partitions had then."""
    looked: float = 0.0
    heard: float = field(default_factory=time.monotonic)
    """When something last came from the brokers."""
    found: float = field(default_factory=time.monotonic)
    flushed: float = 0.0
    dirty: bool = False
    came: bool = False
    """Whether messages have come since the last look."""


class Receiver(SessionReceiver):
    """Writes the relay log of one pipeline. `run` raises the error that ends it."""

    segment_format = ROWS

    def __init__(self, config: PipelineConfig, source: DebeziumOptions, stopping: Stopping) -> None:
        address = {"bootstrap": source.bootstrap}
        super().__init__(config, stopping, reconnect_max_ms=source.reconnect_max, address=address)
        self.source = source
        self._schemas = TopicSchemas(source.registry) if source.registry is not None else None
        self._skipped = 0

    def _trouble(self, error: Exception, *, progressed: bool) -> TransientError:
        if isinstance(error, DecodeError):
            raise RelayLogCorrupt(
                f"The file {error.path} of the relay log is damaged at offset {error.offset}: "
                f"{error.reason}.",
                hint=DAMAGED_HINT, path=error.path, offset=error.offset,
            ) from error  # fmt: skip
        return super()._trouble(error, progressed=progressed)

    def _session(self) -> None:
        topics = Topics(self.source)
        try:
            cluster, found = topics.find()
            self._connected_once = True
            session = self._begin(topics, cluster, found)
            self.status.enter("streaming")
            self._stream(session)
        finally:
            topics.close()

    def _begin(self, topics: Topics, cluster: str, found: dict[str, int]) -> _Session:
        """Continues the log where it ends, or begins it."""
        relay = RelayLog.open(self.place) if RelayLog.exists(self.folder) else None
        if relay is not None and not relay.segments():
            relay = None  # it was killed before it had written anything
        if relay is not None and relay.source_uuid != cluster:
            raise LogDiverged(
                f"The brokers are of the cluster {cluster}, and the relay log follows {relay.source_uuid}. "
                "Offsets are different in each cluster.",
                hint="Begin again with a new `state`, or correct `source.bootstrap`.",
                server_uuid=cluster,
            )
        translator = self._translator(relay)
        places = _places(found)
        known = {(topic, number): at for topic, number, _, at in translator.positions}
        bounds = topics.bounds(places)
        starts = positions.starts(known, bounds)
        new = {place: at for place, at in starts.items() if place not in known}
        later = positions.held_back(new, known)
        self._note_topics(translator, found, known)
        self._create({"type": self.source.type, "server_uuid": cluster}, {"at": self.source.start})
        self._check_ids(topics, found, (topic for (topic, _), at in known.items() if at))
        framer = self._framer(relay, translator, cluster)
        last_us = relay.position_at(relay.end).order[-1] if relay is not None else 0
        session = _Session(topics, translator, framer, _without(starts, later), last_us)
        self._hold(session, later, {place: one.next for place, one in bounds.items() if place in known})
        self._put(session, translator.moved(last_us))
        if relay is None and self.source.start == "latest":
            for place in places:
                session.reached[place] = starts[place] = bounds[place].next
        for place, at in session.reached.items():  # so that partitions without messages are known, too
            self._put(session, translator.advance(*place, at, _now_ms()))
        self._put(session, translator.checkpoint(_now_ms()))
        self._commit(session)
        self.writer.wait()
        topics.assign(_without(starts, later))
        return session

    def _note_topics(
        self, translator: TopicTranslator, found: dict[str, int], known: dict[Place, int]
    ) -> None:
        for name, partitions in found.items():
            if partitions > 1:
                translator.set_wide(name)
        for place in known.keys() - set(_places(found)):
            log.warning("%s[%d] does not exist any more; its table stays as it is", *place)
        if not found:
            log.warning("no topic matches %s yet", ", ".join(self.source.topics))
        self.status.facts["topics"] = len(found)

    def _translator(self, relay: RelayLog | None) -> TopicTranslator:
        records = [] if relay is None else _records(relay)
        source = self.source
        translator = TopicTranslator(
            records,
            zoned_timestamps=source.zoned_timestamps,
            cuts_nanoseconds=source.nanoseconds == "microseconds",
            unavailable=source.unavailable_value,
            unavailable_uuid=source.unavailable_uuid,
            table=source.table,
            skips=source.on_error == "skip",
        )
        if relay is not None:
            listed = ",".join(f"{series}-{at}" for *_, series, at in translator.positions if at)
            executed = relay.executed_at(relay.end)
            if not set_of(relay.facts, listed).issubset(executed):
                raise RelayLogCorrupt(
                    f"The relay log {self.folder} does not have the messages that its records name.",
                    hint=DAMAGED_HINT, path=str(self.folder), offset=int(relay.end),
                )  # fmt: skip
        return translator

    def _framer(self, relay: RelayLog | None, translator: TopicTranslator, cluster: str) -> Framer:
        limits = self.config.relay_log
        known = relay.position_at(relay.end) if relay is not None else None
        return Framer(
            offset=self.writer.end,
            segment_size=limits.segment_size,
            span_size=limits.span_size,
            server_uuid=cluster,
            executed=str(relay.executed_at(relay.end)) if relay is not None else "",
            position=known.order[-1] if known is not None else 0,
            spool=str(self.writer.spool.folder),
            generation=self.writer.lease.generation,
            segment_format=ROWS,
        )

    # streaming ----------------------------------------------------------------------------------------------

    def _stream(self, session: _Session) -> None:
        while not (self.stopping or self.stopping.reconnect):
            batch = session.topics.take(FLUSH_PAUSE_S if session.dirty else WAIT_S)
            self._take(session, batch)
            self._release(session)
            self._look(session)
            self._flush(session)
            self.stopping.drain()
            if self.status.is_outdated:
                self._report(session)
                self.writer.check_space()
                self.upkeep.each_second()
            if time.monotonic() - session.found > FIND_S:
                self._find_more(session)
        self.writer.wait()
        self._commit(session)
        self.writer.wait()
        self._report(session)

    def _take(self, session: _Session, batch: Batch) -> None:
        translator = session.translator
        if batch.messages:
            self._learn_schemas(translator, batch)
            records, faults = translator.translate(batch.messages)
            self._bytes += len(records)
            self._put(session, records)
            for topic, partition, offset, reason in faults:
                self._refused(session, topic, partition, offset, reason)
            for topic, partition, offset, *_ in batch.messages:
                session.reached[(topic, partition)] = offset + 1
            session.came = True
        if batch.messages or batch.ends:
            session.heard = time.monotonic()
        for (topic, partition), end in batch.ends.items():
            # Behind the last message are the borders of transactions, or messages that were compacted.
            self._put(session, translator.advance(topic, partition, end, _now_ms()))
            session.reached[(topic, partition)] = max(end, session.reached[(topic, partition)])

    def _learn_schemas(self, translator: TopicTranslator, batch: Batch) -> None:
        if self._schemas is not None:
            for number in translator.unknown_schemas(batch.messages):
                self._schemas.teach(translator, number)

    def _refused(self, session: _Session, topic: str, partition: int, offset: int, reason: str) -> None:
        message = f"The message at offset {offset} of {topic}[{partition}] cannot be read: {reason}."
        if self.source.on_error == "stop":
            self._commit(session)
            self.writer.wait()
            raise SourceError(
                message, hint=ON_ERROR_HINT, topic=topic, partition=partition, message_offset=offset
            )
        self._skipped += 1
        if self._skipped <= SKIPPED_LOGGED_MAX:
            log.warning("%s It is skipped.", message)

    def _look(self, session: _Session) -> None:
        """Writes the time at which the log had everything: see `positions`."""
        if session.wanted is None:
            pause = LOOK_S if session.came else IDLE_LOOK_S
            if time.monotonic() - session.looked < pause:
                return
            at = positions.next_time_us(session.time_us)
            session.wanted = (at, session.topics.ends(session.reached))
            session.looked, session.came = time.monotonic(), False
        at, ends = session.wanted
        if _has_reached(session, ends):
            if session.held:
                return  # they may have more
            self._put(session, session.translator.moved(at))
            session.time_us, session.wanted, session.dirty = at, None, True
        elif time.monotonic() - max(session.heard, session.looked) > STALLED_S:
            (topic, partition), end = next(
                (place, end) for place, end in ends.items() if session.reached[place] < end
            )
            raise TransientError(
                f"No message came for {STALLED_S:g} s, though {topic}[{partition}] has more: up to offset "
                f"{end}, and {session.reached[topic, partition]} is reached. The client is started anew.",
                topic=topic, partition=partition,
            )  # fmt: skip

    def _find_more(self, session: _Session) -> None:
        """Begins to read new topics and partitions, from their first messages."""
        session.found = time.monotonic()
        _, found = session.topics.find()
        self._check_ids(session.topics, found, {topic for topic, _ in session.reached})
        waiting = {place for later, _ in session.held for place in later}
        new = [place for place in _places(found) if place not in session.reached and place not in waiting]
        if not new:
            return
        for name, partitions in found.items():
            if partitions > 1:
                session.translator.set_wide(name)
        starts = positions.starts({}, session.topics.bounds(new))
        later = positions.held_back(starts, session.reached)
        if later:
            self._hold(session, later, session.topics.ends(session.reached))
        self._begin_to_read(session, _without(starts, later))
        self.status.facts["topics"] = len(found)

    def _hold(self, session: _Session, later: dict[Place, int], ends: dict[Place, int]) -> None:
        if later:
            grown = {topic for topic, _ in later}
            log.warning(
                "%s has new partitions. Changes of one row may now be in two of them: what the others have "
                "is read first", ", ".join(sorted(grown)),
            )  # fmt: skip
            session.held.append((later, {place: end for place, end in ends.items() if place[0] in grown}))

    def _release(self, session: _Session) -> None:
        for later, ends in [one for one in session.held if _has_reached(session, one[1])]:
            session.held.remove((later, ends))
            self._begin_to_read(session, later)

    def _begin_to_read(self, session: _Session, starts: dict[Place, int]) -> None:
        if starts:
            session.topics.add(starts)
            session.reached |= starts
            session.wanted = None  # it has no ends of these

    def _check_ids(self, topics: Topics, found: dict[str, int], read: Iterable[str]) -> None:
        """Remembers the ids of topics, before they are read."""
        path, ids = self.folder / IDS_FILE, topics.ids(found)
        known: dict[str, str] = json.loads(path.read_bytes()) if path.exists() else {}
        positions.check_ids(known, ids, read)
        if known | ids != known:
            replace_file(path, json.dumps(known | ids, indent=1).encode(), durable=True)

    def _put(self, session: _Session, records: bytes) -> None:
        if not records:
            return
        pieces = session.framer.feed(records)
        rolled = any(isinstance(piece, tuple) and len(piece) == 3 for piece in pieces)
        self.writer.put(pieces)
        session.dirty = True
        if rolled and session.looked:
            # Each segment has the whole state, so that older ones may be deleted.
            self._put(session, session.translator.checkpoint(_now_ms()))
            self._commit(session)
            self.writer.wait()

    def _flush(self, session: _Session) -> None:
        now = time.monotonic()
        if not session.dirty or not self.writer.ready_to_flush or now - session.flushed < FLUSH_PAUSE_S:
            return
        self._commit(session)
        session.flushed, session.dirty = now, False
        if self.writer.segment_is_full:
            session.framer.roll()
            self._put(session, session.translator.checkpoint(_now_ms()))  # also if no message comes

    def _commit(self, session: _Session) -> None:
        self.writer.flush(session.framer.cut(), spools=session.framer.spool_files)

    def _report(self, session: _Session) -> None:
        framer = session.framer
        _, position = framer.source
        rows, empty, repeated, _ = session.translator.counts
        self.status.facts |= {
            "offset": framer.committed,
            "position": position,
            "executed": framer.executed,
            "last_commit_us": framer.last_commit_us or self.status.facts.get("last_commit_us"),
            "transactions": framer.transactions,
            "events": framer.events,
            "messages": {"rows": rows, "empty": empty, "repeated": repeated, "skipped": self._skipped},
            **self.upkeep.report(),
        }
        self.status.write()


def _without(places: dict[Place, int], others: dict[Place, int]) -> dict[Place, int]:
    return {place: at for place, at in places.items() if place not in others}


def _has_reached(session: _Session, ends: dict[Place, int]) -> bool:
    return all(session.reached[place] >= end for place, end in ends.items())


def _places(topics: dict[str, int]) -> list[Place]:
    return [(name, number) for name, partitions in topics.items() for number in range(partitions)]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _records(relay: RelayLog) -> list[str]:
    """What the log has about its messages and tables, from the last record of all of it on."""
    found: list[str] = []
    offset = relay.end
    while offset > relay.segments()[0].base:
        _, base = relay.segment_of(offset)
        file, _ = relay.segment_of(offset, start=base)
        found = topic_records(file, base, offset) + found
        if any(record.startswith('{"Whole"') for record in found):
            return found
        offset = Offset(base)
    raise RelayLogCorrupt(
        f"The relay log {relay.place} does not say which messages it has.",
        hint=DAMAGED_HINT, path=str(relay.place), offset=int(relay.end),
    )  # fmt: skip
