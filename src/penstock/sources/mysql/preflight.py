"""Checks whether the source can be captured. Every requirement is one small function that returns findings.

`check` is read-only and sends about twenty queries, whatever the number of tables. It tests what the server
allows instead of reading grants. It checks global settings only. Sessions may have other settings, so
decisions about rows are made for every event of the log.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pymysql

from penstock._core import GtidSet
from penstock.config import PipelineConfig
from penstock.errors import START_OVER, ConfigError, PenstockError, SourceUnreachable
from penstock.relaylog.reader import RelayLog
from penstock.sources.mysql import followed_host, password_policy, preflight_hosts, preflight_tables
from penstock.sources.mysql.connection import Replication, connect
from penstock.sources.mysql.faults import explain, is_denied, is_refusal
from penstock.sources.mysql.options import options_of
from penstock.sources.mysql.preflight_source import GTID_SQL, Source, account_sql, look
from penstock.sources.mysql.savepoints import FUNCTIONS_AND_TRIGGERS
from penstock.sources.mysql.snapshot.watermark import watermarks_of
from penstock.sources.preflight import PURGED, Finding

RETENTION_MIN_S = 86_400
"""With less than a day of log at the source, there is too little time to repair a stopped pipeline."""


def check(config: PipelineConfig) -> list[Finding]:
    """Returns all findings, in the order in which they should be fixed. Problems of the source are never
    raised as errors.

    With several hosts, the first that answers is the source, in the order in which the receiver tries them.
    Because of their problems, other hosts cannot replace it, but the pipeline can run.
    """
    order = followed_host.in_order(options_of(config), config.relay_log_path)
    found = [_check_host(config.model_copy(update={"source": one})) for one in order]
    source = next((one for one in found if any(finding.level == "ok" for finding in one)), found[0])
    known = {(one.check, one.subject, one.level) for one in source}
    others = [finding for one in found if one is not source for finding in one]
    news = [one for one in others if (one.check, one.subject, one.level) not in known]
    return source + [_of_other(one) for one in news if one.level != "ok" or one.check == "connection"]


def _of_other(finding: Finding) -> Finding:
    if finding.level != "error":
        return finding
    message = f"{finding.message} Until this is fixed, the pipeline cannot fail over to this server."
    return replace(finding, level="warning", message=message)


def _check_host(config: PipelineConfig) -> list[Finding]:
    name = f"{options_of(config).host}:{options_of(config).port}"
    try:
        connection = connect(options_of(config))
    except PenstockError as error:
        return [Finding("error", "connection", name, f"{error.message} {error.hint}".strip())]
    try:
        source = look(config, connection)
        findings = [
            Finding(
                "ok",
                "connection",
                name,
                f"{source.dialect.name} {source.variable('version')}, as {source.account}.",
            )
        ]
        for one in _checks():
            findings.extend(_guarded(one, source))
        return findings
    except Exception as error:
        known = explain(error, options_of(config))
        return [Finding("error", "connection", name, f"{known.message} {known.hint}".strip())]
    finally:
        connection.close()


def _checks() -> list[Callable[[Source], Iterator[Finding]]]:
    return [
        ensure_server,
        password_policy.note_secrecy,
        ensure_privileges,
        ensure_binary_log,
        ensure_row_format,
        ensure_full_images,
        ensure_gtids,
        preflight_hosts.ensure_hosts,
        preflight_hosts.ensure_load,
        ensure_replica_logs,
        note_row_metadata,
        preflight_tables.ensure_tables,
        ensure_retention,
        note_prepared_transactions,
        note_savepoints,
    ]


def _guarded(one: Callable[[Source], Iterator[Finding]], source: Source) -> list[Finding]:
    """Runs one check. If the server refuses its query, the other checks still run. If the source is gone, the
    error is raised."""
    found: list[Finding] = []
    try:
        found.extend(one(source))
    except Exception as error:
        known = explain(error, options_of(source.config))
        if isinstance(known, SourceUnreachable):
            raise known from error
        subject = one.__name__.split("_", 1)[1]
        found.append(Finding("warning", subject, source.name, f"This could not be checked: {known.message}"))
    return found


def ensure_server(source: Source) -> Iterator[Finding]:
    version = source.variable("version")
    if source.traits.mariadb:
        if source.traits.version < (10, 5, 0):
            yield Finding(
                "error", "server", source.name,
                f"The source {source.name} is MariaDB {version}; 10.5 is the oldest supported version.",
            )  # fmt: skip
    elif source.traits.version < (5, 7, 0):
        yield Finding(
            "error", "server", source.name,
            f"The source {source.name} is MySQL {version}; 5.7 is the oldest supported version.",
        )  # fmt: skip
    if source.variable("server_id") == "0":
        yield Finding(
            "error", "server_id", source.name,
            f"The source {source.name} has server_id 0 and refuses every replication connection.",
            "SET GLOBAL server_id = 1;",
        )  # fmt: skip


def ensure_privileges(source: Source) -> Iterator[Finding]:
    """Checks the privileges of a replica. `preflight_tables.py` checks SELECT on the tables."""
    missing = sorted(source.denied)
    try:
        if source.traits.mariadb:
            _register(source)  # what SHOW SLAVE HOSTS asks for is another privilege
        else:
            source.ask(source.dialect.replicas)
    except (PenstockError, pymysql.Error, OSError) as error:
        if not is_denied(error):
            raise
        missing.append("REPLICATION SLAVE")
    if missing:
        yield Finding(
            "error", "privileges", source.account,
            f"The account {source.account} lacks {' and '.join(missing)}, which it needs to read the "
            "source's log.",
            f"GRANT {', '.join(missing)} ON *.* TO {account_sql(source.account)};",
        )  # fmt: skip
    else:
        yield Finding(
            "ok", "privileges", source.account, f"{' and '.join(source.dialect.log_privileges)} are granted."
        )


def _register(source: Source) -> None:
    """Registers as a replica for a moment."""
    connection = connect(options_of(source.config))
    try:
        Replication(connection).register(0x7FFFFFFF, "penstock-doctor")
    finally:
        connection._force_close()


def ensure_binary_log(source: Source) -> Iterator[Finding]:
    if source.is_on("log_bin"):
        yield Finding("ok", "log_bin", source.name, "The binary log is on.")
        return
    yield Finding(
        "error", "log_bin", source.name,
        f"The source {source.name} writes no binary log (log_bin is OFF), so there are no changes to "
        "follow. Add log_bin = binlog and a server_id to the server's option file, under [mysqld], and "
        "restart it.",
    )  # fmt: skip


def ensure_row_format(source: Source) -> Iterator[Finding]:
    value = source.variable("binlog_format").upper() or "ROW"  # the variable goes away in a later version
    if value == "ROW":
        yield Finding("ok", "binlog_format", source.name, "binlog_format is ROW.")
        return
    yield Finding(
        "error", "binlog_format", source.name,
        f"The source {source.name} has binlog_format = {value}: changes are logged as statements, which do "
        "not say which rows they changed. Sessions use a new setting after they reconnect.",
        "SET GLOBAL binlog_format = 'ROW';",
    )  # fmt: skip


def ensure_full_images(source: Source) -> Iterator[Finding]:
    value = source.variable("binlog_row_image").upper() or "FULL"
    if value == "FULL":
        yield Finding("ok", "binlog_row_image", source.name, "binlog_row_image is FULL.")
    elif source.config.cascades == "apply" and not source.traits.logs_cascades:
        yield Finding(
            "error", "binlog_row_image", source.name,
            f"The source {source.name} has binlog_row_image = {value}: the log omits columns of changed "
            "rows, and without them `cascades: apply` cannot compute which rows foreign keys change. "
            "Sessions use a new setting after they reconnect.",
            "SET GLOBAL binlog_row_image = 'FULL';",
        )  # fmt: skip
    elif source.config.sink_kind.keeps_tables and not source.traits.mariadb:
        yield Finding(
            "warning", "binlog_row_image", source.name,
            f"The source {source.name} has binlog_row_image = {value}: the log omits columns of changed "
            "rows. They are completed from the target, which is slower. A row whose key changes cannot be "
            "completed: its table is then read again. Sessions use a new setting after they reconnect.",
            "SET GLOBAL binlog_row_image = 'FULL';",
            partial_rows=True,
        )  # fmt: skip
    else:
        why = "a change log" if not source.traits.mariadb else "MariaDB, whose log does not say which ones"
        yield Finding(
            "error", "binlog_row_image", source.name,
            f"The source {source.name} has binlog_row_image = {value}: the log omits columns of "
            f"changed rows, which cannot be completed for {why}. Sessions use a new setting after they "
            "reconnect.",
            "SET GLOBAL binlog_row_image = 'FULL';",
        )  # fmt: skip
    partial_json = "PARTIAL_JSON" in source.variable("binlog_row_value_options").upper()
    if partial_json and value != "FULL":
        yield Finding(
            "error", "binlog_row_value_options", source.name,
            f"The source {source.name} has binlog_row_value_options = PARTIAL_JSON beside binlog_row_image = "
            f"{value}: the log has the changes inside JSON columns, but not the documents before.",
            "SET GLOBAL binlog_row_value_options = '';",
        )  # fmt: skip


def ensure_gtids(source: Source) -> Iterator[Finding]:
    mode = source.variable("gtid_mode").upper()
    table = options_of(source.config).watermark_table
    if mode == "ON" or source.traits.mariadb:
        yield Finding("ok", "gtid_mode", source.name, "GTIDs are on.")
    elif table is not None:
        yield from _watermark_table(source, table)
    elif source.config.snapshot.mode == "never":
        yield Finding(
            "warning", "gtid_mode", source.name,
            f"The source {source.name} has gtid_mode = {mode or 'OFF'}: the log is followed by file and "
            "position, which do not carry over to another server after a failover.",
            GTID_SQL,
        )  # fmt: skip
    else:
        yield Finding(
            "error", "gtid_mode", source.name,
            f"The source {source.name} has gtid_mode = {mode or 'OFF'}, but the watermarks of snapshots "
            "are GTIDs. Turn them on (one step at a time, on every server of the topology), or name a table "
            "for watermarks in source.watermark_table, or set snapshot.mode: never to follow only changes "
            "from now on.",
            GTID_SQL,
        )  # fmt: skip


def _watermark_table(source: Source, table: str) -> Iterator[Finding]:
    try:
        watermarks_of(source.connection, table)
    except ConfigError as error:
        yield Finding("error", "watermark_table", table, error.message, error.hint)
        return
    if not source.is_on("binlog_order_commits"):
        yield Finding(
            "error", "binlog_order_commits", source.name,
            f"The source {source.name} has binlog_order_commits = OFF, so writes to {table} cannot serve as "
            "watermarks.",
            "SET GLOBAL binlog_order_commits = ON;",
        )  # fmt: skip
    else:
        yield Finding("ok", "watermark_table", table, "Chunks use writes to it as watermarks.")


def ensure_replica_logs(source: Source) -> Iterator[Finding]:
    """Checks that a replica logs what it applies. Otherwise its log has no changes."""
    if source.is_on("log_replica_updates", "log_slave_updates"):
        return
    if not source.ask(source.dialect.replica_status):
        return
    name = "log_replica_updates" if "log_replica_updates" in source.variables else "log_slave_updates"
    yield Finding(
        "error", name, source.name,
        f"The source {source.name} is a replica with {name} = OFF: it does not log the changes it applies. "
        f"Add {name} = ON to its option file, under [mysqld], and restart it, or follow its source instead.",
    )  # fmt: skip


def note_row_metadata(source: Source) -> Iterator[Finding]:
    value = source.variable("binlog_row_metadata").upper()
    if value in ("MINIMAL", "NO_LOG"):
        yield Finding(
            "ok", "binlog_row_metadata", source.name,
            f"binlog_row_metadata is {value}: column names come from the catalog. FULL would put them into "
            "the log.",
            "SET GLOBAL binlog_row_metadata = 'FULL';",
        )  # fmt: skip


def ensure_retention(source: Source) -> Iterator[Finding]:
    seconds = int(float(source.variable("binlog_expire_logs_seconds") or 0))
    if not seconds:
        seconds = round(float(source.variable("expire_logs_days") or 0) * 86_400)
    yield from _backlog(source, seconds)
    if 0 < seconds < RETENTION_MIN_S:
        yield Finding(
            "warning", "retention", source.name,
            f"The source {source.name} keeps its log for only {_span(seconds)}. A pipeline that is stopped "
            "for longer has to read its tables again.",
            _retention_sql(source),
        )  # fmt: skip
    else:
        kept = f"for {_span(seconds)}" if seconds else "until it is purged by hand"
        yield Finding("ok", "retention", source.name, f"The log is kept {kept}.")


def _retention_sql(source: Source) -> str:
    if "binlog_expire_logs_seconds" in source.variables:
        return "SET GLOBAL binlog_expire_logs_seconds = 604800;"
    return "SET GLOBAL expire_logs_days = 7;"


def _backlog(source: Source, retention_s: int) -> Iterator[Finding]:
    """Compares the end of the relay log with the log that the source still has."""
    try:
        text = (source.config.relay_log_path / "receiver.json").read_text("utf-8")
        report = {**json.loads(text)}
        if "position" not in report:  # the last receiver ended before it had one
            report |= _end_of(source.config)
        file = str(report["position"]["file"])
        behind_s = (
            max(0.0, time.time() - report["last_commit_us"] / 1_000_000) if report["last_commit_us"] else 0.0
        )
    except (OSError, ValueError, KeyError, TypeError, PenstockError):
        return
    if source.files and file not in source.files:
        if not _lost(source, report):
            return
        yield Finding(
            "error", PURGED, source.name,
            f"The relay log {source.config.relay_log_path} ends in {file} of the source {source.name}, which "
            f"no longer has that file (its oldest is {source.files[0]}). The changes in between are lost. "
            f"To continue, {START_OVER}",
        )  # fmt: skip
    elif source.files and file == source.files[-1]:
        return
    elif retention_s and behind_s > retention_s / 2:
        yield Finding(
            "warning", "backlog", source.name,
            f"The relay log is {_span(behind_s)} behind the source {source.name}, which keeps its log for "
            f"{_span(retention_s)}.",
            _retention_sql(source),
        )  # fmt: skip


def _end_of(config: PipelineConfig) -> dict[str, Any]:
    """The end of the relay log, as the receiver reports it. Raises `PenstockError`."""
    log = RelayLog.open(config.relay_log_path)
    file = str(log.position_at(log.end)).rpartition(":")[0]
    return {
        "position": {"file": file},
        "executed": str(log.executed_at(log.end)),
        "last_commit_us": log.commit_time_us_at(log.end),
    }


def _lost(source: Source, report: dict[str, Any]) -> bool:
    """Whether the source has purged log that the relay log lacks. Only GTIDs can prove that it has not."""
    if not report.get("executed"):
        return True
    if source.traits.mariadb:
        file = (source.files or [""])[0].encode().hex()
        [(purged,)] = source.ask(f"SELECT BINLOG_GTID_POS(CONVERT(x'{file}' USING utf8mb4), 4)")
    elif source.variable("gtid_mode").upper() == "ON":
        purged = source.variable("gtid_purged")
    else:
        return True
    return bool(GtidSet(purged or "").difference(GtidSet(str(report["executed"]))))


def _span(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.0f} seconds"


def note_prepared_transactions(source: Source) -> Iterator[Finding]:
    try:
        rows = source.ask("XA RECOVER CONVERT XID")
    except pymysql.Error as error:
        if not is_refusal(error):
            raise
        return  # needs XA_RECOVER_ADMIN, which we do not ask for
    if not rows:
        yield Finding("ok", "xa", source.name, "No XA transaction is left prepared.")
        return
    statements = []
    for format_id, global_length, branch_length, data in rows:
        digits = str(data).removeprefix("0x")
        middle = 2 * int(global_length)
        end = middle + 2 * int(branch_length)
        xid = f"X'{digits[:middle]}',X'{digits[middle:end]}',{format_id}"
        statements.append(f"XA ROLLBACK {xid};")
    yield Finding(
        "warning", "xa", source.name,
        f"{len(rows)} XA transaction(s) are prepared at the source {source.name}. Their changes arrive when "
        "they are committed. If one was prepared before the relay log began, its rows are not in the relay "
        "log: at its XA COMMIT every captured table is read again. End those that will never be committed.",
        "\n".join(statements[:10]),
    )  # fmt: skip


def note_savepoints(source: Source) -> Iterator[Finding]:
    """Functions and triggers whose savepoints may have the names of others. These servers may log them, but
    not that they are of another level. A replica of MySQL 5.7 stops at such a transaction."""
    if not source.traits.mariadb and (source.traits.version >= (8, 0, 0) or source.is_on("gtid_mode")):
        return
    rows = source.ask(FUNCTIONS_AND_TRIGGERS)
    if names := sorted(f"{database}.{name}" for database, name, _ in rows):
        yield Finding(
            "warning", "savepoints", source.name,
            f"Triggers and functions set savepoints: {', '.join(names[:5])}. If one has the name of a "
            "savepoint of the transaction around it, the log does not say which of them a ROLLBACK TO means, "
            "and tables with rows between them are read again. Give them names that nothing else uses.",
        )  # fmt: skip
