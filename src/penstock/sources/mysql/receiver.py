"""The receiver appends what one replication connection sends to the relay log.

`Receiver.run` works until it is stopped or cannot continue. It is a loop of sessions, one for each
connection. A session first cuts the log to its last committed transaction end (`RelayLogWriter.recover`).
Then it proves that the source is still the one that was followed (`start_position.plan`), and asks for
exactly what the log does not have. So nothing is lost and nothing is stored twice, even if the last session
ended by a lost connection, a full disk or `kill -9`.

`_core.Framer` does all work that is needed for each event. This module reads from the socket, gives the bytes
to the framer, and writes what it returns. Every `flush_interval`, one index entry commits what has arrived.
While a flush is running, the socket is still read.
"""

from __future__ import annotations

import logging
import socket
import time
import zlib
from dataclasses import dataclass
from typing import Any

import pymysql

from penstock._core import DecodeError, Framer
from penstock.config import PipelineConfig
from penstock.errors import (
    ConfigError,
    LogDiverged,
    LoginRefused,
    PenstockError,
    RelayLogCorrupt,
    SourceError,
    SourceUnreachable,
    TransientError,
)
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment_format import MYSQL_BINLOG
from penstock.sources.mysql import followed_host, server_errors, start_position
from penstock.sources.mysql.connection import Replication, connect, query, query_named
from penstock.sources.mysql.event_types import INCIDENT, event_says
from penstock.sources.mysql.faults import answers_of, explain
from penstock.sources.mysql.heartbeat import is_heartbeat
from penstock.sources.mysql.options import options_of
from penstock.sources.mysql.server_identity import Server, describe
from penstock.sources.mysql.start_position import ReceivedLog, Stream
from penstock.sources.sessions import SessionReceiver
from penstock.sources.stop_signals import Stopping

log = logging.getLogger(__name__)

FAILURES_MAX = 5
"""Consecutive sessions without a single event that end in malformed data or an unknown refusal. Then the
receiver gives up, because it would fail in the same way for ever."""
BEHIND_BYTES = 64 * 1024
"""More bytes than this between two flushes are a backlog. A source that is followed closely sends some
KiB."""
FLUSH_PAUSE_S = 0.002
"""Seconds between two flushes without a backlog. Each flush costs two fsyncs and an index line."""


@dataclass
class _Session:
    """One connection and its state."""

    server: Server
    stream: Stream
    replication: Replication
    framer: Framer
    heard: float = 0.0
    flushed: float = 0.0
    dirty: bool = False
    unflushed: int = 0
    """Bytes received since the last flush."""


