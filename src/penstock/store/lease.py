"""What leases in a store have in common: the receiver's of an archive, and the driver's of a pipeline.

A lease is a JSON object that its holder renews. It has the `id` of the holder's folder, so that a process
that is started again in the same folder knows its own lease.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from penstock.disk.replace import replace_file
from penstock.store.base import Store, Version
from penstock.store.errors import ObjectMissing


def folder_id(folder: Path, name: str, machine: str) -> str:
    """The id of a folder, which is kept in its file `name`. A copy of the folder, and the same folder on
    another `machine`, get another one."""
    path = folder / name
    status = folder.stat()
    place = f"{machine} {status.st_dev} {status.st_ino}"
    try:
        known = json.loads(path.read_text("utf-8"))
        if known["place"] == place:
            return str(known["id"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        pass
    made = uuid.uuid4().hex
    replace_file(path, json.dumps({"id": made, "place": place}).encode(), durable=True)
    return made


def read_lease(store: Store, key: str) -> tuple[dict[str, Any], Version | None]:
    """The lease and its version; an empty one if there is none."""
    try:
        found = store.get(key)
    except ObjectMissing:
        return {}, None
    try:
        fields = json.loads(found.data)
    except ValueError:
        fields = {}
    return fields if isinstance(fields, dict) else {}, found.info.version
