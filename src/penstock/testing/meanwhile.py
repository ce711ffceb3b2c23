"""What goes on beside a test: applications that write, a watcher of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

Work = Callable[[Event], None]


@contextmanager
def meanwhile(*works: Work) -> Iterator[None]:
    """Each work has a thread of its own while the block lasts; it ends once the event it is given is set.

    What a work raises is raised after the block: no test passes whose applications died in its midst. Where
    the block fails too, its error has that of the work as its cause.
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
    """Waits for the works one by one."""
    return (error for each in done if (error := each.exception()) is not None)
