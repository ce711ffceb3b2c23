"""Which of several servers is followed. The receiver decides, and everybody else asks the same server."""

from __future__ import annotations

from pathlib import Path

from penstock.relaylog.status import read_status
from penstock.sources.mysql.options import MySqlOptions


def candidates(config: MySqlOptions) -> list[MySqlOptions]:
    """One configuration for each host, in order of preference."""
    found = [config.model_copy(update={"failover": []})]
    for address in config.failover:
        host, _, port = address.rpartition(":")
        found.append(found[0].model_copy(update={"host": host, "port": int(port)}))
    return found


def followed(config: MySqlOptions, relay_log: Path) -> MySqlOptions:
    """The host that the receiver of this relay log follows or last followed; the first host if it has not
    followed any."""
    known = candidates(config)
    if len(known) == 1:
        return known[0]
    report = read_status(relay_log).get("source") or {}
    for one in known:
        if (one.host, one.port) == (report.get("host"), report.get("port")):
            return one
    return known[0]


def in_order(config: MySqlOptions, relay_log: Path) -> list[MySqlOptions]:
    """The host that is followed, then the others."""
    first = followed(config, relay_log)
    return [first, *(one for one in candidates(config) if one != first)]
