"""The receiver writes a source's log into the relay log. This is how a pipeline sees it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol


class Receiver(Protocol):
    """Writes the relay log while a pipeline runs, and restarts the writer if it fails.

    It promises about the log:

    - A segment contains whole events as the source sent them. It begins at the start of a transaction.
    - Only bytes that are durable are committed in the index, and only up to the end of a transaction.
    - An index entry names the tables of its span, every statement that is not transaction control, and the
      source's position (`relaylog/index.py`).
    - An offset that a reader has seen is never withdrawn.
    - There is one writer at a time, which has the lease of the relay log. While another process has it, this
      one waits to take over.
    """

    def start(self) -> None:
        """Starts in the background and returns at once."""

    def check(self) -> None:
        """Raises the error that ended the receiver for good."""

    def wait_for(
        self, condition: Callable[[], Any], what: str, stopping: threading.Event, *, seconds: float
    ) -> None:
        """Waits until the condition is true. Raises `TransientError` after `seconds`, or when `stopping` is
        set. Raises an error that ends the receiver at once. `what` completes the message: "waited for …"."""

    def renew(self) -> None:
        """Advances the end of the log even if the source is idle: soon there is a later offset than now."""

    def ask_to_stop(self) -> None:
        """Begins to stop and returns at once. The caller still calls `stop`."""

    def stop(self) -> None:
        """Stops, and returns when nothing is being written any more. May be called twice, and without
        `start`."""

    def describe(self) -> str:
        """What the receiver is doing now, in one line for people."""
