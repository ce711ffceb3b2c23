"""A trial of what views say of the log, while others write: of every read, which transactions it showed,
which ones its watermarks claim, and where the server's log has their commits.

Writers are loops in the server: single rows with and without an asynchronous commit, subtransactions,
rollbacks, prepared transactions. Each transaction leaves its id as a row.

`python -m tests.sources.postgresql.view_trial --reads 200000 [--standby] [--version 17]` runs it for long.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import threading
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
from tests.sources.postgresql.pg_log import connected, options_at

from penstock._core import XidSet
from penstock.model.schema import TableId
from penstock.sources.postgresql.connection import connect
from penstock.sources.postgresql.log_position import lsn_of
from penstock.sources.postgresql.reading import BEGIN, lock
from penstock.sources.postgresql.views import ChunkViews, PrimaryViews, StandbyViews
from penstock.sources.postgresql.window import PostgreSqlWindow
from penstock.testing.servers.postgresql import PostgreSqlServer
from penstock.testing.servers.postgresql_standby import PostgreSqlStandby

SETTINGS = {
    "wal_level": "logical", "max_wal_senders": "40", "max_replication_slots": "20", "wal_keep_size": "1GB",
    "max_prepared_transactions": "20", "wal_writer_delay": "5ms", "max_connections": "100",
}  # fmt: skip
WRITERS = 7
SHOWN = 80
"""So many of the newest rows are read."""
LATER = 300
"""So many later transactions are looked at, too: the view must not name them as seen."""
ROUND_READS = 4000
"""Reads until they are compared with the log, and forgotten."""
NOWHERE = 1 << 64
"""A position that no log reaches: a transaction that was shown must be in the log."""
SEEN = TableId("public", "seen")

_WRITER = """
CREATE PROCEDURE public.writer(pause float8) LANGUAGE plpgsql AS $$
BEGIN
    LOOP
        INSERT INTO public.seen VALUES (pg_current_xact_id()::text::bigint);
        IF random() < 0.3 THEN
            BEGIN
                INSERT INTO public.seen VALUES (-pg_current_xact_id()::text::bigint);
                IF random() < 0.5 THEN RAISE division_by_zero; END IF;
            EXCEPTION WHEN division_by_zero THEN NULL;
            END;
        END IF;
        IF random() < 0.1 THEN PERFORM pg_sleep(pause * random()); END IF;
        IF random() < 0.2 THEN ROLLBACK; ELSE COMMIT; END IF;
        PERFORM pg_sleep(pause * random());
    END LOOP;
