"""The receiver reads the server's log over one replication connection, and appends it to the relay log.

`Receiver.run` works until it is stopped or cannot continue. It is a loop of sessions, one for each
connection. A session cuts the log to its last committed transaction end, and asks for what comes behind it.
The server keeps its log from the confirmed position on, and this is only ever a position that the relay log
has durably. So nothing is lost and nothing is stored twice, even if the last session ended by `kill -9`.

Idle servers, and those whose transactions concern no published table, send the end of what they have looked
at. It is confirmed too, so that they do not keep their log for us.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import psycopg

from penstock._core import DecodeError, Framer, PgBatch, PgStreams, PgTranslator, XidSet
from penstock.config import PipelineConfig
from penstock.errors import RelayLogCorrupt, TransientError
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment_format import PGOUTPUT, lsn_position
from penstock.sources.postgresql import adoption, slots
from penstock.sources.postgresql.catalog import read_tables
from penstock.sources.postgresql.connection import connect, explained
from penstock.sources.postgresql.followed_tables import FollowedTables, Look
from penstock.sources.postgresql.log_position import Moment, moment, server_name
from penstock.sources.postgresql.options import PostgreSqlOptions, options_of, publication_of, slot_of
from penstock.sources.postgresql.replication import Replication
from penstock.sources.postgresql.resent import Resent
from penstock.sources.postgresql.slot_watch import SlotWatch
from penstock.sources.sessions import SessionReceiver
from penstock.sources.stop_signals import Stopping, ensure_end

log = logging.getLogger(__name__)

TAKE_BYTES = 4 << 20
"""Bytes of messages that are translated at once."""
WAIT_S = 0.1
"""Longest wait for a message. A request to stop is noticed after it."""
FLUSH_PAUSE_S = 0.002
"""Pause between two flushes. Each costs two fsyncs and an index line."""
IDLE_S = 1.0
"""How often an idle log is noted. Each time adds a line to the index."""
LOOK_S = 10.0
"""How often the catalog is compared with what the log has said of tables."""
LOOK_SHARE = 100
"""That takes at most so small a part of the time: a hundredth, with very many tables."""
CONFIRM_S = 5.0
"""The server is told at least so often how far the log is durable, or it ends the connection."""
STREAMED_FOLDER = "streamed"
"""In the relay log's folder: transactions that run, as far as the server has sent them."""

_SERVER_FAILED = "XX"
"""The class of the SQLSTATE of errors that are the server's own."""
_DESCRIPTION = ord("R")
"""The kind of a message that describes a table."""


def receive(config: PipelineConfig, stopping: Stopping) -> None:
    """Writes the relay log until it is asked to stop. Raises errors that it cannot retry."""
    ensure_end(stopping)
    source = options_of(config)
    log.info("receiving %s of %s into %s", source.database, source.address, config.relay_log_path)
    Receiver(config, source, stopping).run()


@dataclass
class _Session:
    """One replication connection and its state. Positions are those of the server's log."""

    stream: Replication
    database: psycopg.Connection[Any]
    translator: PgTranslator
    framer: Framer
    binary: bool
    reached: int
    """The end of what was put into the log."""
    resent: Resent | None = None
    """While the server may still send what the log has."""
    sent: int = 0
    """Up to where the server says that it has sent everything."""
    flushing: int = 0
    """What will be durable when the writer is idle."""
    confirmed: int = 0
    told: float = field(default_factory=time.monotonic)
    """When the server was last told so."""
    noted: float = field(default_factory=time.monotonic)
    flushed: float = 0.0
    dirty: bool = False
    look: Look | None = None
    """What the catalog had. It is said when the log has reached it."""
    look_at: float = 0.0
    """When to look again."""
    ended: Moment | None = None
    """What had ended at a moment that the log has not reached yet: also transactions that are not in it."""
    asked: float = 0.0
    asked_at: int = 0


