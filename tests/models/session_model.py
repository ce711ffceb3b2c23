"""What a client believes of its session, while it is suspended, its member is cut off, or connections end."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from unittest import mock

from kazoo.exceptions import KazooException
from tests.models.simulation import Process, World
from tests.models.zookeeper_model import Client, Ensemble

from penstock import clock
from penstock.errors import TransientError
from penstock.serve.zookeeper.connection import ZooKeeper

SESSION_S = 4.0
ASKED_S = 16.0
"""Where ZooKeeper agrees to less."""
SECONDS = 60.0


def _renewed_by_a_read(zookeeper: ZooKeeper) -> None:
    _believed(zookeeper, lambda: zookeeper.client.exists_async("/"))


def _renewed_at_once(zookeeper: ZooKeeper) -> None:
    """As if the leader heard at once of what is asked."""

    def commit() -> Any:
        transaction = zookeeper.client.transaction()
        transaction.check("/", -1)
        return transaction.commit_async()

    _believed(zookeeper, commit)


def _believed(zookeeper: ZooKeeper, ask: Any) -> None:
    asked, session = clock.seconds(), zookeeper.session
    zookeeper.answer(ask())
    if zookeeper.session == session:
        zookeeper._alive_session, zookeeper._reached = session, (session, asked)


def _agreed_as_asked(zookeeper: ZooKeeper, asked: float, granted_s: float) -> None:
    zookeeper._reached, zookeeper._answered = (zookeeper.session, asked), []


BROKEN: dict[str, tuple[Any, str, Any]] = {
    "renewed by a read": (ZooKeeper, "renew", _renewed_by_a_read),
    "reports": (ZooKeeper, "renew", _renewed_at_once),
    "agreed time": (ZooKeeper, "connected", _agreed_as_asked),
}


class SessionHistory(World):
    """`play` goes through one history, and raises `Violation`. `alive_s`: for how long it took itself for
    alive."""

    def __init__(self, seed: int, broken: str = "") -> None:
        super().__init__(seed)
        self._broken = broken
        self._asked_s = ASKED_S if broken == "agreed time" or seed % 4 == 0 else SESSION_S
        self.ensemble = Ensemble(self, SESSION_S)
        self.holder = Process(1 + self.dice.uniform(-0.01, 0.01))
        self.alive_s = 0.0

    def play(self) -> None:
        patches = [mock.patch.object(clock, "seconds", self.clock)]
        if self._broken:
            patches.append(mock.patch.object(*BROKEN[self._broken]))
        for one in patches:
            one.start()
        try:
            self.booting = self.holder
            self.zookeeper = ZooKeeper(["127.0.0.1:1"], self._asked_s)
            self.client = Client(self.ensemble, lambda asked: self.zookeeper.connected(asked, SESSION_S))
            self.zookeeper.client = self.client
            self.spawn(self._renew)
            self.spawn(self._look)
            self.booting = self.network
            self.spawn(self._break)
            self.run(SECONDS)
        finally:
            self.close()
            for one in patches:
                one.stop()

    def _renew(self) -> None:
        while True:
            with suppress(KazooException, TransientError):
                self.zookeeper.renew()
            self.pause(self.zookeeper.renew_s, self.zookeeper.renew_s)

    def _look(self) -> None:
        while True:
            session = self.zookeeper.session
            if self.zookeeper.alive_in(session):
                self.alive_s += 0.05
                if session not in self.ensemble.sessions:
                    self.violated("it takes a session for alive that has ended")
            self.pause(0.05, 0.05)

    def _break(self) -> None:
        while True:
            self.pause(8.0, 1.0)
            link = self.client.link
            match self.dice.choice(("suspend", "suspend", "cut off", "connection")):
                case "suspend":
                    self.holder.suspended_until = self.now + SESSION_S * self.dice.uniform(0.8, 1.1)
                case "cut off" if link is not None:
                    self.ensemble.cut_off(link.member, self.dice.uniform(3.0, 9.0))
                    self.pause(9.0, 9.0)
                case "connection" if link is not None:
                    link.close()
