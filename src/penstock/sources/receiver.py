"""Who writes a source's log into the relay log, as a pipeline sees it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol


class Receiver(Protocol):
    """Keeps the relay log growing while a pipeline runs, and restarts what writes it.

    What it promises about the log:

    - A segment holds whole events as the source sent them; it begins at a transaction's beginning.
    - Only bytes that are durable are committed in the index, and only up to the end of a transaction.
    - An index entry says which tables its span touches, every statement that is not transaction control, and
      where the source stood (`relaylog/index.py`).
    - An offset that a reader has seen is never taken back.
    - One writer at a time: it holds the lease of the relay log. Where another process holds it, that one
      writes, and this one waits to take over.
    """

    def start(self) -> None:
        """Begins in the background and returns at once."""

    def check(self) -> None:
        """Raises the error that ended the receiver for good."""

    def wait_for(
        self, condition: Callable[[], Any], what: str, stopping: threading.Event, *, seconds: float
    ) -> None:
        """Returns once the condition holds. `TransientError` after `seconds`, or when `stopping` is set; an
        error that ends the receiver is raised at once."""

    def renew(self) -> None:
        """Moves the log's end on although the source is idle: soon there is a later offset than now."""

    def ask_to_stop(self) -> None:
        """Begins to stop and returns at once; `stop` is still to be called."""

    def stop(self) -> None:
        """Returns when nothing of ours writes any more. May be called twice, and without `start`."""

    def describe(self) -> str:
        """One line for people: what the receiver does now."""
