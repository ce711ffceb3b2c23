"""Which server of a list is followed. The receiver decides; whoever else asks the source follows it."""

from __future__ import annotations

from pathlib import Path

from penstock.config import SourceConfig
from penstock.relaylog.status import read_status


def candidates(config: SourceConfig) -> list[SourceConfig]:
    """One configuration for each host, in the order of preference."""
    found = [config.model_copy(update={"failover": []})]
    for address in config.failover:
        host, _, port = address.rpartition(":")
        found.append(found[0].model_copy(update={"host": host, "port": int(port)}))
    return found


def followed(config: SourceConfig, relay_log: Path) -> SourceConfig:
    """The host that the receiver of this relay log follows, or followed last; the first one before that."""
    known = candidates(config)
    if len(known) == 1:
        return known[0]
    report = read_status(relay_log).get("source") or {}
    for one in known:
        if (one.host, one.port) == (report.get("host"), report.get("port")):
            return one
    return known[0]


def in_order(config: SourceConfig, relay_log: Path) -> list[SourceConfig]:
    """The host that is followed, then the others."""
    first = followed(config, relay_log)
    return [first, *(one for one in candidates(config) if one != first)]
