"""Runs work in the background of a test, such as applications that write or a monitor of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

Work = Callable[[Event], None]


@contextmanager
def meanwhile(*works: Work) -> Iterator[None]:
    """Runs each work in its own thread while the block runs. A work gets an event, and must return once the
    event is set.

    The error of a work is raised after the block, so a test fails if its background work has failed. If the
    block fails too, its error gets the error of the work as its cause.
    """
    ending = Event()
    with ThreadPoolExecutor(len(works), thread_name_prefix="meanwhile") as pool:
        done = [pool.submit(work, ending) for work in works]
        try:
            yield
        except BaseException as error:
            ending.set()
            for failure in _failures(done):
                raise error from failure
            raise
        ending.set()
        for failure in _failures(done):
            raise failure


def _failures(done: list[Future[None]]) -> Iterator[BaseException]:
    """Waits for each work and yields the errors."""
    return (error for each in done if (error := each.exception()) is not None)
