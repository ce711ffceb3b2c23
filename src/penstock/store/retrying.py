"""Tries one request again while that can help, with the project's back-off and within limits."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from penstock.backoff import Backoff
from penstock.store.faults import Fault
from penstock.store.options import Retries

log = logging.getLogger(__name__)
T = TypeVar("T")


class Failed(Exception):
    """An attempt has failed with this fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self.fault = fault


def retried(
    attempt: Callable[[], T],
    limits: Retries,
    *,
    between: Callable[[Fault], None] = lambda fault: None,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[Backoff], object] = Backoff.wait,
) -> T:
    """What `attempt` returns. It raises `Failed`; other exceptions end this at once.

    Raises the last fault's error: at once if it is not a passing one, otherwise when `limits` are reached.
    `between` is called before each further attempt.
    """
    backoff = Backoff(limits.schedule, clock=clock)
    deadline = clock() + limits.seconds_max
    while True:
        try:
            return attempt()
        except Failed as failed:
            fault = failed.fault
        seconds = backoff.failed()
        spent = backoff.failures >= min(limits.attempts_max, fault.attempts_max)
        if not fault.passing or spent or clock() + seconds > deadline:
            raise fault.error
        log.info("%s Attempt %d follows in %.1f s.", fault.error.message, backoff.failures + 1, seconds)
        wait(backoff)
        between(fault)
