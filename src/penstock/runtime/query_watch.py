"""Starts the Spark query that runs the epochs, restarts it when it ends, and stops it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from penstock.backoff import Backoff, Schedule
from penstock.config import RetriesConfig
from penstock.errors import SparkFailed
from penstock.failures.messages import is_lasting, one_sentence

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Time between two questions to Spark whether the query is running. Each costs as much as the rest of a
tick."""
RETRY = Schedule(first_s=2.0, max_s=30.0)
"""Pauses before restarts of the query. What made it fail (memory, a store) is seldom mended within a
second."""


class QueryWatch:
    """`start` starts a query (a StreamingQuery). `failure` returns the error that ended the last batch, if
    it is known; Spark's own exception has only its text. `failed` is called with each error after which the
    query is restarted."""

    def __init__(
        self,
        retries: RetriesConfig,
        stopping: threading.Event,
        *,
        start: Callable[[], Any],
        failure: Callable[[], BaseException | None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._restarts_max = retries.restarts_max
        self._stopping = stopping
        self._start = start
        self._failure = failure
        self._failed = failed
        self._query: Any = None
        self._backoff = Backoff(RETRY)
        self._looked = 0.0

    def start(self) -> None:
        self._query = self._start()

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()

    def epoch_applied(self) -> None:
        """Says that the query works, so earlier failures do not count any more. May be called from any
        thread."""
        self._backoff.succeeded()

    def check(self) -> None:
        """Restarts the query if it has ended. Raises the error that ended it if it is permanent, or if the
        query was already restarted `retries.restarts_max` times without an applied epoch in between."""
        now = time.monotonic()
        if self._failure() is None and now < self._looked + LOOK_SECONDS:
            return
        self._looked = now
        if self._query.isActive:
            return
        error = self._failure() or self._query.exception() or SparkFailed("The Spark query ended.")
        self._backoff.failed()
        restarts = self._backoff.failures
        if restarts > self._restarts_max or is_lasting(error):
            raise error
        log.warning("the Spark query ended and is started again (%d): %s", restarts, one_sentence(error))
        self._failed(error)
        self._backoff.wait(self._stopping)
        self.start()