END $$
"""


@dataclass
class Read:
    window: PostgreSqlWindow
    lowest: int
    shown: array[int]


@dataclass
class Verdict:
    """`unseen`: reads that claim a transaction which they did not show. `unclaimed`: reads that showed one
    which the rule says they did not. `beyond`: reads that showed one whose commit is behind their high
    watermark. `told_apart`: reads with a transaction in their neighbourhood that they did not show."""

    reads: int = 0
    unseen: int = 0
    unclaimed: int = 0
    beyond: int = 0
    told_apart: int = 0
    example: str = ""

    @property
    def wrong(self) -> int:
        return self.unseen + self.unclaimed + self.beyond


@dataclass
class Trial:
    """`opened`: makes the views of a session. Without `standby`, of the primary."""

    primary: PostgreSqlServer
    standby: PostgreSqlStandby | None = None
    readers: int = 4
    pause_s: float = 0.004
    views: Callable[[psycopg.Connection[Any], Trial], ChunkViews] | None = None
    found: Verdict = field(default_factory=Verdict)

    def run(self, reads: int, seconds: float, *, until_unseen: bool = False) -> Verdict:
        """`seconds`: a limit. `until_unseen`: ends after the first such read is found."""
        limit = time.monotonic() + seconds
        with connected(self.primary) as sql, self._writing(sql):
            slot = "SELECT pg_create_logical_replication_slot('trial', 'pgoutput')"
            sql.execute(slot.encode())
            [(first,)] = sql.execute("SELECT pg_current_xact_id()::text::bigint").fetchall()
            try:
                commits: dict[int, int] = {}
                while self.found.reads < reads and time.monotonic() < limit:
                    if until_unseen and self.found.unseen:
                        break
                    batch = self._round(first, min(ROUND_READS, reads - self.found.reads), limit)
                    time.sleep(0.1)  # later transactions, which the reads must not claim
                    commits = {**dict(list(commits.items())[-5 * LATER :]), **_commits(sql)}
                    self._judge(batch, commits)
                    first = max(max(one.shown) for one in batch if one.shown)
            finally:
                sql.execute("SELECT pg_drop_replication_slot('trial')")
        return self.found

    def _round(self, first: int, reads: int, limit: float) -> list[Read]:
        found: list[Read] = []
        threads = [
            threading.Thread(target=self._read, args=(first, reads, limit, found))
            for _ in range(self.readers)
        ]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        return found

    def _read(self, first: int, reads: int, limit: float, found: list[Read]) -> None:
        options = options_at(self.standby or self.primary)
        with contextlib.closing(connect(options)) as connection:
            views, highest = self._opened(connection), first
            while len(found) < reads and time.monotonic() < limit:
                lowest = max(first, highest - SHOWN)
                views.before()
                connection.execute(BEGIN)
                lock(connection, SEEN)
                views.opened()
                query = f"SELECT id FROM public.seen WHERE id >= {lowest} ORDER BY id"
                shown = array("q", [id for (id,) in connection.execute(query.encode())])
                connection.rollback()
                found.append(Read(views.ended(), lowest, shown))
                highest = shown[-1] if shown else highest
            if isinstance(views, StandbyViews):
                views.close()

    def _opened(self, connection: psycopg.Connection[Any]) -> ChunkViews:
        if self.views is not None:
            return self.views(connection, self)
        if self.standby is None:
            return PrimaryViews(connection)
        return StandbyViews(connection, options_at(self.standby), options_at(self.primary))

    def _judge(self, reads: list[Read], commits: dict[int, int]) -> None:
        ids = sorted(commits)
        for one in reads:
            shown = set(one.shown)
            start = bisect_left(ids, one.lowest)
            near = ids[start : start + len(shown) + LATER]
            low, position = XidSet(one.window.low), one.window.low_lsn
            claimed = {id for id in near if (str(id) in low if position is None else commits[id] <= position)}
            self.found.reads += 1
            if lost := claimed - shown:
                self.found.unseen += 1
                ends = {id: commits[id] for id in sorted(lost)[:9]}
                self.found.example = f"{one.window} {one.lowest} {one.shown[:1]} {one.shown[-1:]} {ends}"
            self.found.unclaimed += position is None and not shown.intersection(near) <= claimed
            self.found.beyond += any(commits.get(id, NOWHERE) > one.window.high for id in shown)
            self.found.told_apart += bool(set(near) - shown)

    @contextlib.contextmanager
    def _writing(self, sql: psycopg.Connection[Any]) -> Iterator[None]:
        sql.execute("DROP TABLE IF EXISTS public.seen")
        sql.execute("DROP PROCEDURE IF EXISTS public.writer")
        sql.execute("CREATE TABLE public.seen (id bigint PRIMARY KEY)")
        sql.execute(_WRITER)
        ended = threading.Event()
        sessions = [connected(self.primary) for _ in range(WRITERS)]
        threads = [
            threading.Thread(target=self._write, args=(session, number))
            for number, session in enumerate(sessions)
        ]
        threads.append(threading.Thread(target=_prepare, args=(self.primary, ended)))
        for one in threads:
            one.start()
        try:
            self._wait_for_table()
            yield
        finally:
            ended.set()
            for session in sessions:
                session.cancel()
            for one in threads:
                one.join()
            for session in sessions:
                session.close()

    def _write(self, session: psycopg.Connection[Any], number: int) -> None:
        modes = ("on", "off", "local")
        session.execute(f"SET synchronous_commit = {modes[number % len(modes)]}".encode())
        with contextlib.suppress(psycopg.errors.QueryCanceled):
            session.execute(f"CALL public.writer({self.pause_s})".encode())

    def _wait_for_table(self) -> None:
        if self.standby is None:
            return
        deadline = time.monotonic() + 60
        with connected(self.standby) as sql:
            while sql.execute("SELECT to_regclass('public.seen') IS NULL").fetchone() == (True,):
                assert time.monotonic() < deadline, "the standby does not follow"
                time.sleep(0.05)


def _prepare(server: PostgreSqlServer, ended: threading.Event) -> None:
    """Transactions in two phases."""
    chance = random.Random(7)
    with connected(server) as sql:
        while not ended.is_set():
            name = f"t{chance.random()}"
            sql.execute("BEGIN")
            sql.execute("INSERT INTO public.seen VALUES (pg_current_xact_id()::text::bigint)")
            sql.execute(f"PREPARE TRANSACTION '{name}'".encode())
            ended.wait(chance.random() * 0.05)
            sql.execute(f"{'ROLLBACK' if chance.random() < 0.2 else 'COMMIT'} PREPARED '{name}'".encode())


def _commits(sql: psycopg.Connection[Any]) -> dict[int, int]:
    """The transactions with rows that have committed since the last call, with the ends of their commits in
    the log, as the server's own decoder says. Version 14 sends transactions without rows, too."""
    query = (
        "SELECT xid::text::bigint, max(lsn)::text "
        "FROM pg_logical_slot_get_binary_changes('trial', NULL, NULL, 'proto_version', '1', "
        "'publication_names', 'all') GROUP BY xid "
        "HAVING bool_or(get_byte(data, 0) = ascii('I')) ORDER BY max(lsn)"
    )
    return {xid: lsn_of(lsn) for xid, lsn in sql.execute(query.encode())}


