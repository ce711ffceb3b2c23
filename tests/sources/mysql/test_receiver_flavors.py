"""The receiver against each server of the matrix. The judge is the source's own binlog, and its SELECT."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest
from tests.sources.mysql.receiving import Receiving, log_events, receiving, source_events

from penstock._core import GtidSet, RangeDecoder
from penstock.model.offset import LogRange
from penstock.model.schema import TableId
from penstock.sources.mysql.catalog import read_table
from penstock.testing import servers
from penstock.testing.servers import DatabaseServer, MariaDbServer

T = TableId("d", "t")
SCHEMA = ("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, pad VARCHAR(2000))")

_NO_GTIDS = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "mysql57": ("mysql57", {}),
    "mysql57-plain": ("mysql57", {**_NO_GTIDS, "binlog_checksum": "NONE"}),
    "mysql80": ("mysql80", {"binlog_checksum": "NONE", "binlog_row_metadata": "FULL"}),
    "mysql97": ("mysql97", {}),
    "mysql97-plain": ("mysql97", {**_NO_GTIDS, "binlog_row_metadata": "FULL"}),
    "mariadb1011": ("mariadb1011", {}),
    "mariadb1011-plain": ("mariadb1011", {"binlog_checksum": "NONE", "binlog_row_metadata": "FULL"}),
    "mariadb118": ("mariadb118", {}),
    "mariadb118-full": ("mariadb118", {"binlog_row_metadata": "FULL", "binlog_legacy_event_pos": "ON"}),
}


@pytest.fixture(
    params=[name if name == "mysql80" else pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS],
    scope="module",
)
def source(request: Any) -> Iterator[DatabaseServer]:
    flavor, options = VARIANTS[request.param]
    with servers.FLAVORS[flavor](options) as server:
        server.execute(*SCHEMA)
        yield server


def write(server: DatabaseServer, transactions: int, *, rows: int = 1) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for _ in range(transactions):
            cursor.execute("BEGIN")
            for _ in range(rows):
                cursor.execute("INSERT INTO d.t (pad) VALUES (REPEAT('x', RAND() * 900))")
            cursor.execute("COMMIT")


def rows_of(receiver: Receiving, server: DatabaseServer) -> dict[int, str]:
    """The table as the log leaves it, from its creation on."""
    log = receiver.log
    with server.connect() as connection:
        schema = read_table(connection, T)
    assert schema is not None
    rows: dict[int, str] = {}
    for split in log.splits(LogRange(log.start, log.end), T, bytes_aim=1 << 30):
        decoder = RangeDecoder(
            schema.to_json(), split.path, split.base, split.start, split.end, preamble=split.preamble
        )
        for batch in decoder:
            for row in batch.to_pylist():
                if row["_change_type"] in ("delete", "update_preimage"):
                    del rows[row["id"]]
                else:
                    rows[row["id"]] = row["pad"]
    return rows


def test_each_server_is_followed_byte_for_byte_across_restarts(
    source: DatabaseServer, tmp_path: Path
) -> None:
    write(source, 10)
    receiver = Receiving(source, tmp_path, segment_size="64KiB")
    for _ in range(3):
        receiver.start()
        write(source, 30, rows=3)
        source.execute("UPDATE d.t SET pad = CONCAT(pad, '!') WHERE id % 3 = 0", "FLUSH BINARY LOGS")
        source.execute("DELETE FROM d.t WHERE id % 7 = 0", "ALTER TABLE d.t COMMENT 'x'")
        receiver.wait_until_level()
        assert receiver.stop() == 0
        write(source, 5)
    receiver.start()
    receiver.wait_until_level()
    receiver.stop()
    assert log_events(receiver.log_path) == source_events(source)
    log = receiver.log
    assert str(log.position_at(log.end)) == "{}:{}".format(*source.position())
    assert rows_of(receiver, source) == dict(source.query("SELECT id, pad FROM d.t"))
    if log.facts["mode"] == "gtid":
        assert log.executed_at(log.end) == GtidSet(source.gtid_executed())


def test_each_server_is_followed_after_kill9_and_a_new_binlog_of_the_source(
    source: DatabaseServer, tmp_path: Path
) -> None:
    receiver = Receiving(source, tmp_path, start="latest")
    before = dict(source.query("SELECT id, pad FROM d.t"))
    receiver.start()
    receiver.wait_until_level()
    for _ in range(2):
        write(source, 20)
        receiver.kill()
        source.restart()
        write(source, 3)
        receiver.start()
    receiver.wait_until_level()
    receiver.stop()
    after = dict(source.query("SELECT id, pad FROM d.t"))
    assert rows_of(receiver, source) == {key: pad for key, pad in after.items() if key not in before}


@pytest.mark.parametrize("way", ["gtid", "position", "timestamp"])
def test_starts_in_the_middle_begin_at_exactly_that_transaction(
    source: DatabaseServer, tmp_path: Path, way: str
) -> None:
    if way == "gtid" and not source.gtid_executed():
        return
    source.execute("FLUSH BINARY LOGS")
    write(source, 3)
    with source.connect() as connection, connection.cursor() as cursor:
        cursor.execute("DO SLEEP(2 - MOD(UNIX_TIMESTAMP(NOW(6)), 1))")  # commit times here are whole seconds
        cursor.execute("SELECT UTC_TIMESTAMP()")
        moment = cursor.fetchone()[0]
    file, position = source.position()
    start: Any = {"file": file, "position": position}
    if way == "gtid":
        start = {"gtid": source.gtid_executed()}
    elif way == "timestamp":
        start = {"timestamp": f"{moment:%Y-%m-%dT%H:%M:%S}Z"}
    first = source.query("SELECT MAX(id) FROM d.t")[0][0]
    write(source, 4)
    with receiving(source, tmp_path, start=start) as receiver:
        receiver.wait_until_level()
        rows = source.query("SELECT id, pad FROM d.t WHERE id > %s", (first,))
        assert rows_of(receiver, source) == dict(rows) and len(rows) == 4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mariadb1011", "mariadb118"])
@pytest.mark.parametrize("checksum", ["CRC32", "NONE"])
def test_compressed_events_of_mariadb_are_stored_plain(name: str, checksum: str, tmp_path: Path) -> None:
    options = {"log_bin_compress": "ON", "log_bin_compress_min_len": 10, "binlog_checksum": checksum}
    with servers.FLAVORS[name](options) as server:
        server.execute(*SCHEMA)
        write(server, 20, rows=5)
        server.execute("UPDATE d.t SET pad = CONCAT(pad, '!')", "DELETE FROM d.t WHERE id < 5")
        server.execute("ALTER TABLE d.t COMMENT 'a comment that is long enough to be compressed too'")
        kinds = {event[4] for event in source_events(server)}
        assert {165, 166, 167, 168} <= kinds
        receiver = Receiving(server, tmp_path)
        for _ in range(2):
            receiver.start()
            receiver.wait_until_level()
            assert receiver.stop() == 0
            assert not {event[4] for event in log_events(receiver.log_path)} & set(range(165, 172))
            assert rows_of(receiver, server) == dict(server.query("SELECT id, pad FROM d.t"))
            write(server, 5)
        log = receiver.log
        found = [statement.sql for statement in log.statements(LogRange(log.start, log.end))]
        assert any(sql.startswith("ALTER TABLE d.t COMMENT") for sql in found)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mariadb1011", "mariadb118"])
def test_an_alter_in_two_phases_is_one_statement_where_it_ends(name: str, tmp_path: Path) -> None:
    """With `binlog_alter_two_phase`, the log has the statement where it begins, and again where it ends."""
    with servers.FLAVORS[name]() as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, a INT, b INT)")
        server.execute("INSERT INTO d.t VALUES (1, 1, 2), (2, 1, 3)")
        swap = "ALTER TABLE d.t RENAME COLUMN a TO b, RENAME COLUMN b TO a"
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET binlog_alter_two_phase = 1")
            cursor.execute(swap)
            with pytest.raises(pymysql.err.IntegrityError):
                cursor.execute("ALTER TABLE d.t ADD UNIQUE (b)")
        shown = [row[5] for row in server.query("SHOW BINLOG EVENTS")]
        assert shown.count(swap) == 2 and any("ROLLBACK ALTER" in text for text in shown)
        with receiving(server, tmp_path) as receiver:
            receiver.wait_until_level()
            log = receiver.log
            found = [one for one in log.statements(LogRange(log.start, log.end)) if "ALTER" in one.sql]
            assert [one.sql for one in found] == [swap]
            committed = log.executed_at(found[0].end)
            assert "START ALTER" in shown[shown.index(swap) - 1]
            assert str(committed).endswith(shown[len(shown) - 1 - shown[::-1].index(swap) - 1].split()[1])


@pytest.mark.slow
def test_compressed_transactions_of_mysql_97_are_stored_plain(tmp_path: Path) -> None:
    with servers.mysql97({"binlog_transaction_compression": "ON"}) as server:
        server.execute(*SCHEMA)
        write(server, 20, rows=5)
        server.execute("UPDATE d.t SET pad = CONCAT(pad, '!')")
        assert 40 in {event[4] for event in source_events(server)}
        receiver = Receiving(server, tmp_path)
        for _ in range(2):
            receiver.start()
            receiver.wait_until_level()
            assert receiver.stop() == 0
            assert 40 not in {event[4] for event in log_events(receiver.log_path)}
            assert rows_of(receiver, server) == dict(server.query("SELECT id, pad FROM d.t"))
            write(server, 5)


@pytest.mark.slow
def test_tagged_gtids_are_followed_and_not_redelivered(tmp_path: Path) -> None:
    with servers.mysql97() as server:
        server.execute(*SCHEMA)
        receiver = Receiving(server, tmp_path)
        for tag in ("", "apple", "pear"):
            if tag:
                server.execute(
                    f"SET GTID_NEXT = 'AUTOMATIC:{tag}'", "INSERT INTO d.t (pad) VALUES ('a')",
                    "INSERT INTO d.t (pad) VALUES ('b')",
                )  # fmt: skip
            receiver.start()
            receiver.wait_until_level()
            assert receiver.stop() == 0
            server.execute("FLUSH BINARY LOGS")
        assert "apple:1-2" in server.gtid_executed() and "pear:1-2" in server.gtid_executed()
        assert log_events(receiver.log_path) == source_events(server)
        log = receiver.log
        assert str(log.executed_at(log.end)) == str(GtidSet(server.gtid_executed()))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mariadb1011", "mariadb118"])
def test_a_mariadb_that_was_reset_has_diverged(name: str, tmp_path: Path) -> None:
    with servers.FLAVORS[name]() as server:
        assert isinstance(server, MariaDbServer)
        server.execute(*SCHEMA)
        write(server, 5)
        receiver = Receiving(server, tmp_path)
        receiver.start()
        receiver.wait_until_level()
        receiver.stop()
        server.execute("RESET MASTER")
        write(server, 2)
        assert "does not have transactions that the relay log has: 0-1-" in receiver.fails()
        # Numbers that reach ours again stand for other transactions.
        write(server, 30)
        said = receiver.fails()
        assert any(
            part in said
            for part in (
                "than the relay log has",
                "no longer reaches",
                "not continue the relay log",
                "cannot be read after the end of the relay log",
            )
        )
