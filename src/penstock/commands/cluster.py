"""`penstock cluster status FILE`: the servers that share destinations, and how far behind clients are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from penstock.commands.consumers import age_text
from penstock.commands.terminal import cell, console, say, say_json
from penstock.errors import ConfigError, PenstockError
from penstock.model.offset import SourcePosition
from penstock.printable import size_text
from penstock.serve import settings
from penstock.serve.leases.status import status_of as of_store
from penstock.serve.zookeeper.status import status_of as of_zookeeper
from penstock.sources import open_source


def status(file: Path, *, as_json: bool) -> None:
    """Prints the status of the servers and their clients. Raises `PenstockError`."""
    config = settings.load(file)
    if not config.is_shared:
        raise ConfigError(
            f"{file} has no `zookeeper` and no `positions.type: store`, so its server is alone.",
            hint="`GET /destinations` of its HTTP address says how far behind clients are.",
        )
    end, wrong = _end(config)
    found = (of_zookeeper if config.zookeeper else of_store)(config, end)
    if as_json:
        say_json(found | ({"warning": wrong} if wrong else {}))
        return
    if wrong:
        say(f"The source does not say where its log ends: {wrong}")
    _print(found, servers_report=bool(config.zookeeper))


def _end(config: settings.ServerConfig) -> tuple[SourcePosition | None, str]:
    """The end of the source's log, or why it is not known."""
    if config.source is None:
        return None, ""
    try:
        source = open_source(config.pipeline_of(""))
        try:
            return source.end_position(), ""
        finally:
            source.close()
    except PenstockError as error:
        return None, str(error)


def _print(found: dict[str, Any], *, servers_report: bool) -> None:
    """Prints the status for people. `servers_report`: whether servers have reported their names and how far
    they have received the log. In a store they only have addresses."""
    servers = Table(title="servers")
    for name in ("address", *(("name", "log received up to") if servers_report else ()), "serves"):
        servers.add_column(name, overflow="fold")
    for address, about in sorted(found["servers"].items()):
        served = [name for name, one in found["destinations"].items() if one["server"] == address]
        reported = (about.get("name", "not ours"), about.get("log", "")) if servers_report else ()
        servers.add_row(*map(cell, (address, *reported, ", ".join(served))))
    clients = Table(title="clients")
    for name in ("destination", "server", "client", "position", "behind", "files", "connected from"):
        clients.add_column(name, overflow="fold")
    for name, one in found["destinations"].items():
        server = one["server"] or "nobody"
        if not one["clients"]:
            clients.add_row(*map(cell, (name, server, "none", "", "", "", "")))
        for client_id, client in one["clients"].items():
            files = client.get("files_behind")
            texts = (
                name, server, client_id, client["position"] or client["wrong"], _lag(client),
                "" if files is None else str(files), client["address"] or "",
            )  # fmt: skip
            clients.add_row(*map(cell, texts))
    for table in (servers, clients):
        console().print(table)


def _lag(client: dict[str, Any]) -> str:
    if client["behind_seconds"] is None:
        return "not known"
    seconds, transactions = client["behind_seconds"], client["behind_transactions"]
    return f"{age_text(seconds)}, {size_text(client['behind_bytes'])}, {transactions} transactions"
