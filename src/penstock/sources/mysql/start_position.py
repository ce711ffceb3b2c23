"""Decides from where a source is followed, and whether it is still the source that was followed before.

`plan` decides before a stream is requested:

- A new log begins where the pipeline file says. Transactions before that are dropped. Prepared XA
  transactions are kept, because their XA COMMIT may come later. To find file + position or a timestamp, the
  binlog file is read from its beginning, and transactions are dropped until the start. So the executed GTIDs
  at the start are known exactly: PREVIOUS_GTIDS of the file, and what was dropped. For `latest`, the newest
  file is read like that only if something is prepared.
- A log with transactions continues after its last one. Before that, the source must prove that it is the
  same. Every GTID of the log must be in its `gtid_executed`. That is not so after a reset, a restore or a
  lossy failover. The last transaction is requested again and compared byte for byte, because a restored
  server reuses GTIDs for new transactions. Without GTIDs, the server's UUID and the bytes before the position
  are compared instead. From a MariaDB server that is still the same, the log is requested by file and
  position, so that it sends the last transaction again. From another server the log is requested by GTID.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from penstock._core import DecodeError, GtidSet, digest_span
from penstock.config import PipelineConfig
from penstock.errors import (
    START_OVER,
    ConfigError,
    LogDiverged,
    LoginRefused,
    LogPurged,
    PenstockError,
    RelayLogCorrupt,
    SourceBehind,
    SourceError,
    SourceUnreachable,
)
from penstock.model.offset import Offset
from penstock.relaylog.files import LogPlace
from penstock.relaylog.index import Prepared
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment import DAMAGED_HINT
from penstock.sources.mysql.binlog_position import BinlogPosition, LastTransaction
from penstock.sources.mysql.connection import READ_BYTES, Replication, connect, query
from penstock.sources.mysql.faults import answers_of
from penstock.sources.mysql.followed_host import in_order
from penstock.sources.mysql.options import MySqlOptions, options_of
from penstock.sources.mysql.server_identity import Server, describe

COMPARED_BYTES_MAX = 64 * 1024**2
"""A last transaction that is larger than this is not requested again at each connect, to be compared. It
would delay the stream by seconds."""
POSITION_MAX = 2**32 - 1
"""COM_BINLOG_DUMP has 32 bits for the position."""
PURGED_HINT = f"Raise binlog_expire_logs_seconds at the source, and {START_OVER}"
START_PURGED_HINT = (
    "Choose a later `source.start` in the pipeline file: `latest` reads the tables as they are and follows "
    "from there, `earliest` is all the log that is left."
)
DIVERGED_HINT = (
    "The source was reset, restored from an older backup, or replaced by a server that lost transactions. "
    f"Connect the one that was followed before; or, if this one is meant, {START_OVER}"
)


@dataclass(frozen=True)
class ReceivedLog:
    """The end of the relay log."""

    end: Offset
    gtids: GtidSet
    position: BinlogPosition
    server_uuid: str
    last: LastTransaction | None
    digest: tuple[int, int] | None
    """Length and digest of the last transaction's bytes, as the source sent them."""
    prepared: tuple[Prepared, ...] = ()


@dataclass(frozen=True)
class Stream:
    """The position to request from the source, and what the framer must know about it."""

    gtids: GtidSet | None = None
    """The GTID set to request by. None: by file and position."""
    file: str = ""
    position: int = 4
    executed: GtidSet | None = None
    known: BinlogPosition | None = None
    skip_until_us: int | None = None
    skip_until: tuple[str, int] | None = None
    expected: tuple[str | None, int, int] | None = None


def received_log(log: RelayLog | None) -> ReceivedLog | None:
    """Returns None if the log is empty."""
    if log is None or log.refresh() == 0:
        return None
    last = LastTransaction.of(log)
    digest = None
    if last is not None:
        digest = _digest(log, last)
        if digest is not None and digest[0] > COMPARED_BYTES_MAX:
            digest = None
    return ReceivedLog(
        end=log.end,
        gtids=GtidSet(str(log.executed_at(log.end))),
        position=BinlogPosition.of(log.position_at(log.end)),
        server_uuid=log.source_uuid,
        last=last,
        digest=digest,
        prepared=tuple(log.prepared),
    )


def _digest(log: RelayLog, last: LastTransaction) -> tuple[int, int] | None:
    if last.sent is not None:
        return (last.sent[0], last.sent[1]) if last.sent else None
    if last.end - last.start > COMPARED_BYTES_MAX:
        return None
    file, base = log.segment_of(last.end, start=last.start)
    try:
        return digest_span(file, base, last.start, last.end)
    except DecodeError as error:
        raise damaged(error) from error


def damaged(error: DecodeError) -> RelayLogCorrupt:
    """Returns the error for a relay log that cannot be read."""
    return RelayLogCorrupt(
        f"The file {error.path} of the relay log is damaged at offset {error.offset}: {error.reason}.",
        hint=DAMAGED_HINT,
        path=error.path,
        offset=error.offset,
    )