class Receiver(SessionReceiver):
    """Writes the relay log of one pipeline file. `run` raises the error that ends it."""

    segment_format = MYSQL_BINLOG

    def __init__(self, config: PipelineConfig, stopping: Stopping) -> None:
        self._hosts = followed_host.candidates(options_of(config))
        self.source = followed_host.followed(options_of(config), config.relay_log_path)
        address = {"host": self.source.host, "port": self.source.port}
        super().__init__(config, stopping, reconnect_max_ms=self.source.reconnect_max, address=address)
        self._refused_since: float | None = None
        self._login_refused_since = ""
        self._by_position = False
        self._failures = 0
        """Sessions in a row that ended in something unknown, and had received nothing."""

    # sessions
    # --------------------------------------------------------------------------------------------------

    def _trouble(self, error: Exception, *, progressed: bool) -> TransientError:
        trouble = self._explained(error)
        known = progressed or isinstance(trouble, SourceUnreachable)
        self._failures = 0 if known else self._failures + 1
        if self._failures >= FAILURES_MAX and trouble.details.get("offset") is not None:
            raise self._given_up(trouble)
        return trouble

    def _explained(self, error: Exception) -> TransientError:
        if isinstance(error, (pymysql.Error, OSError)):
            trouble = explain(error, self.source)
            return trouble if isinstance(trouble, TransientError) else self._on_another_host(trouble)
        if isinstance(error, (SourceError, ConfigError)):
            return self._on_another_host(error)
        if isinstance(error, SourceUnreachable):
            if len(self._hosts) > 1:
                self._next_host()
            elif not self._connected_once and not RelayLog.exists(self.folder):
                raise ConfigError(error.message, hint=error.hint, **error.details) from error
            return self._refused_since_when(error) if isinstance(error, LoginRefused) else error
        if isinstance(error, TransientError):
            return error
        if isinstance(error, DecodeError):
            if error.path is not None:
                raise start_position.damaged(error) from error
            return TransientError(f"The source sent what cannot be read: {error}.", offset=error.offset)
        raise error

    def _refused_since_when(self, error: LoginRefused) -> LoginRefused:
        """The error with the time of the first refusal, which stays the same until we are let in."""
        since = self._login_refused_since = self._login_refused_since or time.strftime("%Y-%m-%d %H:%M:%S %z")
        message = f"{error.message} It refuses the login since {since}. The receiver tries again."
        return LoginRefused(message, hint=error.hint, **error.details)

    def _given_up(self, trouble: PenstockError) -> SourceError:
        if self._by_position:
            # A position depends on its file. If the source was reset, this is how it looks.
            return LogDiverged(
                f"The source's log cannot be read after the end of the relay log: {trouble.message}",
                hint=start_position.DIVERGED_HINT,
                **trouble.details,
            )
        return SourceError(trouble.message, hint="The same happened at each attempt.", **trouble.details)

    def _next_host(self) -> None:
        at = self._hosts.index(self.source)
        self.source = self._hosts[(at + 1) % len(self._hosts)]

    def _on_another_host(self, error: PenstockError) -> TransientError:
        """Handles a server that cannot continue the log. With several hosts, another one may, perhaps after
        it is promoted. The receiver tries them for a while."""
        since = self._refused_since = self._refused_since or time.monotonic()
        waited = time.monotonic() - since
        alone = len(self._hosts) == 1 or isinstance(error, RelayLogCorrupt)
        if alone or waited > self.source.failover_wait / 1000 or not RelayLog.exists(self.folder):
            raise error
        self._next_host()
        return TransientError(error.message, hint=error.hint, **error.details)

    def _session(self) -> None:
        connection = connect(self.source)
        try:
            self._connected_once = True
            self._login_refused_since = ""
            is_begun = RelayLog.exists(self.folder)
            received = start_position.received_log(RelayLog.open(self.place) if is_begun else None)
            with answers_of(self.source):
                server = describe(connection)
                by_gtid = self._by_gtid(server)
                stream = start_position.plan(self.source, server, received, by_gtid=by_gtid)
                server_id = self._server_id(connection, server)
                self._prepare(connection, server)
                replication = self._ask(connection, server, stream, server_id)
            self._by_position = received is not None and stream.gtids is None
            self._create(
                {"type": self.source.type, "server_uuid": server.uuid, "version": server.version},
                self.source.start.model_dump(mode="json", exclude_none=True),
                mode="gtid" if by_gtid else "file",
            )
            session = _Session(server, stream, replication, self._framer(server, stream, received))
            self._refused_since = None
            self.status.facts["source"] = {
                "host": self.source.host,
                "port": self.source.port,
                "server_uuid": server.uuid,
                "version": server.version,
                "server_id": server_id,
            }
            self.status.enter("streaming")
            try:
                self._stream(session, received)
            finally:
                framer = session.framer
                self._unfinished = framer.offset + framer.undecided_bytes - framer.committed
        finally:
            connection._force_close()

    def _ask(self, connection: Any, server: Server, stream: Stream, server_id: int) -> Replication:
        """Asks the source for the stream. From then on the connection only receives."""
        if stream.gtids is not None and server.dialect.mariadb:
            # Not strict: if the source does not have a number, the next one that it has is meant.
            query(connection, "SET @slave_gtid_strict_mode = 0, @slave_gtid_ignore_duplicates = 0")
            query(connection, "SET @slave_connect_state = %s", (str(stream.gtids),))
        replication = Replication(connection)
        with server_errors.of_replication(self.source):
            replication.register(server_id, self._replica_name(server))
        if stream.gtids is None:
            replication.dump(server_id, stream.file, stream.position)
        elif server.dialect.mariadb:
            replication.dump(server_id, "", 4)
        else:
            replication.dump_gtid(server_id, stream.gtids.encode())
        return replication

    def _replica_name(self, server: Server) -> str:
        """The name under which the source lists this receiver. On MariaDB nothing else identifies it."""
        return f"penstock-{self.relay['uuid']}" if server.dialect.mariadb else socket.gethostname()

    def _by_gtid(self, server: Server) -> bool:
        if "mode" in self.relay:
            return bool(self.relay["mode"] == "gtid")
        return server.has_gtids

    def _framer(self, server: Server, stream: Stream, received: ReceivedLog | None) -> Framer:
        limits = self.config.relay_log
        known = stream.known
        return Framer(
            offset=self.writer.end,
            segment_size=limits.segment_size,
            span_size=limits.span_size,
            server_uuid=server.uuid,
            executed=None if stream.executed is None else str(stream.executed),
            file=known.file if known else "",
            position=known.position if known else 0,
            skip_until_us=stream.skip_until_us,
            skip_until=stream.skip_until,
            expected=stream.expected,
            prepared=[(one.xid, one.file, one.start, one.length) for one in received.prepared]
            if received
            else [],
            spool=str(self.writer.spool.folder),
            spool_number=self.writer.spool.next_number,
            generation=self.writer.lease.generation,
        )

    def _server_id(self, connection: Any, server: Server) -> int:
        """A server id that differs from those of the source and of all other replicas. Two replicas with one
        id disconnect each other."""
        wanted = self.source.server_id
        taken = {server.server_id: "the source itself"}
        with server_errors.of_replication(self.source):
            for fields in self._replicas(connection, server):
                ours = (self.relay["uuid"], self._replica_name(server))
                if fields.get("slave_uuid", fields.get("replica_uuid", fields.get("host"))) not in ours:
                    taken[int(fields["server_id"])] = f"the replica {fields.get('host') or '(no host name)'}"
        if wanted is not None:
            if wanted in taken:
                raise ConfigError(
                    f"source.server_id {wanted} is the server id of {taken[wanted]}.",
                    hint="Choose another number, or leave server_id out: the receiver then finds a free one.",
                )
            return wanted
        found = 0x40000000 | zlib.crc32(str(self.relay["uuid"]).encode()) & 0x3FFFFFFF
        while found in taken:
            found = 0x40000000 | (found + 1) & 0x3FFFFFFF
        return found

    def _replicas(self, connection: Any, server: Server) -> list[dict[str, Any]]:
        try:
            rows = query_named(connection, server.dialect.replicas)
        except pymysql.Error as error:
            if server.dialect.mariadb and error.args[0] == 1227:  # a replica does not need this privilege
                return []
            raise
        return [{name.lower(): value for name, value in row.items()} for row in rows]

    def _prepare(self, connection: Any, server: Server) -> None:
        heartbeat_ns = max(self.source.heartbeat, 1) * 1_000_000
        if server.dialect.mariadb:
            # 4: the server sends GTID events and all others unchanged.
            query(connection, "SET @mariadb_slave_capability = 4")
        query(
            connection,
            "SET @master_binlog_checksum = @@global.binlog_checksum, "
            "@source_binlog_checksum = @@global.binlog_checksum, "
            f"@master_heartbeat_period = {heartbeat_ns}, @source_heartbeat_period = {heartbeat_ns}, "
            "@slave_uuid = %s, @replica_uuid = %s, "
            # The source waits this long for us before it gives up; a full disk must not look like a dead
            # replica.
            "@@session.net_write_timeout = 3600",
            (self.relay["uuid"], self.relay["uuid"]),
        )

    # streaming
    # -------------------------------------------------------------------------------------------------

    def _stream(self, session: _Session, received: ReceivedLog | None) -> None:
        """Receives until it is asked to stop or to reconnect, and then commits everything. Errors are
        raised."""
        silence_max = max(3 * self.source.heartbeat / 1000, 3.0)
        session.heard = time.monotonic()
        while not (self.stopping or self.stopping.reconnect):
            if session.replication.wait(self._patience(session), self.stopping.fileno()):
                data = session.replication.read()
                if data is not None:
                    session.heard = time.monotonic()
                    session.unflushed += len(data)
                    self._take(session, data, received)
            else:
                self.stopping.drain()
            now = time.monotonic()
            self._flush(session, now)
            if self.status.is_outdated:
                self._each_second(session)
            if now - session.heard > silence_max:
                raise TransientError(
                    f"The source has been silent for {now - session.heard:.0f} s, although it should send a "
                    f"heartbeat every {self.source.heartbeat / 1000:g} s."
                )
        self.writer.wait()
        self._commit(session)
        self.writer.wait()
        self._report(session)

    def _patience(self, session: _Session) -> float:
        """Seconds to wait for the socket: until the next flush, at most one second."""
        if session.dirty and self.writer.ready_to_flush:
            next_flush = session.flushed + self._flush_pause(session)
            return max(0.0, next_flush - time.monotonic())
        return 1.0  # the end of a running flush wakes this thread

    def _flush_pause(self, session: _Session) -> float:
        """Seconds from one flush to the next. Short if somebody waits for each commit, longer if the source
        sends a backlog."""
        interval = self.config.relay_log.flush_interval / 1000
        return interval if session.unflushed >= BEHIND_BYTES else min(interval, FLUSH_PAUSE_S)

    def _take(self, session: _Session, data: bytes, received: ReceivedLog | None) -> None:
        framer = session.framer
        lost = framer.incidents
        pieces = framer.feed(data)
        if is_heartbeat(data):
            self.status.facts["complete"] = {"at_us": time.time_ns() // 1000, "offset": framer.committed}
            self._each_second(session)  # it makes the report fresh, so nothing else would
        while True:
            self._bytes += sum(len(piece) for piece in pieces if isinstance(piece, bytes))
            if framer.diverged:
                raise self._diverged(session, received)
            self.writer.put(pieces)
            if not framer.more:
                break
            self._flush(session, time.monotonic())
            pieces = framer.feed(b"")
        if framer.incidents > lost:
            says = event_says(INCIDENT)
            log.warning("Before %s:%s, %s. Pipelines read all tables again.", *framer.source, says)
        session.dirty = True
        if framer.server_error is not None:
            self._commit(session)
            self.writer.wait()
            unproven = session.stream.expected is not None and not framer.verified
            raise server_errors.of_stream(framer.server_error, session.server, self.source, unproven=unproven)
        if framer.ended:
            raise TransientError("The source ended the stream; it is probably shutting down.")

    def _flush(self, session: _Session, now: float) -> None:
        ready = self.writer.ready_to_flush  # raises the error of the last flush
        paused = now - session.flushed < self._flush_pause(session)
        if not session.dirty or not ready or paused:
            return
        self._commit(session)
        session.flushed, session.unflushed, session.dirty = now, 0, False
        if self.writer.segment_is_full:
            session.framer.roll()

    def _commit(self, session: _Session) -> None:
        self.writer.flush(session.framer.cut(), spools=session.framer.spool_files)

    def _diverged(self, session: _Session, received: ReceivedLog | None) -> LogDiverged:
        last = received.last if received else None
        what = (last.id or f"the one at {last.file}:{last.position}") if last else "our last transaction"
        return LogDiverged(
            f"The source {session.server.uuid} has another transaction {what} than the relay log has.",
            hint=start_position.DIVERGED_HINT,
            gtids=what,
            server_uuid=session.server.uuid,
        )

    def _each_second(self, session: _Session) -> None:
        self._report(session)
        self.writer.check_space()
        self.upkeep.each_second()

    def _report(self, session: _Session) -> None:
        framer = session.framer
        file, position = framer.source
        self.status.facts |= {
            "offset": framer.committed,
            "position": {"file": file, "position": position},
            "executed": framer.executed,
            "last_commit_us": framer.last_commit_us or self.status.facts.get("last_commit_us"),
            "bytes": self._bytes,
            "transactions": framer.transactions,
            "events": framer.events,
            **self.upkeep.report(),
        }
        self.status.write()
