"""Log lines of the command line: their form, and what is left out of them."""

from __future__ import annotations

import logging
import os
import socketserver
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from penstock.failures.log_format import FORMAT, JsonLine, OneLine
from penstock.failures.messages import as_penstock_error
from penstock.printable import LogFormatter

log = logging.getLogger(__name__)


def is_debug() -> bool:
    return os.environ.get("PENSTOCK_DEBUG", "") not in ("", "0")


def prints_json() -> bool:
    """Whether errors and log lines are JSON, also where the command line cannot be parsed."""
    return "--json" in sys.argv


def quiet(state: Callable[[], Path | None]) -> None:
    """Configures logging. Log lines and errors in threads are shown without stack traces, unless in debug
    mode. `state` returns the state directory of this command's pipeline, or None if it is not known."""
    handler = logging.StreamHandler()
    one_line = JsonLine if prints_json() else OneLine
    handler.setFormatter(LogFormatter(FORMAT) if is_debug() else one_line(state))
    logging.basicConfig(
        level=os.environ.get("PENSTOCK_LOG", "WARNING").upper(), handlers=[handler], force=True
    )
    # These loggers print stack traces of errors that we report in one paragraph.
    for name in ("py4j.clientserver", "DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)

    def in_thread(arguments: threading.ExceptHookArgs) -> None:
        if arguments.exc_value is not None and arguments.exc_type is not SystemExit:
            log.error("a thread ended: %s", as_penstock_error(arguments.exc_value, state()))

    def in_request(server: socketserver.BaseServer, request: object, address: object) -> None:
        """PySpark's accumulator server fails like this when its JVM is killed. Another message reports
        that."""
        if (error := sys.exc_info()[1]) is not None:
            log.info("a request to %s failed: %s", type(server).__name__, as_penstock_error(error, state()))

    threading.excepthook = in_thread
    socketserver.BaseServer.handle_error = in_request  # type: ignore[method-assign, assignment]
    sys.unraisablehook = lambda found: log.debug("ignored: %s", type(found.exc_value).__name__)
