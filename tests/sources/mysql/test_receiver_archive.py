"""Receivers with an archive whose disk is lost, or who are killed. The judge is the source's own log."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.relaylog.free_lease import free_lease
from tests.sources.mysql.receiving import Receiving, events_of, source_events

from penstock.model.offset import LogRange
from penstock.relaylog.archive import MANIFEST, Archive, Manifest
from penstock.relaylog.archive_lease import LEASE
from penstock.relaylog.files import LogPlace
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment import list_segments
from penstock.store.base import Store
from penstock.store.opening import open_store
from penstock.testing.servers import MySqlServer

TABLE = "CREATE TABLE shop.a (id INT PRIMARY KEY AUTO_INCREMENT, v TEXT)"


@pytest.fixture(scope="module")
def server() -> Iterator[MySqlServer]:
    with MySqlServer({"binlog_row_event_max_size": 1024}) as running:
        running.execute(
            "CREATE DATABASE shop", "CREATE TABLE shop.a (id INT PRIMARY KEY AUTO_INCREMENT, v TEXT)"
        )
        yield running


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store((tmp_path / "archive").as_uri())


@pytest.fixture
def receiver(server: MySqlServer, tmp_path: Path) -> Iterator[Receiving]:
    archive = str(tmp_path / "archive")
    made = Receiving(server, tmp_path / "state", archive=archive, segment_size="40KiB", span_size="6KiB")
    yield made
    if made.process is not None:
        made.kill()


def write(server: MySqlServer, transactions: int) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for _ in range(transactions):
            cursor.execute("INSERT INTO shop.a (v) VALUES (REPEAT('x', 500)), (REPEAT('y', 500))")
            connection.commit()


def manifest_of(store: Store) -> Manifest:
    found = Archive(store).manifest()
    assert found is not None
    return found


def is_archived(receiver: Receiving, store: Store) -> bool:
    found = Archive(store).manifest()
    return found is not None and found.end == list_segments(receiver.log_path)[-1].base > 0


def log_events(receiver: Receiving, store: Store, folder: Path) -> list[bytes]:
    """The events of the whole log: of the disk, and of the archive where the disk has none."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    log = RelayLog.open(LogPlace(receiver.log_path, store))
    names, found = log.segments(), []
    ends = [name.base for name in names[1:]] + [log.end]
    for name, end in zip(names, ends, strict=True):
        path = receiver.log_path / name.file
        if not path.exists():
            path = folder / name.file
            path.write_bytes(store.get(Archive.data_key(name)).data)
        found += list(events_of(path, end - name.base))
    assert log.tables(LogRange(log.start, log.end))
    return found


def lose_disk(receiver: Receiving, store: Store) -> None:
    """Also says that the lease is free, so that the test need not wait for its end."""
    shutil.rmtree(receiver.log_path)
    free_lease(store)


@pytest.mark.parametrize("ending", ["kill", "stop"])
def test_a_receiver_on_an_empty_disk_goes_on_from_archive_and_source(
    server: MySqlServer, receiver: Receiving, store: Store, tmp_path: Path, ending: str
) -> None:
    receiver.start()
    write(server, 150)
    receiver.wait_until_level()
    receiver.wait_for(lambda: is_archived(receiver, store), "archive")
    write(server, 20)
    receiver.wait_until_level()
    before = receiver.log
    end, archived = before.end, manifest_of(store).end
    assert 0 < archived < end
    receiver.kill() if ending == "kill" else receiver.stop()
    lose_disk(receiver, store)

    write(server, 30)
    receiver.start()
    receiver.wait_until_level()
    after = RelayLog.open(LogPlace(receiver.log_path, store))
    assert (after.uuid, after.source_uuid) == (before.uuid, before.source_uuid)
    assert after.segments()[-1].generation > before.segments()[-1].generation
    assert log_events(receiver, store, tmp_path / "look") == source_events(server)
    [[forked, _]] = after.facts["forks"]
    assert forked == (archived if ending == "kill" else end)  # a clean end loses nothing
    if ending == "stop":
        assert end in {name.base for name in after.segments()}
    write(server, 100)
    receiver.wait_until_level()
    receiver.wait_for(lambda: is_archived(receiver, store), "archive")
    receiver.stop()
    assert receiver.status().get("archive", {"error": None})["error"] is None
    shutil.rmtree(receiver.log_path)
    assert log_events(receiver, store, tmp_path / "look") == source_events(server)


def test_what_the_source_has_purged_meanwhile_is_said(
    server: MySqlServer, receiver: Receiving, store: Store
) -> None:
    receiver.start()
    write(server, 150)
    receiver.wait_until_level()
    receiver.wait_for(lambda: is_archived(receiver, store), "archive")
    write(server, 5)
    receiver.wait_until_level()
    receiver.kill()
    lose_disk(receiver, store)
    server.execute("FLUSH LOGS")
    write(server, 1)
    server.execute(f"PURGE BINARY LOGS TO '{server.binlog_files()[-1].name}'")
    said = receiver.fails()
    assert "The source no longer has the transactions" in said
    assert "binlog_expire_logs_seconds" in said


