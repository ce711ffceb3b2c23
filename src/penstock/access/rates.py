"""How many requests somebody may send: a bucket of tokens, which is filled again all the time."""

from __future__ import annotations

import time
from collections import OrderedDict

HOLDERS_MAX = 10_000
"""Users, tokens and addresses whose requests are counted, so that many of them do not fill the memory."""


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


class Limits:
    """The request limits of all users, tokens and addresses."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._known: OrderedDict[str, RequestLimit] = OrderedDict()

    def of(self, who: str, per_second: int | None) -> RequestLimit | None:
        """The limit of one user, token or address, over all its connections. `per_second` None: the usual
        limit."""
        per_second = self._per_second if per_second is None else per_second
        if not per_second:
            return None
        found = self._known.pop(who, None) or RequestLimit(per_second, who)
        self._known[who] = found
        while len(self._known) > HOLDERS_MAX:
            self._known.popitem(last=False)
        return found
