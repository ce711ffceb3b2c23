"""Errors on their way from a Python worker through the JVM to the driver.

Spark carries a worker's exception as text. `crossing()` puts one line of JSON with the class, message, hint
and details of a `PenstockError` into that text; `returned()` finds it there and gives the error back as it
was.
"""

from __future__ import annotations

import base64
import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import InternalError, PenstockError

_MARK = re.compile(r"penstock-error<([A-Za-z0-9+/=]+)>")


class CrossedError(Exception):
    """Carrier of a `PenstockError`; its text holds the pickled error in base64."""


@contextmanager
def crossing(table: str) -> Iterator[None]:
    """Inside a worker: our own errors leave it in a form that the driver can rebuild."""
    try:
        yield
    except Exception as error:
        from penstock._core import DecodeError
        from penstock.spark.tasks import core_error

        ours = core_error(error, table) if isinstance(error, DecodeError) else error
        if not isinstance(ours, PenstockError):
            raise
        packed = base64.b64encode(pickle.dumps(ours)).decode()
        raise CrossedError(f"{ours.message} penstock-error<{packed}>") from error


def returned(error: BaseException) -> BaseException:
    """In the driver: the `PenstockError` that a worker raised, or the error itself."""
    if isinstance(error, PenstockError):
        return error
    match = _MARK.search(str(error))
    if match is None:
        return error
    found = pickle.loads(base64.b64decode(match[1]))  # written by our own worker of this very job
    return found if isinstance(found, PenstockError) else InternalError(str(found))
