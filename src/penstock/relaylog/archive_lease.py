"""Says which receiver writes an archive, and keeps a second one away.

`lease.json` names the receiver. Its `id` is that of its folder, so a receiver that is started again in the
same folder goes on at once: the lock of the folder proves that its predecessor has ended. A receiver with
another folder watches the lease first. While it is renewed, its owner lives, and the other one is refused.

The lease only avoids accidents. What makes two writers safe is the generation in the manifest: see
`archiver.py`.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.errors import LeaseHeld
from penstock.store.base import Store, Version
from penstock.store.lease import folder_id, read_lease

LEASE = "lease.json"
RENEW_SECONDS = 15.0
"""How often a running receiver renews its lease: 170,000 requests a month, less than a dollar at Amazon."""
WATCH_SECONDS = 45.0
"""How long a lease is watched: three renewals, so that one may fail."""
_LOOK_SECONDS = 1.0
"""How often the lease is looked at meanwhile."""
_IDENTITY = "archive-id"


def identity(folder: Path) -> str:
    """The id of a relay log's folder. It does not belong to the log: a copy elsewhere gets another one."""
    return folder_id(folder, _IDENTITY, socket.gethostname())


def read(store: Store) -> tuple[dict[str, Any], Version | None]:
    """The lease and its version; an empty one if there is none."""
    return read_lease(store, LEASE)


def write(store: Store, owner: dict[str, Any], *, stopped: bool = False) -> None:
    state = {"stopped": stopped, "renewed": uuid.uuid4().hex}
    store.put(LEASE, json.dumps({**owner, **state}).encode())


def owner(id_: str, generation: int) -> dict[str, Any]:
    return {
        "id": id_,
        "generation": generation,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "since": time.time(),
    }


def wait_until_free(store: Store, id_: str, stopping: Callable[[], bool]) -> None:
    """Returns when no receiver of another folder renews the lease. Raises `LeaseHeld` if one does."""
    fields, version = read(store)
    if not fields or fields.get("stopped") or fields.get("id") == id_:
        return
    deadline = time.monotonic() + WATCH_SECONDS
    while time.monotonic() < deadline and not stopping():
        time.sleep(_LOOK_SECONDS)  # watches whether somebody else does something, with a limit
        now, found = read(store)
        if now.get("stopped"):
            return
        if found != version:
            raise held(store, now)


def held(store: Store, by: dict[str, Any]) -> LeaseHeld:
    return LeaseHeld(
        f"Another receiver (process {by.get('pid')} on {by.get('host')}) writes the archive "
        f"{store.location.url()}.",
        hint="One receiver serves any number of pipelines. Use the running one, or stop it first. Each relay "
        "log needs an archive of its own: `relay_log.archive`.",
        path=store.location.url(),
    )
