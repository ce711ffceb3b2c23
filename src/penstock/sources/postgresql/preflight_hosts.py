"""Checks `snapshot.hosts`, from which chunks are read.

The pipeline can run although a host does not answer or cannot be used. So problems of hosts are warnings.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.config import PipelineConfig
from penstock.errors import PenstockError
from penstock.sources.postgresql.options import options_of
from penstock.sources.postgresql.standbys import ServerFacts, look_at, why_unfit
from penstock.sources.preflight import Finding, unusable_host

CONFLICT_MS_MIN = 10_000
"""A chunk takes seconds. If replay waits for reads for less than this, in milliseconds, it ends many."""


def ensure_hosts(config: PipelineConfig) -> Iterator[Finding]:
    source = options_of(config)
    addresses = [one for one in config.snapshot.hosts if source.addresses != [one]]
    if not addresses or config.snapshot.mode == "never":
        return
    primary = look_at(source)
    for address in addresses:
        try:
            host = look_at(source.at(address))
        except PenstockError as error:
            yield unusable_host(address, f"{error.message} {error.hint}".strip())
            continue
        of_source = address in source.addresses
        if why := why_unfit(host, primary, config.snapshot.window_bytes_max, of_source=of_source):
            yield unusable_host(
                address, f"The server {address} of snapshot.hosts cannot be read from: {why}."
            )
            continue
        yield from _notes(address, host)
        yield Finding("ok", "snapshot_hosts", address, f"Chunks are read from {address}.")


def _notes(address: str, host: ServerFacts) -> Iterator[Finding]:
    if host.paused:
        yield Finding(
            "warning", "snapshot_hosts", address,
            f"The replay of {address} is paused. Tables that begin later than what it has wait for it.",
            f"SELECT pg_wal_replay_resume(); -- at {address}",
        )  # fmt: skip
    if 0 <= host.conflict_ms < CONFLICT_MS_MIN and not host.feedback:
        yield Finding(
            "warning", "snapshot_hosts", address,
            f"Replay at {address} waits only {host.conflict_ms} ms for reads that need what it removes. "
            "Then it ends them, and these chunks are read again.",
            f"ALTER SYSTEM SET max_standby_streaming_delay = '30s'; SELECT pg_reload_conf(); -- at {address}",
        )  # fmt: skip