class Receiver(SessionReceiver):
    """Writes the relay log of one pipeline. `run` raises the error that ends it."""

    segment_format = PGOUTPUT

    def __init__(self, config: PipelineConfig, source: PostgreSqlOptions, stopping: Stopping) -> None:
        super().__init__(
            config, stopping, reconnect_max_ms=source.reconnect_max, address=_address(source.addresses[0])
        )
        self.source = source
        self.slot, self.publication = slot_of(config), publication_of(config)
        self.tables = FollowedTables(self.folder, self.publication)
        self.slot_watch = SlotWatch(self.slot)
        self.streams = PgStreams(self.folder / STREAMED_FOLDER)
        self._streaming = source.streaming
        """Of the next session."""
        self._binary = True

    def _trouble(self, error: Exception, *, progressed: bool) -> TransientError:
        if isinstance(error, DecodeError):
            raise RelayLogCorrupt(
                f"What {self.source.address} sends cannot be read at {lsn_position(error.offset)}: "
                f"{error.reason}.",
                offset=error.offset,
            ) from error
        return super()._trouble(error, progressed=progressed)

    def _session(self) -> None:
        self.streams.clear()  # of a receiver that was killed
        try:
            with closing(Replication(self.source)) as stream:
                followed = self.source.at(stream.address)  # both connections are to the same server
                with explained(followed), connect(followed) as database:
                    session = self._begin(stream, database)
                    self.status.facts["source"] = _address(stream.address)
                    self.status.enter("streaming")
                    self._stream(session)
        except TransientError as error:
            # Some changes of catalogs that a subtransaction has taken back can be decoded only behind the
            # commit: the server fails at each attempt to send the transaction while it runs.
            failed = self._streaming and str(error.details.get("state")).startswith(_SERVER_FAILED)
            self._streaming = self.source.streaming and not failed
            raise
        finally:
            _, self._unfinished = self.streams.kept
            self._bytes += self._unfinished
            self.streams.clear()

    def _begin(self, stream: Replication, database: psycopg.Connection[Any]) -> _Session:
        """Continues the log where it ends, or begins it."""
        system = stream.identify()
        self._connected_once = True
        relay = RelayLog.open(self.place) if RelayLog.exists(self.folder) else None
        if relay is not None and not relay.segments():
            relay = None  # it was killed before it had written anything
        slots.check_publication(database, self.source, self.publication)
        resent: Resent | None = None
        if relay is None:
            start, executed = slots.begin(
                stream, database, self.source, self.slot, self.tables, stopping=lambda: bool(self.stopping)
            )
            self._create({"type": self.source.type, "server_uuid": system.id}, {"at": "latest"})
        else:
            (start,) = relay.position_at(relay.end).order
            executed = str(relay.executed_at(relay.end))
            adopted = adoption.start_of(self.folder, relay, system.id)
            if adopted is None:
                slots.check_continues(stream, system, relay.source_uuid, start)
            else:
                start = adopted
            confirmed = slots.check_kept(database, self.slot, start)
            resent = Resent(relay, start, confirmed)
            self.tables.load()
        now = moment(database)
        translator = PgTranslator(start, now.next)
        framer = Framer(
            offset=self.writer.end,
            segment_size=self.config.relay_log.segment_size,
            span_size=self.config.relay_log.span_size,
            server_uuid=server_name(system.id, system.timeline),
            executed=executed,
            position=start,
            spool=str(self.writer.spool.folder),
            generation=self.writer.lease.generation,
            segment_format=PGOUTPUT,
        )
        binary = self._binary and self._reads_binary(database)
        first = start if resent is None else resent.start
        stream.start(self.slot, self.publication, first, binary=binary, streaming=self._streaming)
        session = _Session(stream, database, translator, framer, binary, start, resent)
        session.look = self.tables.look(database)
        self._put(session, translator.moved(start))
        self._commit(session)
        self.writer.wait()
        return session

    def _reads_binary(self, database: psycopg.Connection[Any]) -> bool:
        """Whether the binary form of all columns is known. If not, all values are sent as text."""
        tables = read_tables(database, self.publication)
        return all(column.reads_binary for one in tables for column in one.columns if one.published)

    # streaming ----------------------------------------------------------------------------------------------

    def _stream(self, session: _Session) -> None:
        while not (self.stopping or self.stopping.reconnect):
            batch = session.stream.take(FLUSH_PAUSE_S if session.dirty else WAIT_S, TAKE_BYTES)
            self._take(session, batch)
            self._flush(session)
            self._confirm(session, asked=batch.asked)
            self.stopping.drain()
            self._each_second(session)
        self.writer.wait()
        self._confirm(session, asked=True)
        self._report(session)

    def _each_second(self, session: _Session) -> None:
        if self.status.is_outdated:
            self._report(session)
            self.writer.check_space()
            self.upkeep.each_second()

    def _take(self, session: _Session, batch: PgBatch) -> None:
        translator = session.translator
        self.streams.feed(batch)
        while (part := self.writer.guarded(self.streams.next)) is not None:
            self._take_part(session, part)
            if part is batch:  # nothing of it is of a transaction that runs
                break
            self._flush(session)
            self._confirm(session, asked=False)  # a large transaction that has committed takes long
            self._each_second(session)
            if self.stopping:
                return
        else:
            self._take_part(session, batch.chosen(()))  # how far the server has sent its log
        session.sent = max(session.sent, batch.end)
        quiet = translator.is_idle and session.sent > session.reached
        if quiet and (batch.asked or time.monotonic() - session.noted > IDLE_S):
            self._put(session, translator.moved(session.sent))
            session.reached, session.noted = session.sent, time.monotonic()
        if translator.is_idle:
            self._between_transactions(session)

    def _take_part(self, session: _Session, batch: PgBatch) -> None:
        """Takes messages that follow those before, in the order of commits."""
        translator = session.translator
        if session.resent is not None:
            batch = batch.chosen(session.resent.new(batch.messages, batch.end))
            session.resent = None if session.resent.done else session.resent
        if batch:
            if unknown := translator.unknown(batch):
                with self.tables.read_ahead(session.database, unknown):
                    for part in _of_one_definition(batch):
                        self._define(session, translator.unknown(part))
                        self._translate(session, part)
            else:
                self._translate(session, batch)
            session.reached = max(session.reached, translator.end_lsn)

    def _translate(self, session: _Session, batch: PgBatch) -> None:
        records = session.translator.translate(batch)
        self._bytes += len(records)
        self._put(session, records)

    def _define(self, session: _Session, unknown: list[tuple[int, str, str, bytes]]) -> None:
        for message, one in self.tables.described(session.database, unknown):
            if session.binary and one.text_only:
                self._binary = False
                raise TransientError(
                    f"The binary form of column {one.text_only[0]} is not known. From now on the log is sent "
                    "as text."
                )
            session.translator.describe(message, one.definition, one.said, one.root)

    def _between_transactions(self, session: _Session) -> None:
        """Says what the catalog had, once the log has reached it."""
        look, now = session.look, time.monotonic()
        if look is not None and session.reached >= look.end:
            if self.tables.awaits_session(look):
                self._commit(session)
                session.dirty = False
                self.writer.wait()
                self._confirm(session, asked=True)
                raise TransientError(
                    "Tables have become partitions, or are none any more. Before version 15, the server only "
                    "sends their rows as those of the right table over a new connection."
                )
            session.look = None
            if said := self.tables.reached(look):
                texts = [(schema, json.dumps(one)) for schema, one in said]
                self._put(session, session.translator.say(texts, time.time_ns() // 1000))
            if moved := self.tables.moved():
                self._define(session, session.translator.described(moved))
        if look is None and now >= session.look_at:
            session.look = self.tables.look(session.database)
            self.status.facts["slot"] = self.slot_watch.look(session.database)
            took = time.monotonic() - now
            session.look_at = now + max(LOOK_S, LOOK_SHARE * took)
        ended = session.ended
        if ended is not None and session.reached >= ended.end:
            session.ended = None
            known = XidSet(session.framer.executed)
            if len(str(known.union(ended.seen))) < len(session.framer.executed):
                self._put(session, session.translator.executed(str(ended.seen)))
        elif ended is None and session.reached != session.asked_at and now - session.asked > IDLE_S:
            session.ended, session.asked, session.asked_at = moment(session.database), now, session.reached

    def _put(self, session: _Session, records: bytes) -> None:
        if records:
            self.writer.put(session.framer.feed(records))
            session.dirty = True

    def _flush(self, session: _Session) -> None:
        now = time.monotonic()
        ready = self.writer.ready_to_flush  # raises the error of the last flush
        if not (session.dirty and ready and session.translator.is_whole):
            return
        if now - session.flushed >= FLUSH_PAUSE_S:
            self._commit(session)
            session.flushed, session.dirty = now, False
            if self.writer.segment_is_full:
                session.framer.roll()

    def _commit(self, session: _Session) -> None:
        self.writer.flush(session.framer.cut(), spools=session.framer.spool_files)
        session.flushing = session.reached

    def _confirm(self, session: _Session, *, asked: bool) -> None:
        """Tells the server what is durable here."""
        if session.translator.is_settled and not session.dirty and self.writer.ready_to_flush:
            self.tables.store()
        durable = session.flushing if self.writer.ready_to_flush else session.confirmed
        now = time.monotonic()
        if durable > session.confirmed or asked or now - session.told > CONFIRM_S:
            session.stream.confirm(durable)
            session.confirmed, session.told = durable, now

    def _report(self, session: _Session) -> None:
        framer = session.framer
        _, position = framer.source
        transactions, kept = self.streams.kept
        self.status.facts |= {
            "offset": framer.committed,
            "position": {"file": "", "position": position},
            "executed": framer.executed,
            "last_commit_us": framer.last_commit_us or self.status.facts.get("last_commit_us"),
            "bytes": self._bytes,
            "transactions": framer.transactions,
            "events": framer.events,
            "streamed": {"transactions": transactions, "bytes": kept},
            **self.upkeep.report(),
        }
        self.status.write()


def _address(text: str) -> dict[str, Any]:
    host, _, port = text.rpartition(":")
    return {"host": host, "port": int(port)}


def _of_one_definition(batch: PgBatch) -> Iterator[PgBatch]:
    """Parts of a batch, so that what describes a table stands at the beginning of one: the rows before it
    are of an earlier definition."""
    start = 0
    for number, kind in enumerate(batch.kinds):
        if kind == _DESCRIPTION and number > start:
            yield batch.chosen(range(start, number))
            start = number
    yield batch.chosen(range(start, len(batch))) if start else batch
