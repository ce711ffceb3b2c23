"""Ends a call at a chosen moment, as a kill of the process would.

`Killed` is raised when the code of sinks is about to make its n-th call, be it of Python or of C: before a
rename, between a write and its commit, after the commit and before what follows it. What a killed process
would not do any more (`finally`) is done here; what it leaves undone is left undone here, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

PARTS = ("/penstock/sinks/", "/penstock/disk/replace.py", "/conformance/example/")
"""Calls count in files with one of these in their paths. `places_of` adds a sink in another package."""


class Killed(BaseException):
    """Not an `Exception`: no code of a sink may go on after it."""


class _Counter:
    def __init__(self, last: int | None, places: tuple[str, ...]) -> None:
        self.calls = 0
        self._places = places
        self._last = last
        self._ended = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event not in ("call", "c_call") or not any(
            place in frame.f_code.co_filename for place in self._places
        ):
            return
        self.calls += 1
        if self._last is None or self._ended or self.calls < self._last:
            return
        # What a killed process holds is released. Another thread of this one would wait for it for ever.
        if getattr(argument, "__name__", "") not in ("__exit__", "release"):
            self._ended = True
            raise Killed


def places_of(sink: object) -> tuple[str, ...]:
    """`PARTS`, and the package or module that the sink's class is in, if that is not Penstock itself."""
    package = sys.modules[type(sink).__module__.partition(".")[0]]
    if package.__name__ == "penstock":
        return PARTS
    folders = [f"{Path(folder)}/" for folder in getattr(package, "__path__", ())]
    return (*PARTS, *(folders or [str(package.__file__)]))


def calls_of(write: Callable[[], Any], places: tuple[str, ...] = PARTS) -> int:
    """How many calls it makes."""
    counter = _Counter(None, places)
    sys.setprofile(counter)
    try:
        write()
    finally:
        sys.setprofile(None)
    return counter.calls


def killed_at(number: int, write: Callable[[], Any], places: tuple[str, ...] = PARTS) -> bool:
    """False: it ended before that call."""
    sys.setprofile(_Counter(number, places))
    try:
        write()
        return False
    except Killed:
        return True
    finally:
        sys.setprofile(None)
