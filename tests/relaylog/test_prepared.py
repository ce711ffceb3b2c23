"""XA transactions in the relay log of a real receiver. The judge is the source's own binlog."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.relaylog import xa
from tests.sources.mysql.receiving import Receiving, log_events, receiving, source_events

from penstock._core import GtidSet
from penstock.model.offset import LogRange, Offset
from penstock.model.schema import TableId
from penstock.sources.mysql.binlog_position import LastTransaction
from penstock.testing.memory import peak_bytes
from penstock.testing.servers import MySqlServer

T = TableId("d", "t")


@pytest.fixture(params=["ON", pytest.param("OFF", marks=pytest.mark.slow)], scope="module")
def server(request: Any) -> Iterator[MySqlServer]:
    with MySqlServer({"gtid_mode": request.param, "enforce_gtid_consistency": request.param}) as server:
        xa.Workload.prepare(server)
        yield server


@pytest.fixture
def gtids() -> Iterator[MySqlServer]:
    with MySqlServer() as server:
        xa.Workload.prepare(server)
        yield server


def rows_between(receiver: Receiving, start: Offset) -> tuple[int, int]:
    log = receiver.log
    return log.tables(LogRange(start, log.end)).get(T, (0, 0))


def test_prepared_rows_are_not_in_the_log_until_their_xa_commit(gtids: MySqlServer, tmp_path: Path) -> None:
    with receiving(gtids, tmp_path) as receiver:
        receiver.wait_until_level()
        start = receiver.log.end
        gtids.execute("XA START 'a'", "INSERT INTO d.t VALUES (1, 'x')", "XA END 'a'", "XA PREPARE 'a'")
        receiver.wait_until_level()
        log = receiver.log
        assert rows_between(receiver, start) == (0, 0)
        assert log.executed_at(log.end) == GtidSet(gtids.gtid_executed())
        assert [one.xid for one in log.prepared] == ["X'61',X'',1"]
        prepared = log.end
        gtids.execute("INSERT INTO d.t VALUES (2, 'x')", "XA COMMIT 'a'")
        receiver.wait_until_level()
        log = receiver.log
        assert rows_between(receiver, prepared)[0] == 2
        assert log.prepared == [] and log.executed_at(log.end) == GtidSet(gtids.gtid_executed())
        found = xa.effects(log_events(receiver.log_path))
        assert found == xa.effects(source_events(gtids)) and len(found) == 2
        last = LastTransaction.of(log)
        assert last is not None and last.id == gtids.gtid_executed().replace(":1-", ":")


def test_all_kinds_interleaved_take_effect_as_the_source_says(server: MySqlServer, tmp_path: Path) -> None:
    """Over restarts, new segments and new files of the source; with xids used again."""
    load = xa.Workload(server, seed=11)
    receiver = Receiving(server, tmp_path, segment_size="64KiB", span_size=20_000)
    for clean in (True, False, True):
        load.run(40)
        receiver.start()
        receiver.wait_until_level()
        load.run(30)
        receiver.wait_until_level()
        if clean:
            assert receiver.stop() == 0
        else:
            receiver.kill()
    load.end_all()
    receiver.start()
    receiver.wait_until_level()
    assert receiver.stop() == 0
    expected = xa.effects(source_events(server))
    assert xa.effects(log_events(receiver.log_path)) == expected and len(expected) > 60
    assert receiver.log.prepared == []
    assert list((receiver.log_path / "prepared").glob("*.xa")) == []
    if server.variable("gtid_mode") == "ON":
        log = receiver.log
        assert log.executed_at(log.end) == GtidSet(server.gtid_executed())


def test_a_one_phase_commit_is_stored_as_it_was_sent(server: MySqlServer, tmp_path: Path) -> None:
    with receiving(server, tmp_path, start="latest") as receiver:
        receiver.wait_until_level()
        before = len(source_events(server))
        server.execute("XA START 'b'", "INSERT INTO d.t VALUES (-1, 'x')", "XA END 'b'")
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("XA START 'big'")
            for number in range(40):  # more than is held in memory
                cursor.execute(f"INSERT INTO d.t VALUES (-10 - {number}, REPEAT('y', 50000))")
            cursor.execute("XA END 'big'")
            cursor.execute("XA COMMIT 'big' ONE PHASE")
            cursor.execute("XA START 'c'")
            cursor.execute("INSERT INTO d.t VALUES (-2, 'x')")
            cursor.execute("XA END 'c'")
            cursor.execute("XA COMMIT 'c' ONE PHASE")
        receiver.wait_until_level()
        assert receiver.stop() == 0
        sent = source_events(server)[before:]
        assert log_events(receiver.log_path) == sent and len(sent) > 80


@pytest.mark.parametrize(
    "last", ["commit", *[pytest.param(one, marks=pytest.mark.slow) for one in ("prepare", "rollback")]]
)
def test_a_reconnect_proves_the_source_by_what_it_sent(gtids: MySqlServer, tmp_path: Path, last: str) -> None:
    receiver = Receiving(gtids, tmp_path)
    receiver.start()
    gtids.execute("XA START 'a'", "INSERT INTO d.t VALUES (1, 'x')", "XA END 'a'", "XA PREPARE 'a'")
    if last != "prepare":
        gtids.execute(f"XA {last.upper()} 'a'")
    receiver.wait_until_level()
    receiver.stop()
    receiver.start()
    process = receiver.process
    receiver.wait_for(lambda: process is not None and receiver.status().get("pid") == process.pid, "start")
    gtids.execute("INSERT INTO d.t VALUES (3, 'x')")
    receiver.wait_until_level()
    assert receiver.stop() == 0
    # Another history under the same GTIDs.
    if last == "prepare":
        gtids.execute("XA ROLLBACK 'a'")
    gtids.execute("RESET MASTER")
    for number in range(20):
        gtids.execute(f"INSERT INTO d.t VALUES ({number + 100}, 'x')")
    assert "another transaction" in receiver.fails()


def test_a_spool_that_is_gone_is_told_with_the_transaction(gtids: MySqlServer, tmp_path: Path) -> None:
    receiver = Receiving(gtids, tmp_path)
    receiver.start()
    gtids.execute("XA START 'a'", "INSERT INTO d.t VALUES (1, 'x')", "XA END 'a'", "XA PREPARE 'a'")
    receiver.wait_until_level()
    receiver.stop()
    [spool] = (receiver.log_path / "prepared").glob("*.xa")
    assert spool.stat().st_mode & 0o777 == 0o600
    whole = spool.read_bytes()
    damaged = bytearray(whole)
    damaged[-60] ^= 1
    spool.write_bytes(bytes(damaged))
    gtids.execute("XA COMMIT 'a'")
    said = receiver.fails()
    assert str(spool) in said and "damaged" in said and "Traceback" not in said
    spool.unlink()
    said = receiver.fails()
    assert str(spool) in said and "X'61',X'',1" in said
    spool.write_bytes(whole)
    receiver.start()
    receiver.wait_until_level()
    assert receiver.stop() == 0
    assert len(xa.effects(log_events(receiver.log_path))) == 1


def test_an_xa_commit_without_its_prepare_is_told_as_rows_nobody_knows(
    gtids: MySqlServer, tmp_path: Path
) -> None:
    gtids.execute("XA START 'old'", "INSERT INTO d.t VALUES (1, 'x')", "XA END 'old'", "XA PREPARE 'old'")
    start = {"gtid": gtids.gtid_executed()}
    with receiving(gtids, tmp_path, start=start) as receiver:
        receiver.wait_until_level()
        gtids.execute("XA COMMIT 'old'")
        receiver.wait_until_level()
        log = receiver.log
        [statement] = log.statements(LogRange(log.start, log.end))
        assert statement.event == xa.XA_PREPARE and statement.sql == "XA COMMIT X'6f6c64',X'',1"


@pytest.mark.slow
def test_a_large_prepared_transaction_takes_little_memory(
    mysql_factory: Callable[..., MySqlServer], tmp_path: Path
) -> None:
    server = mysql_factory(max_allowed_packet="64M", max_binlog_cache_size="2G")
    xa.Workload.prepare(server)
    with receiving(server, tmp_path, span_size="1MiB") as receiver:
        receiver.wait_until_level()
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("XA START 'huge'")
            for number in range(300):
                values = ",".join(f"({number * 20 + n}, REPEAT('z', 50000))" for n in range(20))
                cursor.execute(f"INSERT INTO d.t VALUES {values}")
            cursor.execute("XA END 'huge'")
            cursor.execute("XA PREPARE 'huge'")
        receiver.wait_until_level()
        assert receiver.process is not None
        server.execute("XA COMMIT 'huge'")
        receiver.wait_until_level()
        peak = peak_bytes(receiver.process.pid)
        log = receiver.log
        splits = log.splits(LogRange(log.start, log.end), T, bytes_aim=16 << 20)
        assert len(splits) > 10 and sum(split.end - split.start for split in splits) > 290_000_000
        assert peak < 250_000 * 1024
        deadline = time.monotonic() + 60
        while list((receiver.log_path / "prepared").glob("*.xa"))[1:]:
            assert time.monotonic() < deadline, "the spool was not removed"
            time.sleep(0.05)
        assert receiver.stop() == 0


def test_a_log_that_begins_at_the_end_has_what_is_prepared_then(server: MySqlServer, tmp_path: Path) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for sql in ("XA START 'early'", "INSERT INTO d.t VALUES (-500, 'x')", "XA END 'early'"):
            cursor.execute(sql)
        cursor.execute("XA PREPARE 'early'")
        server.execute("INSERT INTO d.t VALUES (-501, 'x')")
        with receiving(server, tmp_path, start="latest") as receiver:
            receiver.wait_until_level()
            log = receiver.log
            assert rows_between(receiver, log.start) == (0, 0)
            assert [one.xid for one in log.prepared] == ["X'6561726c79',X'',1"]
            cursor.execute("XA COMMIT 'early'")
            receiver.wait_until_level()
            log.refresh()
            assert rows_between(receiver, log.start)[0] == 1
            assert log.statements(LogRange(log.start, log.end)) == []
            if server.variable("gtid_mode") == "ON":
                assert log.executed_at(log.end) == GtidSet(server.gtid_executed())
            assert receiver.stop() == 0