def check(config: PipelineConfig) -> None:
    """Raises the error with which a receiver of this relay log would refuse to start or to continue. Errors
    that only the source's bytes can show come later."""
    folder, place = config.relay_log_path, LogPlace.of(config)
    log = RelayLog.open(place) if RelayLog.exists(place) else None
    received = received_log(log)
    refusals: list[PenstockError] = []
    for source in in_order(options_of(config), folder):
        try:
            _check_host(config, source, log, received)
            return
        except SourceBehind:
            return  # the receiver waits for it, or finds another one
        except (SourceUnreachable, SourceError, ConfigError) as error:
            if log is None and isinstance(error, LoginRefused):
                raise ConfigError(error.message, hint=error.hint, **error.details) from error
            if log is None and not isinstance(error, SourceUnreachable):
                raise
            refusals.append(error)
    raise next((one for one in refusals if not isinstance(one, SourceUnreachable)), refusals[0])


def _check_host(
    config: PipelineConfig, source: MySqlOptions, log: RelayLog | None, received: ReceivedLog | None
) -> None:
    with answers_of(source):
        connection = connect(source)
        try:
            server = describe(connection)
        finally:
            connection.close()
        by_gtid = server.has_gtids if log is None else log.facts.get("mode") == "gtid"
        plan(source, server, received, by_gtid=by_gtid)


def plan(config: MySqlOptions, server: Server, received: ReceivedLog | None, *, by_gtid: bool) -> Stream:
    """What the receiver requests from the source. Raises `LogPurged`, `LogDiverged` or `ConfigError` if the
    source cannot be followed from there, and `SourceBehind` if that is not possible yet."""
    if received is None:
        return _begin(config, server)
    if by_gtid:
        return _resume_by_gtid(server, received)
    return _resume_by_position(server, received)


# a new log
# -----------------------------------------------------------------------------------------------------


def _begin(config: MySqlOptions, server: Server) -> Stream:
    start = config.start
    if start.gtid is not None:
        return _begin_at_gtids(server, start.gtid)
    if start.file is not None and start.position is not None:
        return _begin_at_position(server, start.file, start.position)
    if start.timestamp is not None:
        return _begin_at_time(config, server, start.timestamp)
    if server.dialect.mariadb and start.at == "earliest":  # the file says what was before it
        return Stream(file=_known_files(config, server)[0][0])
    if server.prepared and server.files and start.at != "earliest":
        # Their changes are before the start, so the newest file is read from its beginning.
        file, size = server.files[-1]
        return Stream(file=file, skip_until=(file, size))
    if server.has_gtids:
        executed = server.purged if start.at == "earliest" else server.executed
        return Stream(gtids=executed, executed=executed)
    files = _known_files(config, server)
    if start.at == "earliest":
        return Stream(file=files[0][0])
    # The size of the file at this moment is where `latest` begins.
    file, size = files[-1]
    return Stream(file=file, position=size, executed=GtidSet())


def _begin_at_gtids(server: Server, text: str) -> Stream:
    try:
        wanted = GtidSet(text)
    except ValueError as error:
        raise ConfigError(
            f"source.start.gtid: {error}.", hint="Give the source's @@gtid_executed at the start."
        ) from None
    if not server.has_gtids:
        raise ConfigError(
            "source.start.gtid is set, but the source has gtid_mode other than ON.",
            hint="Use file + position.",
        )
    unknown = server.lacks(wanted)
    if unknown:
        variable = "gtid_binlog_state" if server.dialect.mariadb else "gtid_executed"
        raise ConfigError(
            f"source.start.gtid names transactions the source has never had: {_shown(unknown)}.",
            hint=f"Compare it with SELECT @@{variable} at the source.",
        )
    lost = server.purged.difference(wanted)
    if lost:
        raise _purged(server, f"the transactions {_shown(lost)}", START_PURGED_HINT)
    return Stream(gtids=wanted, executed=wanted)


def _begin_at_position(server: Server, file: str, position: int) -> Stream:
    sizes = dict(server.files)
    if server.files and file not in sizes:
        if _number(file) < _number(server.files[0][0]):
            raise _purged(server, f"the file {file}", START_PURGED_HINT)
        raise ConfigError(
            f"The source has no binlog file {file}; it has {server.files[0][0]} to {server.files[-1][0]}.",
            hint="See SHOW BINARY LOGS at the source.",
        )
    if server.files and position > sizes[file]:
        raise ConfigError(
            f"The binlog file {file} ends at {sizes[file]}, before the start position {position}."
        )
    return Stream(file=file, skip_until=(file, position))


def _begin_at_time(config: MySqlOptions, server: Server, text: str) -> Stream:
    try:
        moment = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise ConfigError(
            f"source.start.timestamp {text!r} is no ISO 8601 time.", hint="Write 2026-03-01T12:00:00Z."
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.timezone.utc)
    wanted_us = int(moment.timestamp() * 1_000_000)
    files = _known_files(config, server)
    # The last file that was started at or before the moment: everything in earlier ones was committed before
    # it.
    low, high = 0, len(files)
    while low < high:
        middle = (low + high) // 2
        if (_start_time(config, server, files[middle][0]) + 1) * 1_000_000 <= wanted_us:
            low = middle + 1
        else:
            high = middle
    if low == 0 and (server.purged or _number(files[0][0]) > 1):
        raise _purged(server, f"what was committed at {moment.isoformat()}", START_PURGED_HINT)
    return Stream(file=files[max(0, low - 1)][0], skip_until_us=wanted_us)


