"""The Spark query that runs the epochs: started, started again when it ends, and stopped."""

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
"""How often Spark is asked whether the query lives: each question costs as much as a tick without it."""
RETRY = Schedule(first_s=2.0, max_s=30.0)


class QueryWatch:
    """`start` starts a query (a StreamingQuery). `failure` is what ended the last batch, if that is known:
    Spark's own exception holds text only. `failed` is told each error after which the query starts again."""

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
        """The query does its work: what failed before counts no more. Any thread may call this."""
        self._backoff.succeeded()

    def check(self) -> None:
        """Starts the query again if it has ended. Raises what ended it if that cannot pass, or has come again
        after `retries.restarts_max` starts without an applied epoch in between."""
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
