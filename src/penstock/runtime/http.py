"""HTTP of a running pipeline, in a thread: its health and status, and signals.

`/status` and `/health` use the report that the pipeline's loop writes each second. So a loop that is stuck is
noticed, and no request reads state while the loop changes it.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.requests import Request

from penstock.access.credentials import Attempts
from penstock.access.door import address_of, bind, tls_context
from penstock.access.hosts import Hosts
from penstock.access.rates import Limits
from penstock.access.tokens import Rights, Tokens
from penstock.config.http_section import PipelineHttpSection
from penstock.errors import PenstockError
from penstock.http.pages import JSONResponse, Page, Refusal, application, token_holder
from penstock.http.server import HttpServer
from penstock.relaylog.status import age_seconds
from penstock.signals import pages as signal_pages
from penstock.state import StateStore
from penstock.state.report import read_status

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 64
"""Open connections. More are closed at once, because the pipeline needs its file descriptors."""
WORKS_SECONDS_MAX = 60.0
"""The loop counts as stuck once its last report is older. It reports every second, but may wait for a slow
source."""


@contextmanager
def serving(config: PipelineHttpSection, state: StateStore) -> Iterator[str]:
    """Listens while the block lasts and yields the address. `state` must stay open. Raises `ConfigError` if
    the address cannot be bound, or TLS cannot be used."""
    tls = None if config.tls is None else tls_context(config.tls.cert, config.tls.key)
    listener = bind(config.listen, "http.listen")
    address = address_of(listener)
    tokens = Tokens(
        config.tokens, Limits(config.requests_per_second_max), Attempts(config.failed_logins_per_minute_max)
    )
    app = application(
        [*_pages(state.path.parent), *signal_pages.pages(state)],
        Hosts.at((config.listen, address), config.hosts),
        token_holder(tokens),
        unusable=(PenstockError, sqlite3.Error),
    )
    with HttpServer(listener, app, connections_max=CONNECTIONS_MAX, tls=tls).in_thread("http"):
        log.info("accepting signals over HTTP at %s", address)
        yield address


def _pages(folder: Path) -> list[Page]:
    def health(request: Request, rights: Rights) -> JSONResponse:
        report = _report(folder)
        healthy = report is not None and age_seconds(report) < WORKS_SECONDS_MAX
        return JSONResponse({"healthy": healthy}, 200 if healthy else 503)

    def status(request: Request, rights: Rights) -> JSONResponse:
        report = _report(folder)
        if report is None:
            raise Refusal(503, "The pipeline is starting or stopping.", "Try again.")
        return JSONResponse(report)

    return [Page("/health", health, None), Page("/status", status, "reader")]


def _report(folder: Path) -> dict[str, Any] | None:
    """The last report of this process; None while the pipeline starts or stops."""
    report = read_status(folder)
    return report if report is not None and report.get("pid") == os.getpid() else None