def _start_time(config: MySqlOptions, server: Server, file: str) -> int:
    """The time (s since 1970) of a binlog file's first event."""
    connection = connect(config)
    try:
        query(connection, "SET @master_binlog_checksum = @@global.binlog_checksum")
        stream = Replication(connection)
        stream.dump(server.server_id ^ 0x5A5A5A5A, file, 4, block=False)
        data = b""
        while len(data) < READ_BYTES and stream.wait(config.connect_timeout / 1000):
            data += stream.read() or b""
            at = 0
            while len(data) >= at + 24:
                length = int.from_bytes(data[at : at + 3], "little")
                if data[at + 4] != 0:
                    break
                if data[at + 9] == 15:  # FORMAT_DESCRIPTION
                    return int.from_bytes(data[at + 5 : at + 9], "little")
                at += 4 + length
        raise SourceError(f"The source does not show the begin of its binlog file {file}.")
    finally:
        connection._force_close()


def _known_files(config: MySqlOptions, server: Server) -> tuple[tuple[str, int], ...]:
    if not server.files:
        raise ConfigError(
            f"The user {config.user!r} may not list the source's binlog files, which this start needs.",
            hint=f"GRANT REPLICATION CLIENT ON *.* TO {config.user!r}@'%';",
        )
    return server.files


# a log that is not empty
# ------------------------------------------------------------------------------------


def _resume_by_gtid(server: Server, received: ReceivedLog) -> Stream:
    if not server.has_gtids:
        raise SourceError(
            "The relay log follows GTIDs, but the source's gtid_mode is no longer ON.",
            hint="SET GLOBAL gtid_mode = ON;",
        )
    unknown = server.lacks(received.gtids)
    if unknown and server.applies:
        raise SourceBehind(
            f"The source {server.uuid} is a replica that has not yet applied what the relay log has: "
            f"{_shown(unknown)}."
        )
    if unknown:
        raise LogDiverged(
            f"The source {server.uuid} does not have transactions that the relay log has: {_shown(unknown)}.",
            hint=DIVERGED_HINT,
            gtids=str(unknown),
            server_uuid=server.uuid,
        )
    lost = server.purged.difference(received.gtids)
    if lost:
        raise _purged(server, f"the transactions {_shown(lost)}")
    same_server = received.server_uuid == server.uuid
    if server.dialect.mariadb:
        if same_server and received.position.file in dict(server.files):
            return _resume_by_position(server, received)
        return Stream(gtids=received.gtids, executed=received.gtids)
    wanted, expected = received.gtids, None
    last = received.last
    if (
        same_server
        and last is not None
        and received.digest is not None
        and last.id
        and last.id not in server.purged
    ):
        wanted = received.gtids.difference(GtidSet(last.id))
        expected = (last.id, *received.digest)
    return Stream(
        gtids=wanted,
        executed=received.gtids,
        known=received.position if same_server else None,
        expected=expected,
    )


def _resume_by_position(server: Server, received: ReceivedLog) -> Stream:
    if received.server_uuid != server.uuid:
        raise LogDiverged(
            f"The source is now the server {server.uuid}; the log follows {received.server_uuid} by file and "
            "position, which are different on each server.",
            hint=DIVERGED_HINT,
            server_uuid=server.uuid,
        )
    sizes, position = dict(server.files), received.position
    if server.files and position.file not in sizes and _number(position.file) < _number(server.files[0][0]):
        raise _purged(server, f"the file {position.file}")
    if server.files and sizes.get(position.file, 0) < position.position:
        raise LogDiverged(
            f"The source's log no longer reaches {position}, up to which the relay log has it.",
            hint=DIVERGED_HINT,
            position=str(position),
        )
    last = received.last
    if (
        last is not None
        and received.digest is not None
        and last.file in sizes
        and last.position <= POSITION_MAX
    ):
        return Stream(
            file=last.file,
            position=last.position,
            executed=received.gtids,
            known=position,
            expected=(None, *received.digest),
        )
    if position.position > POSITION_MAX:
        at = (position.file, position.position)
        return Stream(file=position.file, executed=received.gtids, skip_until=at)
    return Stream(file=position.file, position=position.position, executed=received.gtids, known=position)


def _purged(server: Server, needed: str, hint: str = PURGED_HINT) -> LogPurged:
    oldest = server.files[0][0] if server.files else "unknown"
    return LogPurged(
        f"The source no longer has {needed}; its oldest binlog file is {oldest}.",
        hint=hint,
        needed=needed,
        oldest=oldest,
    )


def _number(file: str) -> int:
    digits = file.rpartition(".")[2]
    return int(digits) if digits.isdigit() else 0


def _shown(gtids: GtidSet) -> str:
    text = str(gtids)
    return text if len(text) <= 300 else f"{text[:300]}…"
