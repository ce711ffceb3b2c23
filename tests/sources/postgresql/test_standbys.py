"""Chunks that are read from hot standbys: what they show, and when they must not count."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.sources.postgresql.pg_log import connected, options_at, table_of
from tests.sources.postgresql.receiving import Receiving
from tests.sources.postgresql.view_trial import SETTINGS, Trial, ViewsByLsn, snapshots_of_standby

from penstock.config import SnapshotConfig
from penstock.errors import InternalError, TransientError
from penstock.model.chunk import Chunk
from penstock.model.offset import Offset
from penstock.model.schema import DEFAULT_TYPES, TableId
from penstock.relaylog.segment_format import lsn_position
from penstock.sources.postgresql import views
from penstock.sources.postgresql.chunk_reader import PostgreSqlChunkReader
from penstock.sources.postgresql.log_position import lsn_of, moment
from penstock.sources.postgresql.preflight import PostgreSqlPreflight
from penstock.sources.postgresql.standbys import PostgreSqlHosts, ServerFacts, look_at, why_unfit
from penstock.sources.postgresql.window import PostgreSqlWindow, PostgreSqlWindows
from penstock.sources.windows import LogState
from penstock.testing.servers.postgresql import PostgreSqlServer
from penstock.testing.servers.postgresql_standby import PostgreSqlStandby

WAIT_S = 60.0
TABLE = TableId("public", "numbers")
WHOLE = Chunk(TABLE, 0, None, None)


@pytest.fixture(scope="module")
def primary(version: int) -> Iterator[PostgreSqlServer]:
    with PostgreSqlServer(settings=SETTINGS, version=version) as server:
        with connected(server) as sql:
            sql.execute('CREATE PUBLICATION "all" FOR ALL TABLES')
            sql.execute("CREATE TABLE public.numbers (id int PRIMARY KEY, note text)")
            sql.execute(
                "INSERT INTO public.numbers SELECT i, repeat('x', 100) FROM generate_series(1, 50000) i"
            )
        yield server


@pytest.fixture
def standby(primary: PostgreSqlServer) -> Iterator[PostgreSqlStandby]:
    with PostgreSqlStandby(primary) as server:
        yield server


def wait_for(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)  # polls a condition, with a limit


def reader_at(standby: PostgreSqlStandby, primary: PostgreSqlServer) -> PostgreSqlChunkReader:
    return PostgreSqlChunkReader(options_at(standby), "all", DEFAULT_TYPES, primary=options_at(primary))


def replayed(primary: PostgreSqlServer, standby: PostgreSqlStandby) -> None:
    """Waits until the standby shows everything that was committed before the call."""
    with connected(primary) as sql, connected(standby) as there:
        sql.execute("SELECT pg_logical_emit_message(true, 'test', 'x')")
        [(end,)] = sql.execute("SELECT pg_current_wal_flush_lsn()::text").fetchall()
        query = f"SELECT pg_last_wal_replay_lsn() >= '{end}'"
        wait_for(lambda: there.execute(query.encode()).fetchone() == (True,), "the standby does not follow")


def pause(standby: psycopg.Connection[Any], primary: psycopg.Connection[Any]) -> None:
    """Replay stops before the next record."""
    standby.execute("SELECT pg_wal_replay_pause()")

    def is_paused() -> bool:
        primary.execute("SELECT pg_logical_emit_message(true, 'test', 'x')")
        return standby.execute("SELECT pg_get_wal_replay_pause_state()").fetchone() == ("paused",)

    wait_for(is_paused, "replay is not paused")


def test_a_chunk_of_a_standby_has_its_rows_and_watermarks_around_them(
    primary: PostgreSqlServer, standby: PostgreSqlStandby
) -> None:
    replayed(primary, standby)
    with connected(primary) as sql, connected(standby) as there:
        schema = table_of(sql, TABLE).schema
        pause(there, sql)
        behind = moment(sql).end
        sql.execute("DELETE FROM public.numbers WHERE id = 1")
        with closing(reader_at(standby, primary)) as reader:
            read = reader.read(schema, WHOLE)
            ids = {id for batch in read for id in batch.column(0).to_pylist()}
        [(end,)] = sql.execute("SELECT pg_current_wal_flush_lsn()::text").fetchall()
        there.execute("SELECT pg_wal_replay_resume()")
        sql.execute("INSERT INTO public.numbers VALUES (1, '')")
    window = PostgreSqlWindows().of(read.result.watermarks)
    assert ids == set(range(1, 50001)), "the standby has not replayed the DELETE"
    assert window.low_lsn is not None and window.low_lsn <= behind < window.high <= lsn_of(end)
    assert window.seen is None
    assert window.shows(LogState(lsn_position(window.low_lsn)))
    assert not window.shows(LogState(lsn_position(window.low_lsn + 1)))
    assert read.result.server_uuid == look_at(options_at(primary)).name


def test_a_chunk_waits_until_the_standby_has_what_the_table_begins_with(
    primary: PostgreSqlServer, standby: PostgreSqlStandby, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "REQUIRE_S", 0.5)
    with connected(primary) as sql, connected(standby) as there:
        pause(there, sql)
        sql.execute("INSERT INTO public.numbers VALUES (-1, '')")
        executed = str(moment(sql).seen)
        with closing(reader_at(standby, primary)) as reader:
            with pytest.raises(TransientError, match="has not replayed what the log has"):
                reader.require(executed)
            there.execute("SELECT pg_wal_replay_resume()")
            monkeypatch.undo()
            reader.require(executed)
            assert there.execute("SELECT 1 FROM public.numbers WHERE id = -1").fetchone() == (1,)
        sql.execute("DELETE FROM public.numbers WHERE id = -1")


def test_a_chunk_does_not_count_if_its_standby_is_promoted_meanwhile(
    primary: PostgreSqlServer, standby: PostgreSqlStandby
) -> None:
    with connected(primary) as sql, connected(standby) as there:
        schema = table_of(sql, TABLE).schema
        with closing(reader_at(standby, primary)) as reader:
            read = reader.read(schema, WHOLE)
            batches = iter(read)
            next(batches)
            assert there.execute("SELECT pg_promote()").fetchone() == (True,)
            with pytest.raises(TransientError, match="no standby any more"):
                list(batches)
            with pytest.raises(InternalError):
                _ = read.result
        facts, source = look_at(options_at(standby)), look_at(options_at(primary))
    assert facts.name != source.name
    assert "no standby" in why_unfit(facts, source, 1 << 30)


@pytest.mark.slow
def test_a_chunk_does_not_count_if_its_standby_follows_another_primary(
    primary: PostgreSqlServer, standby: PostgreSqlStandby
) -> None:
    """A sibling was promoted, and the server that we follow lives on."""
    with PostgreSqlStandby(primary) as sibling, connected(primary) as sql:
        schema = table_of(sql, TABLE).schema
        with closing(reader_at(standby, primary)) as reader:
            list(reader.read(schema, WHOLE))
            with connected(sibling) as other:
                assert other.execute("SELECT pg_promote()").fetchone() == (True,)
                other.execute("INSERT INTO public.numbers VALUES (-7, 'of the other one')")
            with connected(standby) as there:
                conninfo = f"host={sibling.host} port={sibling.port} user=penstock password=penstock"
                there.execute(f"ALTER SYSTEM SET primary_conninfo = '{conninfo}'".encode())
            standby.follow(sibling)
            standby.stop()
            standby.start()
            with connected(standby) as there:
                query = "SELECT 1 FROM public.numbers WHERE id = -7"
                wait_for(lambda: there.execute(query.encode()).fetchone(), "it does not follow the sibling")
        with (
            closing(reader_at(standby, primary)) as reader,
            pytest.raises(TransientError, match="the log of"),
        ):
            list(reader.read(schema, WHOLE))
        facts, source = look_at(options_at(standby)), look_at(options_at(primary))
    assert facts.is_standby and "another timeline" in why_unfit(facts, source, 1 << 30)


@pytest.mark.slow
def test_a_read_that_replay_ends_is_tried_again(primary: PostgreSqlServer) -> None:
    settings = {"max_standby_streaming_delay": "0", "hot_standby_feedback": "off"}
    slow = replace(WHOLE, condition="pg_sleep(0.001) IS NOT NULL")

    def disturb(standby: PostgreSqlStandby) -> None:
        with connected(primary) as sql, connected(standby) as there:
            copies = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'COPY%numbers%' AND state = 'active'"
            wait_for(lambda: there.execute(copies.encode()).fetchone(), "no COPY")
            sql.execute("UPDATE public.numbers SET note = upper(note) WHERE id % 2 = 0")
            sql.execute("VACUUM public.numbers")

    with PostgreSqlStandby(primary, settings=settings) as standby:
        replayed(primary, standby)
        with connected(primary) as sql:
            schema = table_of(sql, TABLE).schema
        other = threading.Thread(target=disturb, args=(standby,))
        other.start()
        with closing(reader_at(standby, primary)) as reader:
            with pytest.raises(TransientError, match="conflict with recovery") as caught:
                list(reader.read(schema, slow))
            assert "max_standby_streaming_delay" in caught.value.hint
            other.join()
            assert sum(batch.num_rows for batch in reader.read(schema, WHOLE)) == 50000


def test_hosts_are_judged(primary: PostgreSqlServer, standby: PostgreSqlStandby, version: int) -> None:
    source, address = options_at(primary), options_at(standby).address
    config = SnapshotConfig(hosts=[address, source.address])
    hosts = PostgreSqlHosts(config, source, "all")
    usable = hosts.look().hosts
    assert [(one.address, one.is_replica) for one in usable] == [(address, True), (source.address, False)]
    both = source.model_copy(update={"failover": [address]})
    named = PostgreSqlHosts(config, both, "all").look().hosts
    assert [(one.address, one.is_replica) for one in named] == [(address, True), (source.address, False)]
    for host in named:
        with closing(host.open_reader(types=DEFAULT_TYPES)) as reader, connected(primary) as sql:
            schema = table_of(sql, TABLE).schema
            assert sum(batch.num_rows for batch in reader.read(schema, WHOLE)) == 50000
    standby.stop()
    hosts.close()
    assert [one.address for one in hosts.look().hosts] == [source.address]
    assert "does not answer" in str(hosts.hosts_to_json()[0]["excluded_because"])
    with PostgreSqlServer(settings=SETTINGS, version=version) as copy:  # made of the same files
        config = SnapshotConfig(hosts=[options_at(copy).address])
        found = PostgreSqlHosts(config, source, "all").look()
    assert not found.hosts and "no standby" in found.reason and found.paused_by == "hosts"


def test_doctor_checks_hosts(primary: PostgreSqlServer, standby: PostgreSqlStandby, tmp_path: Path) -> None:
    with PostgreSqlStandby(primary, settings={"max_standby_streaming_delay": "1s"}) as hasty:
        addresses = [options_at(one).address for one in (standby, hasty)] + ["127.0.0.1:1"]
        config = Receiving(primary, tmp_path, "checked", publication="all").config
        config = config.model_copy(update={"snapshot": SnapshotConfig(hosts=addresses)})
        found = [one for one in PostgreSqlPreflight(config).check(config) if one.check == "snapshot_hosts"]
    assert [(one.level, one.subject) for one in found] == [
        ("ok", addresses[0]), ("warning", addresses[1]), ("ok", addresses[1]), ("warning", addresses[2]),
    ]  # fmt: skip
    assert "1000 ms" in found[1].message and "max_standby_streaming_delay" in found[1].sql
    assert "does not answer" in found[3].message


def test_a_standby_is_fit_or_it_is_said_why_not() -> None:
    source = ServerFacts("7/2", False, 1000 << 20)
    host = ServerFacts("7/2", True, 999 << 20)
    unfit = {
        why_unfit(one, source, 100 << 20)
        for one in (
            host,
            replace(host, name="8/2"),
            replace(host, name="7/1"),
            replace(host, is_standby=False),
            replace(host, end=900 << 20, paused=True),
        )
    }
    assert "" in unfit and len(unfit) == 5
    assert any("last 100 MiB of the log, and its replay is paused" in why for why in unfit)
    assert "standby itself" in why_unfit(host, replace(source, is_standby=True), 1)


@pytest.mark.parametrize("reads", [500, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("on_standby", [False, True], ids=["primary", "standby"])
def test_views_are_known_while_others_write(
    primary: PostgreSqlServer, standby: PostgreSqlStandby, on_standby: bool, reads: int, version: int
) -> None:
    if reads > 500 and version != 17:
        pytest.skip("long trials are for one version")
    found = Trial(primary, standby if on_standby else None).run(reads, seconds=300)
    print(found)
    assert found.wrong == 0
    assert found.reads >= min(reads, 1000) and found.told_apart > 0.9 * found.reads


@pytest.mark.slow
def test_the_trial_finds_a_position_wrong_on_a_primary(primary: PostgreSqlServer) -> None:
    trial = Trial(primary, views=lambda sql, _: ViewsByLsn(sql))
    assert trial.run(100_000, seconds=200, until_unseen=True).unseen > 0


@pytest.mark.slow
def test_the_trial_finds_a_snapshot_wrong_on_a_standby(
    primary: PostgreSqlServer, standby: PostgreSqlStandby
) -> None:
    found = Trial(primary, standby, views=snapshots_of_standby).run(1000, seconds=120)
    assert found.unseen > 100


def test_a_window_of_a_standby_is_stored_and_read_again() -> None:
    window = PostgreSqlWindow("", 2000, 1000)
    assert PostgreSqlWindows().of(window.watermarks) == window

    class Places:
        def window_start(self, executed: str) -> Offset:
            raise AssertionError("it has no set of transactions")

        def offset_within(self, position: Any) -> Offset:
            return Offset(position.order[0] // 10)

    assert window.visible_to(Places()) == 100
    assert window.is_passed(LogState(lsn_position(2000))) and not window.is_passed(
        LogState(lsn_position(1999))
    )