def test_prepared_xa_transactions_survive_the_loss_of_the_disk(
    server: MySqlServer, receiver: Receiving, store: Store
) -> None:
    server.execute("RESET MASTER")  # the other tests compare all events, and those of XA are rewritten
    receiver.start()
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("XA START 'kept'")
        cursor.execute("INSERT INTO shop.a (v) VALUES ('prepared')")
        cursor.execute("XA END 'kept'")
        cursor.execute("XA PREPARE 'kept'")
    write(server, 100)
    receiver.wait_until_level()
    receiver.wait_for(lambda: is_archived(receiver, store), "archive")
    receiver.kill()
    lose_disk(receiver, store)
    receiver.start()
    receiver.wait_until_level()
    log = RelayLog.open(LogPlace(receiver.log_path, store))
    assert [one.xid for one in log.prepared] != []
    before = log.end
    server.execute("XA COMMIT 'kept'")
    receiver.wait_until_level()
    log.refresh()
    rows = {str(table): counts[0] for table, counts in log.tables(LogRange(before, log.end)).items()}
    assert rows == {"shop.a": 1}
    receiver.stop()
    server.execute("RESET MASTER")


def test_the_cache_of_a_receiver_stays_small(server: MySqlServer, tmp_path: Path, store: Store) -> None:
    made = Receiving(
        server,
        tmp_path / "state",
        archive=str(tmp_path / "archive"),
        segment_size="40KiB",
        cache_size="80KiB",
    )
    made.start()
    try:
        write(server, 300)
        made.wait_until_level()
        made.wait_for(lambda: is_archived(made, store), "archive")
        made.stop()
        made.start()  # it tidies at its start, and then every half minute
        made.wait_for(lambda: len(list_segments(made.log_path)) <= 5, "small cache")
        made.wait_until_level()
        assert log_events(made, store, tmp_path / "look") == source_events(server)
    finally:
        made.kill()


def test_an_archive_that_cannot_be_written_stops_nothing(
    server: MySqlServer, receiver: Receiving, store: Store, tmp_path: Path
) -> None:
    (tmp_path / "archive").write_text("a file where the archive's directory should be")
    receiver.start()
    write(server, 100)
    receiver.wait_until_level()
    receiver.wait_for(lambda: receiver.status().get("archive", {}).get("error"), "error in the report")
    write(server, 50)
    receiver.wait_until_level()
    (tmp_path / "archive").unlink()
    receiver.wait_for(lambda: is_archived(receiver, store), "archive")
    receiver.wait_for(lambda: receiver.status()["archive"]["error"] is None, "report without an error")
    assert log_events(receiver, store, tmp_path / "look") == source_events(server)


@pytest.mark.slow
def test_receivers_killed_at_any_moment_leave_an_archive_that_equals_the_source(
    server: MySqlServer, receiver: Receiving, store: Store, tmp_path: Path
) -> None:
    chance = random.Random(20)
    for number in range(12):
        receiver.start()
        write(server, 60)
        time.sleep(chance.uniform(0, 1.5))  # the moment of the kill
        receiver.kill()
        if number % 3 == 2 and Archive(store).manifest() is not None:
            lose_disk(receiver, store)
        elif (receiver.log_path / "relay.json").exists() and Archive(store).manifest() is not None:
            found = Archive(store).manifest()
            assert found is None or found.end <= receiver.log.end
    receiver.start()
    receiver.wait_until_level()
    assert log_events(receiver, store, tmp_path / "look") == source_events(server)
    receiver.stop()
    shutil.rmtree(receiver.log_path)
    assert log_events(receiver, store, tmp_path / "look") == source_events(server)


def test_two_receivers_do_not_share_an_archive(
    server: MySqlServer, receiver: Receiving, store: Store, tmp_path: Path
) -> None:
    receiver.start()
    write(server, 100)
    receiver.wait_until_level()
    receiver.wait_for(lambda: is_archived(receiver, store), "archive")
    options: dict[str, Any] = {"archive": str(tmp_path / "archive"), "segment_size": "40KiB"}
    other = Receiving(server, tmp_path / "other", **options)
    receiver.stop()  # the lease is free, so the other one takes over
    other.start()
    try:
        write(server, 100)
        other.wait_until_level()
        other.wait_for(lambda: is_archived(other, store), "archive")
        archived = manifest_of(store)
        ended = receiver.start().wait(60)
        said = receiver.errors.read_text()
        assert ended != 0, said  # its folder ends where the other one has gone on
        assert "does not continue its archive" in said or "Another receiver" in said
        assert manifest_of(store).generation == archived.generation
        write(server, 50)
        other.wait_until_level()
        assert log_events(other, store, tmp_path / "look") == source_events(server)
    finally:
        other.kill()


def test_a_receiver_that_is_stopped_while_it_waits_for_the_lease_leaves_the_archive_alone(
    server: MySqlServer, receiver: Receiving, store: Store, tmp_path: Path
) -> None:
    receiver.start()
    write(server, 100)
    receiver.wait_until_level()
    receiver.wait_for(lambda: is_archived(receiver, store), "archive")
    receiver.kill()  # so its lease lasts for a while
    before = store.get(MANIFEST).data, store.get(LEASE).data
    other = Receiving(server, tmp_path / "other", archive=str(tmp_path / "archive"), segment_size="40KiB")
    other.start()
    other.wait_for((other.log_path / "archive-id").exists, "look at the lease")
    assert other.stop() == 0, other.errors.read_text()
    assert (store.get(MANIFEST).data, store.get(LEASE).data) == before
    assert list_segments(other.log_path) == []