class ViewsByLsn(PrimaryViews):
    """A wrong rule, that of other tools: the position before the view is the low watermark."""

    def before(self) -> None:
        super().before()
        query = "SELECT pg_current_wal_insert_lsn()::text"
        [(self._at,)] = self._connection.execute(query).fetchall()

    def ended(self) -> PostgreSqlWindow:
        return PostgreSqlWindow("", super().ended().high, lsn_of(self._at))


class SnapshotsOfStandby(StandbyViews):
    """A wrong rule: the standby's own snapshot."""

    def opened(self) -> None:
        [(text,)] = self._connection.execute("SELECT pg_current_snapshot()::text").fetchall()
        _, after, running = text.split(":")
        self._set = XidSet.of_snapshot(int(after), [int(one) for one in running.split(",") if one])
        super().opened()

    def ended(self) -> PostgreSqlWindow:
        return PostgreSqlWindow(str(self._set), super().ended().high)


def snapshots_of_standby(connection: psycopg.Connection[Any], trial: Trial) -> ChunkViews:
    assert trial.standby is not None
    return SnapshotsOfStandby(connection, options_at(trial.standby), options_at(trial.primary))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--reads", type=int, default=200_000)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--readers", type=int, default=4)
    parser.add_argument("--pause-ms", type=float, default=4)
    parser.add_argument("--version", type=int, default=17)
    parser.add_argument("--standby", action="store_true")
    chosen = parser.parse_args()
    with contextlib.ExitStack() as stack:
        primary = stack.enter_context(PostgreSqlServer(settings=SETTINGS, version=chosen.version))
        with connected(primary) as sql:
            sql.execute('CREATE PUBLICATION "all" FOR ALL TABLES')
        standby = stack.enter_context(PostgreSqlStandby(primary)) if chosen.standby else None
        trial = Trial(primary, standby, readers=chosen.readers, pause_s=chosen.pause_ms / 1000)
        began = time.monotonic()
        print(trial.run(chosen.reads, chosen.seconds), f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
