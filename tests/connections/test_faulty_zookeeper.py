"""The client of ZooKeeper (kazoo), against a peer that answers anything."""

from __future__ import annotations

import itertools
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kazoo.exceptions import KazooException
from tests.connections.faulty import bounded_memory, subject

from penstock.errors import TransientError
from penstock.serve.zookeeper.connection import ZooKeeper
from penstock.testing.faulty_peer import ANY_PROTOCOL, Fault, FaultyPeer, Moment, says
from penstock.testing.scenario import wait_for
from penstock.testing.servers import ZooKeeperEnsemble

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SESSION_S = 2.0
RENEW_S = 0.25


def _frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def _event(kind: int, length: int, path: bytes) -> bytes:
    return _frame(struct.pack(">iqi", -1, 1, 0) + struct.pack(">iii", kind, 3, length) + path)


def _accepted(timeout_ms: int, password: bytes) -> bytes:
    return _frame(struct.pack(">iiqi", 0, timeout_ms, 5, len(password)) + password)


_ENDLESS = struct.pack(">i", 2**31 - 1)
FAULTS = (
    *ANY_PROTOCOL,
    *(
        says(name, data)
        for name, data in (
            ("an empty frame", struct.pack(">i", 0)), ("a negative frame", struct.pack(">i", -5)),
            ("a short frame", _frame(b"\0\0")),
            ("a reply to something else", _frame(struct.pack(">iqi", 77, 2**62, 0) + b"abc")),
            ("an unknown error", _frame(struct.pack(">iqi", 1, 2**62, -9999))),
            ("an event that lies", _event(3, 2**31 - 1, b"x")), ("an unknown event", _event(99, 1, b"/")),
            ("an event that is no text", _event(3, 2, b"\xff\xfe")),
            ("a session that has ended", _accepted(0, bytes(16))),
            ("a session for ever", _accepted(2**31 - 1, bytes(16))),
            ("a session with a long password", _accepted(4000, bytes(2_000_000))),
            ("a session without a password", _frame(struct.pack(">iiqi", 0, 4000, 5, -1))),
        )
    ),
    Fault("a frame without end", lambda: itertools.chain([_ENDLESS], itertools.repeat(b"x" * 65536))),
    Fault("events without end", lambda: itertools.repeat(_event(4, 1, b"/") * 1000)),
    Fault("pings without end", lambda: itertools.repeat(_frame(struct.pack(">iqi", -2, 1, 0)) * 999)),
)  # fmt: skip


@contextmanager
def renewed(port: int, said: set[str]) -> Iterator[ZooKeeper]:
    """A session that is renewed all the time. `said`: gets the errors. One that the server does not expect
    ends the renewals."""
    zookeeper = ZooKeeper([f"127.0.0.1:{port}"], SESSION_S)
    zookeeper.start(20)
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(RENEW_S):
            try:
                zookeeper.renew()
            except (KazooException, TransientError) as error:
                said.add(str(error))

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        wait_for(lambda: zookeeper.alive, "a session that is alive")
        yield zookeeper
    finally:
        ended.set()
        thread.join()
        zookeeper.close()


@pytest.mark.parametrize("at", ["connect", "answer", "middle"])
def test_a_session_is_alive_again_whatever_was_answered_at_whatever_moment(at: Moment) -> None:
    said: set[str] = set()
    with ZooKeeperEnsemble() as ensemble:
        [server] = ensemble.servers
        with FaultyPeer(server.host, server.port) as peer, renewed(peer.port, said) as zookeeper:
            for fault in FAULTS:
                with subject(str(fault)), bounded_memory():
                    said.clear()
                    peer.play(fault, at=at)
                    wait_for(lambda: not zookeeper.alive and said, "the end of the session")
                    assert peer.played
                    peer.behave()
                    wait_for(lambda: zookeeper.alive, "a session that is alive", seconds=30)
                    assert all(str(peer.port) in one and "ZooKeeper" in one for one in said), said
