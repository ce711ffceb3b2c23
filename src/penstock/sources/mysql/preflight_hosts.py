"""Checks the other servers that the section `snapshot` names.

The pipeline can run although a server does not answer or cannot be used: other servers are used, or the
snapshot waits and says so. Only a problem that cannot go away is an error.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors import PenstockError
from penstock.sources.mysql.faults import is_denied
from penstock.sources.mysql.options import options_of
from penstock.sources.mysql.preflight_source import GTID_SQL, Source, account_sql
from penstock.sources.mysql.snapshot import replicas, server_load
from penstock.sources.mysql.snapshot.replicas import ReplicaFacts, SourceFacts
from penstock.sources.mysql.snapshot.server_load import WatchedServers
from penstock.sources.preflight import Finding, unusable_host
from penstock.sources.table_filter import TableFilter

_WITHOUT = "Remove snapshot.hosts from the pipeline file to read from the source itself"


def ensure_hosts(source: Source) -> Iterator[Finding]:
    """Checks `snapshot.hosts`, from which chunks are read."""
    addresses = source.config.snapshot.hosts
    if not addresses or source.config.snapshot.mode == "never":
        return
    if source.traits.mariadb:
        yield Finding(
            "error", "snapshot_hosts", source.name,
            f"The source {source.name} is MariaDB, and snapshot.hosts needs MySQL: chunks from replicas use "
            f"sets of MySQL's GTIDs as watermarks. {_WITHOUT}.",
        )  # fmt: skip
        return
    if source.variable("gtid_mode").upper() != "ON":
        yield Finding(
            "error", "snapshot_hosts", source.name,
            f"The source {source.name} has gtid_mode = {source.variable('gtid_mode') or 'OFF'}, and chunks "
            "from replicas (snapshot.hosts) use GTIDs as watermarks. Turn them on (one step at "
            f"a time, on every server of the topology). {_WITHOUT} as long as they are off.",
            GTID_SQL,
        )  # fmt: skip
        return
    onlooker = WatchedServers()
    try:
        for address in addresses:
            yield from _host(source, onlooker, address)
    finally:
        onlooker.close()


def _host(source: Source, onlooker: WatchedServers, address: str) -> Iterator[Finding]:
    captured = TableFilter(source.config.tables, fold_case=source.traits.fold_case)
    config = server_load.at(options_of(source.config), address)
    try:
        replica = replicas.look_at_replica(onlooker, config)
        facts = replicas.look_at_source(onlooker, options_of(source.config), replica)
    except PenstockError as error:
        yield unusable_host(address, f"{error.message} {error.hint}".strip())
        return
    found = replicas.decide(replica, facts, captured)
    if isinstance(found, str):
        yield unusable_host(address, f"The server {address} of snapshot.hosts cannot be read from: {found}.")
        return
    yield from _notes(address, replica, facts)
    order = onlooker.ask(config, "SHOW GLOBAL VARIABLES LIKE '%\\_preserve\\_commit\\_order'")
    sets = ""
    if order and str(order[0][1]).upper() in ("OFF", "0"):
        sets = f" It has {order[0][0]} = OFF; watermarks are sets of GTIDs, so that order does not matter."
    yield Finding("ok", "snapshot_hosts", address, f"Chunks are read from {address}.{sets}")


def _notes(address: str, replica: ReplicaFacts, source: SourceFacts) -> Iterator[Finding]:
    if replica.uuid == source.uuid:
        return
    if errant := replicas.errant(replica, source):
        yield Finding(
            "warning", "errant_gtids", address,
            f"The replica {address} has transactions of its own that the source lacks: "
            f"{replicas.shown(errant)}. Their changes of captured tables arrive with its chunks, and the log "
            "never corrects them. `penstock verify` finds them.",
        )  # fmt: skip
    if not replica.read_only:
        yield Finding(
            "warning", "read_only", address,
            f"The replica {address} has read_only = OFF: what is written there arrives with its chunks, and "
            "the log never corrects it.",
            f"SET GLOBAL read_only = ON; -- at {address}",
        )  # fmt: skip


def _unknown_lag(source: Source, address: str, error: PenstockError) -> Finding:
    message = f"The lag of {address} is unknown, and the snapshot waits until it is known: {error.message}"
    if not is_denied(error):
        return Finding("warning", "snapshot_load", address, f"{message} {error.hint}".strip())
    privilege = source.dialect.log_privileges[1]
    return Finding(
        "warning", "snapshot_load", address,
        f"{message} The account needs {privilege} there (SLAVE MONITOR on MariaDB since 10.5).",
        f"GRANT {privilege} ON *.* TO {account_sql(source.account)}; -- at {address}",
    )  # fmt: skip


def ensure_load(source: Source) -> Iterator[Finding]:
    """Checks `snapshot.load.replicas`. The snapshot pauses while they lag."""
    onlooker = WatchedServers()
    try:
        for address in source.config.snapshot.load.replicas:
            try:
                channels = onlooker.channels(server_load.at(options_of(source.config), address))
            except PenstockError as error:
                yield _unknown_lag(source, address, error)
                continue
            if not channels:
                yield Finding(
                    "warning", "snapshot_load", address,
                    f"The server {address} of snapshot.load.replicas replicates from no server: it never "
                    "pauses the snapshot.",
                )  # fmt: skip
            else:
                yield Finding("ok", "snapshot_load", address, f"The lag of {address} is checked.")
    finally:
        onlooker.close()
