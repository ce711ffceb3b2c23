"""Searches of readers over segments that retention may delete meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from penstock.errors import LogPurged

if TYPE_CHECKING:
    from penstock.relaylog.reader import RelayLog

_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")


def over_all_segments(
    search: Callable[Concatenate[RelayLog, _Arguments], _Answer],
) -> Callable[Concatenate[RelayLog, _Arguments], _Answer]:
    """Decorator for searches over segments that may be deleted: if retention removes one during the search,
    the search starts again without it."""

    @wraps(search)
    def searched(log: RelayLog, /, *arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Answer:
        while True:
            try:
                return search(log, *arguments, **named)
            except LogPurged:
                if not log.forget_removed():
                    raise

    return searched
