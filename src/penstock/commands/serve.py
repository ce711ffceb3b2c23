"""`penstock serve FILE`: serves a relay log to clients of Canal, until it is stopped (docs/serve.md)."""

from __future__ import annotations

import signal
from pathlib import Path

from penstock.commands.terminal import say, say_json
from penstock.serve import settings
from penstock.serve.server import Server, listening


def serve(file: Path, *, check: bool, as_json: bool) -> None:
    """Runs until SIGTERM or SIGINT. With `check`, only checks the file and whether the address is free.
    Raises `PenstockError`."""
    config = settings.load(file)
    for warning in warnings(config):
        say_json({"warning": warning}) if as_json else say(f"Warning: {warning}")
    if check:
        listening(config.listen.canal, "listen.canal").close()
        config.pipeline  # noqa: B018  # raises what it does not accept
        say_json({"ok": True}) if as_json else say("The file can be served.")
        return

    def ready(addresses: dict[str, str]) -> None:
        if as_json:
            say_json({"listening": addresses})
        else:
            names = ", ".join(config.destinations)
            say(f"Serving {names} to clients of Canal at {addresses['canal']}.")

    server = Server(config, file, ready)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    server.run()


def warnings(config: settings.ServerConfig) -> list[str]:
    """What a user may not expect."""
    found = []
    for name, user in config.users.items():
        if not user.account.reads_scrambled:
            found.append(
                f"The user {name} has `password_sha256` alone. Java clients from Canal 1.1.3 on scramble the "
                "password, which needs `password_sha1_sha1` or `password`; they will be refused."
            )
    host = config.listen.canal.rpartition(":")[0]
    if not config.users and host not in ("127.0.0.1", "localhost", "[::1]", "::1"):
        found.append(
            f"There are no `users`: anybody who reaches {config.listen.canal} can read all destinations."
        )
    if config.listen.grpc is not None:
        found.append("`listen.grpc` is reserved: nothing listens there yet.")
    return found
