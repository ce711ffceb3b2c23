"""Runs moto's server, but lets requests that write in one after the other. A program, not a module.

moto compares the condition of a put (`If-None-Match`, `If-Match`) and stores the object in two steps, in
threads. So two puts of an absent object may both succeed, which no store that people run permits.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto import server
from moto.moto_server.werkzeug_app import DomainDispatcherApplication

_in_turn = threading.Lock()
_application: Any = DomainDispatcherApplication
_answer: Callable[..., Iterable[bytes]] = _application.__call__


def _answered(application: Any, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
    if environ["REQUEST_METHOD"] not in ("PUT", "POST", "DELETE"):
        return _answer(application, environ, start)
    if (length := environ.get("CONTENT_LENGTH")) is not None:  # a client that is slow holds up nobody
        environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(length or 0)))
    with _in_turn:
        return list(_answer(application, environ, start))


if __name__ == "__main__":
    _application.__call__ = _answered
    server.main()
