"""What a server answers, or that it does not. Pure.

A network, a proxy, a login page, or another program at a server's address may answer anything at any time. So
an answer that is not as the server's protocol says is as good as none: whoever asked waits, and asks again.
Nothing of such an answer is shown.
"""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Iterator
from typing import Any

STRANGE = "it answers something else than expected"


class NoAnswer(Exception):
    """The server could not be reached, has closed the connection, does not answer in time, or answers what
    such a server does not. Its text says why, as the end of a sentence, and has no values of rows."""


def parsed(data: bytes | str, shape: Any = object) -> Any:
    """The value of a JSON text that has this shape (see `fits`). Raises `NoAnswer`."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise NoAnswer(f"{STRANGE} (no JSON)") from None
    if not fits(found, shape):
        raise NoAnswer(f"{STRANGE} (JSON of another shape)")
    return found


def fits(found: Any, shape: Any) -> bool:
    """Whether a JSON value has a shape: a type; `{"name": shape}`, an object with at least these members;
    `{...: shape}`, one with such members only; `[shape]`, a list of these; `(shape, …)`, one of several."""
    if isinstance(shape, tuple):
        return any(fits(found, one) for one in shape)
    if isinstance(shape, list):
        return isinstance(found, list) and all(fits(one, shape[0]) for one in found)
    if isinstance(shape, dict):
        return isinstance(found, dict) and all(
            all(fits(one, part) for one in found.values())
            if name is ...
            else name in found and fits(found[name], part)
            for name, part in shape.items()
        )
    if shape is int and isinstance(found, bool):
        return False
    return found is None if shape is None else isinstance(found, shape)


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """Around code that takes bytes apart as a protocol says: an error in it is one of these bytes."""
    try:
        yield
    except (ValueError, LookupError, TypeError, OverflowError, MemoryError, struct.error):
        raise NoAnswer(STRANGE) from None
