"""Brings errors from a Python worker through the JVM to the driver.

Spark passes on a worker's exception as text. That text also contains text of others: names of tables and
columns, and messages of servers. So it cannot be trusted. `crossing()` adds a *carrier*: the error's class,
message, hint and details as JSON in base64, and a tag, computed from them with a key of this process. The
key reaches the workers inside the function that they run, never beside data, and appears in no text. Only a
carrier with the right tag is read. It names one of the classes of `errors.py`; no code is ever read from it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import CLASSES, InternalError, PenstockError, TableError, rebuilt
from penstock.printable import argument

TEXT_CHARACTERS_MAX = 16_000
"""Limit of an error's message and of its hint, so that the JVM's texts stay short. The rest is cut off."""
DETAILS_BYTES_MAX = 32_000
"""Limit of an error's details as JSON, for the same reason. Details that do not fit are left out."""
CARRIERS_MAX = 100
"""Carriers that are checked in a text, from its end. So a text full of false ones costs no more time."""

_CARRIER = re.compile(r"penstock-error<([0-9a-f]{64}):([A-Za-z0-9+/=]{1,400000})>")
_KEY = secrets.token_bytes(32)


class CrossedError(Exception):
    """An error whose text ends with the carrier of a `PenstockError`."""


@dataclass(frozen=True)
class Crossing:
    """Created in the driver, and sent to the workers with a task's function: `with crossing.guard():`
    around its work."""

    table: str
    key: bytes = field(repr=False)

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Lets Penstock's errors leave the block in a form from which the driver can rebuild them."""
        try:
            yield
        except Exception as error:
            from penstock._core import DecodeError

            ours = core_error(error, self.table) if isinstance(error, DecodeError) else error
            if not isinstance(ours, PenstockError):
                raise
            raise CrossedError(f"{ours.message} {_packed(ours, self.key)}") from error


def core_error(error: Exception, table: str) -> PenstockError:
    """Turns an error of the core into one that stops this table and says where in the log it happened."""
    from penstock._core import DecodeError, SchemaMismatch

    if isinstance(error, SchemaMismatch):
        return TableError(
            f"Rows of table {table} cannot be read at offset {error.offset}: {error.reason}.",
            hint=f"If the reason names no cure: `penstock resnapshot FILE {argument(table)}` reads the table "
            f"again with its present definition.",
            table=table,
            offset=error.offset,
            definition_differs=True,
            lacks=error.lacks,
        )
    assert isinstance(error, DecodeError)
    return TableError(
        f"A change of table {table} at offset {error.offset} cannot be decoded: {error.reason}.",
        hint="Please report it with that part of the log; "
        f"`penstock resnapshot FILE {argument(table)}` reads the table again.",
        table=table,
        offset=error.offset,
    )


def crossing(table: str) -> Crossing:
    """Must be called in the driver, when the function for the workers is made."""
    return Crossing(table, _KEY)


def returned(error: BaseException) -> BaseException:
    """The `PenstockError` that a worker raised, called in the driver; the error itself if there is none."""
    if isinstance(error, PenstockError):
        return error
    found = list(_CARRIER.finditer(str(error)))[-CARRIERS_MAX:]
    for match in reversed(found):  # a chain of errors has its last one at the end
        if hmac.compare_digest(match[1], _tag(match[2], _KEY)):
            return _unpacked(match[2]) or error
    return error


def _packed(error: PenstockError, key: bytes) -> str:
    facts = {
        "error": next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in CLASSES),
        "message": error.message[:TEXT_CHARACTERS_MAX],
        "hint": error.hint[:TEXT_CHARACTERS_MAX],
        "details": _bounded(error.details),
    }
    payload = base64.b64encode(json.dumps(facts, default=str).encode()).decode()
    return f"penstock-error<{_tag(payload, key)}:{payload}>"


def _bounded(details: dict[str, Any]) -> dict[str, Any]:
    """The details that fit into `DETAILS_BYTES_MAX`, in their order."""
    kept, left = {}, DETAILS_BYTES_MAX
    for name, value in details.items():
        size = len(json.dumps({name: value}, default=str))
        if size <= left:
            kept[name] = value
            left -= size
    return kept


def _unpacked(payload: str) -> PenstockError | None:
    try:
        facts = json.loads(base64.b64decode(payload))
        fields = {**facts["details"], **{name: facts[name] for name in ("error", "message", "hint")}}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return rebuilt(fields, CLASSES, unknown=InternalError)


def _tag(payload: str, key: bytes) -> str:
    return hmac.new(key, payload.encode(), hashlib.sha256).hexdigest()
