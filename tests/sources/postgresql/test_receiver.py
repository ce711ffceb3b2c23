"""The receiver of a real PostgreSQL: what is in the log, what the server keeps, and what is said when it
cannot go on."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.sources.postgresql.pg_log import connected
from tests.sources.postgresql.receiving import Receiving, changes_of, receive

from penstock.model.schema import TableId
from penstock.testing.servers.postgresql import PostgreSqlServer

FOREIGN_MB = 60
KEPT_MAX_MB = 20


def test_every_change_is_in_the_log_once_though_the_receiver_is_killed(
    server: PostgreSqlServer, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    receiving = Receiving(server, tmp_path, "killed")
    connection.execute("CREATE TABLE public.killed (id int PRIMARY KEY, body text)")
    connection.execute("CREATE PUBLICATION penstock_killed FOR TABLE public.killed")
    ended = threading.Event()

    def write() -> None:
        number = 0
        with connected(server) as writing:
            while not ended.is_set():
                with writing.transaction(force_rollback=number % 7 == 3):
                    for _ in range(1 + number % 40):
                        number += 1
                        body = "x" * (number % 300)
                        writing.execute("INSERT INTO public.killed VALUES (%s, %s)", (number, body))

    writer = threading.Thread(target=write)
    try:
        for kill in range(5):
            with receiving.started() as process:
                receiving.wait_until_streaming()
                if kill == 0:
                    writer.start()
                goal = receiving.log().end + 30_000
                receiving.wait(partial(_has_reached, receiving, goal), "growth")
                process.send_signal(signal.SIGKILL)
        ended.set()
        writer.join()
        with receiving.started():
            receiving.wait_until_received(connection)
            found = changes_of(receiving, connection, TableId("public", "killed"))
    finally:
        ended.set()
        writer.join()
    wanted = dict(connection.execute("SELECT id, body FROM public.killed").fetchall())
    assert len(wanted) > 1000
    assert Counter(row["id"] for row in found) == Counter(wanted.keys())
    assert {row["id"]: row["body"] for row in found} == wanted


def test_the_server_keeps_no_log_because_others_are_busy(
    server: PostgreSqlServer, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    receiving = Receiving(server, tmp_path, "idle")
    connection.execute("CREATE TABLE public.idle (id int PRIMARY KEY)")
    connection.execute("CREATE PUBLICATION penstock_idle FOR TABLE public.idle")
    connection.execute("CREATE TABLE public.foreign_traffic (body text)")
    kept = (
        "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::int8 >> 20 "
        "FROM pg_replication_slots WHERE slot_name = 'penstock_idle'"
    )
    with receiving.started():
        receiving.wait_until_streaming()
        [(begin,)] = connection.execute("SELECT pg_current_wal_lsn()::text").fetchall()
        connection.execute(
            f"INSERT INTO public.foreign_traffic SELECT repeat('x', 1000) "
            f"FROM generate_series(1, {FOREIGN_MB * 1000})".encode()
        )
        wrote = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), %s)::int8 >> 20"
        assert connection.execute(wrote, (begin,)).fetchall()[0][0] >= FOREIGN_MB
        receiving.wait(lambda: connection.execute(kept).fetchall()[0][0] < KEPT_MAX_MB, "confirmation")


def test_a_slot_that_is_gone_is_an_error_that_says_what_to_do(
    server: PostgreSqlServer, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    receiving = Receiving(server, tmp_path, "gone")
    connection.execute("CREATE TABLE public.gone (id int PRIMARY KEY)")
    connection.execute("CREATE PUBLICATION penstock_gone FOR TABLE public.gone")
    with receiving.started():
        receiving.wait_until_received(connection)
    dropped = (
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
        "WHERE NOT active AND slot_name = %s"
    )
    receiving.wait(lambda: connection.execute(dropped, ("penstock_gone",)).fetchall(), "the end of the slot")
    done = receive(receiving)
    assert done.returncode != 0
    assert "the replication slot penstock_gone is gone" in done.stderr
    assert "penstock reset FILE" in done.stderr
    assert _drop(receiving).returncode == 0


def test_a_slot_is_dropped_when_it_is_not_in_use(
    server: PostgreSqlServer, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    receiving = Receiving(server, tmp_path, "given_up")
    connection.execute("CREATE TABLE public.given_up (id int PRIMARY KEY)")
    connection.execute("CREATE PUBLICATION penstock_given_up FOR TABLE public.given_up")
    slots = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'penstock_given_up'"
    with receiving.started():
        receiving.wait_until_streaming()
        refused = _drop(receiving)
        assert refused.returncode != 0 and "Stop the pipeline first" in refused.stderr
    receiving.wait(lambda: _drop(receiving).returncode == 0, "the end of the slot")
    assert connection.execute(slots).fetchone() == (0,)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"password": "wrong"}, "source.password"),
        ({"database": "nowhere"}, "source.database"),
        ({"publication": "none"}, "CREATE PUBLICATION"),
        ({"port": 1}, "does not answer"),
    ],
)
def test_a_source_that_cannot_be_followed_is_one_error(
    server: PostgreSqlServer, tmp_path: Path, source: dict[str, Any], said: str
) -> None:
    done = receive(Receiving(server, tmp_path, "refused", **source))
    assert done.returncode != 0
    assert said in done.stderr and "Traceback" not in done.stderr


def _has_reached(receiving: Receiving, goal: int) -> bool:
    return receiving.log().end > goal


def _drop(receiving: Receiving) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", "drop-slot", str(receiving.file), "--yes"],
        capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip
