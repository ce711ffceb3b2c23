"""`penstock serve FILE`: serves a relay log to clients of Canal, until it is stopped (docs/serve.md)."""

from __future__ import annotations

import contextlib
import ctypes
import signal
from pathlib import Path

from penstock.commands.terminal import say, say_json
from penstock.serve import settings
from penstock.serve.listeners.listeners import Listeners
from penstock.serve.server import Server

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # mallopt(3)
_ARENAS_MAX = 2  # one for the event loop, one for threads that read
_MMAP_BYTES, _TRIM_BYTES = 8 * 1024**2, 24 * 1024**2  # a batch and the buffers around it are used again


def serve(file: Path, *, check: bool, as_json: bool) -> None:
    """Runs until SIGTERM or SIGINT. With `check`, only checks the file and whether the address is free.
    Raises `PenstockError`."""
    config = settings.load(file)
    for warning in warnings(config):
        say_json({"warning": warning}) if as_json else say(f"Warning: {warning}")
    if check:
        Listeners(config).close()
        for name in config.logs:
            config.pipeline_of(name)  # raises what it does not accept
        say_json({"ok": True}) if as_json else say("The file can be served.")
        return

    def ready(addresses: dict[str, str]) -> None:
        if as_json:
            say_json({"listening": addresses})
        else:
            names = ", ".join(config.destinations)
            say(f"Serving {names} to clients of Canal at {addresses['canal']}.")
            if "http" in addresses:
                say(f"HTTP is at http://{addresses['http']}/destinations.")
            if "grpc" in addresses:
                say(f"Arrow Flight is at {addresses['grpc']}.")

    _share_arenas()
    server = Server(config, file, ready)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    server.run()


def _share_arenas() -> None:
    """Makes threads share the allocator's memory. With an arena for each, what one has freed is kept for it,
    and a server with many clients grows by that. Memory of batches is kept for the next ones: to get it from
    the system each time took a quarter of the server's time."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_ARENA_MAX, _ARENAS_MAX)
        mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)


def warnings(config: settings.ServerConfig) -> list[str]:
    """Settings that work, but perhaps not as the user expects, each as a sentence."""
    found = []
    for name, user in config.users.items():
        account = user.account(name)
        if account.is_name:
            found.append(f"The password of the user {name} is the user's name: anybody can guess it.")
        if not account.reads_scrambled:
            found.append(
                f"The user {name} has `password_sha256` alone. Java clients from Canal 1.1.3 on scramble the "
                "password, which needs `password_sha1_sha1` or `password`; they will be refused."
            )
    for kind, readers in (("user", config.users), ("token", config.tokens)):
        for name, reader in readers.items():
            if unknown := set(reader.destinations) - config.destinations.keys() - {"*"}:
                found.append(
                    f"The {kind} {name} may read `{min(unknown)}`, and there is no such destination."
                )
    tokens = bool(config.tokens)
    protected = {"canal": bool(config.users), "http": tokens, "grpc": tokens or bool(config.users)}
    encrypted = config.tls.listeners if config.tls is not None else []
    for name, address in config.addresses.items():
        if _is_local(address):
            continue
        if not protected[name]:
            needed = "users" if name == "canal" else "tokens"
            found.append(f"There are no `{needed}`: anybody who reaches {address} can read all destinations.")
        if name not in encrypted:
            found.append(f"What clients at {address} read is not encrypted (`tls`).")
    if config.zookeeper and config.positions.type == "file":
        found.append(
            "With `zookeeper`, positions are in ZooKeeper, since another server must find them: "
            "`positions.type: file` means `zookeeper`."
        )
    advertised = config.advertise or config.listen.canal
    if config.is_shared and _is_local(advertised):
        found.append(
            f"Other servers will name the address {advertised}, which only this machine reaches. Use another "
            "one for `listen.canal` or `advertise`."
        )
    return found


def _is_local(address: str) -> bool:
    """Whether only this machine reaches it."""
    return address.rpartition(":")[0].strip("[]") in ("127.0.0.1", "localhost", "::1")
