"""How many requests somebody may send: a bucket of tokens, which is filled again all the time."""

from __future__ import annotations

import time


class TooMany(Exception):
    """A request over a limit. Its text is for the client, which may ask again after `retry_s` seconds."""

    def __init__(self, message: str, retry_s: float) -> None:
        super().__init__(message)
        self.retry_s = retry_s


class RequestLimit:
    """Allows `per_second` requests a second, and as many at once. `who`: whose limit it is, for messages."""

    def __init__(self, per_second: int, who: str) -> None:
        self._per_second = per_second
        self._who = who
        self._tokens = float(per_second)
        self._at = time.monotonic()

    def take(self) -> None:
        """Counts a request. Raises `TooMany`."""
        now = time.monotonic()
        self._tokens = min(self._per_second, self._tokens + (now - self._at) * self._per_second)
        self._at = now
        if self._tokens < 1:
            left = (1 - self._tokens) / self._per_second
            raise TooMany(
                f"too many requests: {self._who} may send {self._per_second} a second "
                f"(`requests_per_second_max`); try again in {left:.3f} s",
                left,
            )
        self._tokens -= 1
