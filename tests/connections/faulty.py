"""How clients are tried against a `FaultyPeer`: each fault at each moment is an outage, and passes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from _pytest.outcomes import Failed

from penstock.errors import TransientError
from penstock.testing.faulty_peer import Fault, FaultyPeer, Moment

GROWTH_BYTES_MAX = 400 * 1024**2
"""How much more memory a client may take during a fault."""
ATTEMPTS_MAX = 10
SECONDS_MAX = 30.0
"""How long an attempt may take, of a client whose own limit is a second."""


def resident(process: int | str = "self") -> int:
    return int(Path("/proc", str(process), "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def bounded_memory(process: int | str = "self") -> Iterator[None]:
    """The process takes no more than `GROWTH_BYTES_MAX` in the block."""
    before, ended, highest = resident(process), threading.Event(), [0]

    def watch() -> None:
        while not ended.wait(0.01):
            highest[0] = max(highest[0], resident(process))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert highest[0] - before < GROWTH_BYTES_MAX, f"{(highest[0] - before) / 1e6:.0f} MB more"


@contextmanager
def subject(what: str) -> Iterator[None]:
    """Says in a failure what it is about."""
    try:
        yield
    except (Exception, Failed) as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error


def recovers(attempt: Callable[[], object]) -> None:
    """The next attempts succeed, though the machine may be busy."""
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            attempt()
            return
        except TransientError:
            continue
    attempt()


def outage(
    peer: FaultyPeer,
    fault: Fault,
    at: Moment,
    attempt: Callable[[], object],
    *,
    after: int = 1,
    named: str | None = None,
    process: int | str = "self",
    seconds_max: float = SECONDS_MAX,
) -> None:
    """Plays the fault, and asserts that the attempt fails as in an outage. Then the peer behaves again.
    `named`: what the error says of the server, if that is not the peer's port. `process`: the client's."""
    peer.play(fault, at=at, after=after)
    began = time.monotonic()
    try:
        for _ in range(ATTEMPTS_MAX):
            with bounded_memory(process), pytest.raises(TransientError) as raised:
                attempt()
            if peer.played:  # else the attempt has found that its connection was closed
                break
        assert peer.played, "the fault was not played"
        assert time.monotonic() - began < seconds_max
        text = str(raised.value)
        assert (named or str(peer.port)) in raised.value.message, text
        assert "unpark" not in text and "bug" not in text and "<html" not in text.lower()
    finally:
        peer.behave()
