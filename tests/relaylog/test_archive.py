"""The archive of a log that a real receiver has received: what readers find in it, and what crashes leave."""

from __future__ import annotations

import random
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.relaylog.conftest import AT_ONCE, SPAN_SIZE, TABLES, Received
from tests.relaylog.free_lease import free_lease
from tests.relaylog.test_reader import ranges

from penstock._core import RangeDecoder
from penstock.config import RelayLogConfig
from penstock.errors import ConfigError, LeaseHeld, LogPurged, PenstockError, TransientError
from penstock.model.offset import LogRange, Offset
from penstock.relaylog import archive_lease
from penstock.relaylog.archive import CONSUMERS, FOLDER, MANIFEST, Archive
from penstock.relaylog.archive_lease import LEASE
from penstock.relaylog.archive_restore import ENDLESS, identity_of, lost_after, prepare, survives
from penstock.relaylog.archiver import Archiver
from penstock.relaylog.consumers import Consumer, registered
from penstock.relaylog.files import LogPlace
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment import list_segments
from penstock.relaylog.segment_bytes import opened
from penstock.store.base import Store, Upload
from penstock.store.lease import Times
from penstock.store.opening import open_store
from penstock.testing.scenario import wait_for

KEPT = RelayLogConfig(span_size=SPAN_SIZE, disk_free_min=0)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store((tmp_path / "archive").as_uri())


def archiver(folder: Path, store: Store, config: RelayLogConfig = KEPT, *, generation: int = 100) -> Archiver:
    made = Archiver(folder, store, config)
    made._generation = generation
    return made


def answers(log: RelayLog, received: Received, seed: int) -> list[Any]:
    """What a reader says of many ranges, as far as it does not depend on how fine the index is."""
    found: list[Any] = []
    for number, reach in enumerate(ranges(received, seed, 30)):
        found += [
            log.tables(reach, exact=True), log.statements(reach),
            str(log.executed_at(reach.end)), log.commit_time_us_at(reach.end),
            log.server_uuid_at(reach.end), log.committed_before(reach.end),
        ]  # fmt: skip
        if number < 6:
            table = received.schemas[TABLES[1]].to_json()
            for split in log.splits(reach, TABLES[1], bytes_aim=20_000):
                part = opened(split)
                for batch in RangeDecoder(table, *part.place, preamble=part.preamble):
                    found += batch.to_pylist()
    return found


def test_an_archive_alone_says_what_the_log_says(received: Received, folder: Path, store: Store) -> None:
    archiver(folder, store).step(last_too=True)
    shutil.rmtree(folder)
    log = RelayLog.open(LogPlace(None, store))
    assert (log.uuid, log.end, log.start) == (received.log.uuid, received.log.end, received.log.start)
    assert answers(log, received, 5) == answers(received.log, received, 5)
    assert RelayLog.open(store.location.url()).end == received.log.end


def test_the_last_segment_is_archived_only_when_nobody_writes_it(
    folder: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = list_segments(folder)
    writing = archiver(folder, store)
    writing.step()
    log = RelayLog.open(LogPlace(None, store))
    assert log.segments() == segments[:-1]
    assert log.end == segments[-1].base
    writing.step(last_too=True)
    monkeypatch.setattr("penstock.relaylog.files.LOOK_SECONDS", 0.0)
    assert log.refresh() == RelayLog.open(folder).end
    assert log.segments() == segments


def test_readers_find_in_the_archive_what_the_cache_has_dropped(
    received: Received, folder: Path, store: Store
) -> None:
    before = RelayLog.open(LogPlace(folder, store))
    writing = archiver(folder, store)
    writing.step()
    writing.drop_cached(150_000)
    kept = list_segments(folder)
    assert 2 < len(kept) < len(received.log.segments())
    writing.drop_cached(0)
    assert len(list_segments(folder)) == 2
    expected = answers(received.log, received, 6)
    for log in (RelayLog.open(LogPlace(folder, store)), before):  # one was open all the time
        assert log.refresh() == received.log.end
        assert answers(log, received, 6) == expected
    with pytest.raises(LogPurged):  # who does not know the archive is not told a shorter story
        RelayLog.open(folder).tables(LogRange(received.log.start, received.log.end))


def test_what_is_not_archived_stays_on_the_disk(folder: Path, store: Store) -> None:
    segments = list_segments(folder)
    writing = archiver(folder, store)
    writing.drop_cached(0)
    assert list_segments(folder) == segments
    _Killed.after(store, 14, writing)
    archived = Archive(store).manifest()
    assert archived is not None
    assert 0 < len(archived.segments) <= len(segments) - 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "_manifest", archived)
        writing.drop_cached(0)
    assert list_segments(folder) == segments[len(archived.segments) :]


class _Killed(BaseException):
    """Ends the archiver between two steps, as kill -9 does: nothing of it runs afterwards."""

    @staticmethod
    def after(store: Store, steps: int, writing: Archiver) -> bool:
        """Whether it ended before it was killed at the given step."""
        killing = _KillingStore(store, steps)
        writing.archive = Archive(killing)
        try:
            writing.step(last_too=True)
        except _Killed:
            return False
        finally:
            writing.archive = Archive(store)
        return True


class _KillingStore:
    """Counts what changes the store. Every second time, the kill comes after the change, not before it."""

    def __init__(self, store: Store, steps: int) -> None:
        self._store = store
        self._left = steps

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in ("put", "put_if_absent", "put_if_unchanged", "upload", "delete_many"):
            return found

        def counted(*arguments: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left <= 0:
                raise _Killed
            answer = found(*arguments, **named)
            self._left -= 1
            if self._left == 0 and name != "upload":
                raise _Killed
            return answer

        return counted


def objects(store: Store) -> list[str]:
    return [one.key for one in store.objects()]


def test_a_kill_between_any_two_steps_leaves_an_archive_that_goes_on(
    received: Received, folder: Path, store: Store, tmp_path: Path
) -> None:
    whole = open_store((tmp_path / "whole").as_uri())
    archiver(folder, whole).step(last_too=True)
    ends = {name.base for name in received.log.segments()} | {received.log.end}
    seen, steps = set(), 1
    while not _Killed.after(store, steps, archiver(folder, store)):
        manifest = Archive(store).manifest()
        if manifest is not None and manifest.segments:
            # Whoever comes now reads a whole log, up to some segment's end.
            log = RelayLog.open(LogPlace(None, store))
            seen.add(log.end)
            assert log.end in ends
            assert log.tables(LogRange(log.start, log.end))
        archiver(folder, store, generation=101).step(last_too=True)
        assert objects(store) == objects(whole)
        for key in objects(store):
            if key.startswith(FOLDER):
                assert store.get(key).data == whole.get(key).data
        store.delete_many(objects(store))
        steps += 1
    assert seen == ends - {Offset(0)}


@pytest.fixture
def short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_lease, "TIMES", Times(free_s=0.5, valid_s=0.3, renew_s=0.05))


def test_a_fenced_receiver_adds_nothing_and_stops(folder: Path, store: Store, tmp_path: Path) -> None:
    """The second one began on an empty disk; the first one lives on, and closes a segment."""
    segments = list_segments(folder)
    old = tmp_path / "old"
    shutil.copytree(folder, old)
    for name in segments[4:]:
        for file in (name.file, name.index):
            (old / file).unlink()
    first = archiver(old, store, generation=50)
    first.step()
    archived = Archive(store).manifest()
    assert archived is not None
    assert [one.name for one in archived.segments] == segments[:3]

    free_lease(store)  # the first one has not noticed yet that somebody else has it
    second = archiver(folder, store, generation=51)
    second.step()
    assert first.lease.alive()
    for name in segments[4:6]:
        for file in (name.file, name.index):
            shutil.copy(folder / file, old / file)
    with pytest.raises(LeaseHeld):
        first.step()
    with pytest.raises(LeaseHeld):
        first.step()
    found = Archive(store).manifest()
    assert found is not None
    assert (found.generation, [one.name for one in found.segments]) == (51, segments[:-1])


def test_a_second_receiver_is_refused_while_the_first_one_lives(
    folder: Path, store: Store, tmp_path: Path, short_lease: None
) -> None:
    """Also while that is busy with one segment for longer than the lease lasts."""
    slow = Slow(store)
    first = archiver(folder, slow)
    first.begin(100)
    assert slow.begun.wait(60)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(LeaseHeld, match="Another receiver"):
        prepare(archiver(empty, store))
    slow.may_end.set()
    wait_for(lambda: first.end > 0, "the first segment to be archived")
    with pytest.raises(TransientError, match="interrupted"):
        prepare(archiver(empty, store), lambda: True)
    assert list_segments(empty) == []
    first.stop(clean=False)
    assert first.failure is None and prepare(archiver(empty, store)) == 100


class Slow:
    """A store in which uploads do not end before they may."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.begun, self.may_end = threading.Event(), threading.Event()

    def upload(self, key: str) -> Upload:
        self.begun.set()
        assert self.may_end.wait(60)
        return self._store.upload(key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_a_receiver_that_was_replaced_leaves_the_lease_of_the_next_one_alone(
    folder: Path, store: Store, tmp_path: Path, short_lease: None
) -> None:
    first = archiver(folder, store)
    first.step(last_too=True)  # it is suspended
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    second = archiver(other, store, generation=101)
    second.step(last_too=True)
    written = store.get(LEASE).data
    with pytest.raises(LeaseHeld, match="Another receiver"):
        first.step(last_too=True)  # nothing new is to be archived
    first.lease.keep()
    first.lease.release()
    assert store.get(LEASE).data == written


def test_of_two_receivers_that_watch_one_lease_one_gets_it(
    folder: Path, store: Store, tmp_path: Path, short_lease: None
) -> None:
    archiver(folder, store).step()  # it was killed, with its disk
    archivers = []
    for name in ("one", "two"):
        shutil.copytree(folder, tmp_path / name)
        archivers.append(archiver(tmp_path / name, store))
    assert [prepare(each) for each in archivers] == [100, 100]
    for each in archivers:
        each._generation = 101
        each.lease.keep()
    archivers[0].step()
    with pytest.raises(LeaseHeld):
        archivers[1].step()
    archivers[0].step()
    archivers[0].lease.release()


def test_a_log_of_another_source_or_an_older_copy_is_refused(
    received: Received, folder: Path, store: Store, tmp_path: Path
) -> None:
    older = tmp_path / "older"
    shutil.copytree(folder, older)
    for name in list_segments(folder)[3:]:
        (older / name.index).unlink()
        (older / name.file).unlink()
    archiver(folder, store).step()
    free_lease(store)
    with pytest.raises(ConfigError, match="does not continue its archive"):
        prepare(archiver(older, store))
    relay = (folder / "relay.json").read_text()
    (folder / "relay.json").write_text(relay.replace(received.log.uuid, "another"))
    with pytest.raises(ConfigError, match="belongs to another relay log"):
        prepare(archiver(folder, store))


def test_a_restore_that_was_killed_is_made_again(
    received: Received, folder: Path, store: Store, tmp_path: Path
) -> None:
    archiver(folder, store).step(last_too=True)
    free_lease(store)
    empty = tmp_path / "empty"
    empty.mkdir()
    [*_, last] = list_segments(folder)
    shutil.copy(folder / list_segments(folder)[2].file, empty)  # of a restore of an older archive
    (empty / last.file).write_bytes(b"torn")
    prepare(archiver(empty, store))
    assert list_segments(empty) == [last]
    log = RelayLog.open(LogPlace(empty, store))
    assert (log.uuid, log.end) == (received.log.uuid, received.log.end)
    assert answers(log, received, 7) == answers(received.log, received, 7)
    assert [offset for offset, _ in log.facts["forks"]] == [received.log.end]


def test_retention_holds_for_the_archive_and_respects_consumers(
    received: Received, folder: Path, store: Store
) -> None:
    segments = list_segments(folder)
    needed = segments[2].base
    consumer = Consumer(folder, "reader", needs=Offset(needed))
    writing = archiver(folder, store, AT_ONCE)
    writing.step()
    log = RelayLog.open(LogPlace(folder, store))
    assert log.segments() == segments[2:]
    assert list_segments(folder) == segments[2:]
    assert {key for key in objects(store) if key.startswith(FOLDER)} == {
        f"{FOLDER}/{file}" for name in segments[2:-1] for file in (name.file, name.index)
    }
    with pytest.raises(LogPurged):
        log.tables(LogRange(received.log.start, received.log.end))
    consumer.needs(segments[3].base)
    consumer.close()
    writing._tidied = 0.0
    writing.step()
    assert log.tables(LogRange(segments[3].base, received.log.end))
    assert RelayLog.open(LogPlace(None, store)).segments() == segments[3:-1]


def test_a_reader_of_the_archive_sees_that_retention_has_deleted(
    received: Received, folder: Path, store: Store
) -> None:
    archiver(folder, store).step()
    log = RelayLog.open(LogPlace(None, store))
    Consumer(folder, "reader", needs=received.log.end).close()
    archiver(folder, store, AT_ONCE, generation=101).step()
    assert log.last_transaction() is not None
    assert log.start >= list_segments(folder)[-2].base
    with pytest.raises(LogPurged):
        log.tables(LogRange(received.log.start, log.end))


@pytest.mark.parametrize("damage", [b"", b"{}", b"[1]", b'{"format": 2}', b'{"format": 1, "relay": {}}'])
def test_a_damaged_manifest_is_named(store: Store, damage: bytes) -> None:
    store.put(MANIFEST, damage)
    with pytest.raises(PenstockError, match=r"log\.json is damaged|has the format 2"):
        RelayLog.open(LogPlace(None, store))


def test_a_place_without_an_archive_is_named(store: Store) -> None:
    with pytest.raises(ConfigError, match="no archive"):
        RelayLog.open(LogPlace(None, store))
    assert not RelayLog.exists(LogPlace(None, store))


def test_random_ranges_cross_from_archive_to_disk(received: Received, folder: Path, store: Store) -> None:
    writing = archiver(folder, store)
    writing.step()
    chance = random.Random(1)
    for _ in range(4):
        writing.drop_cached(chance.randrange(60_000, 400_000))
        log = RelayLog.open(LogPlace(folder, store))
        seed = chance.randrange(1000)
        assert answers(log, received, seed) == answers(received.log, received, seed)


@pytest.mark.parametrize(
    ("position", "known", "lost"),
    [
        (100, [], None), (101, [], 100), (900, [], 100),
        (900, [[100, "a"]], None), (901, [[100, "a"]], 900), (901, [[100, "a"], [900, "b"]], None),
        (901, [[100, "a"], [900, "x"]], 900), (901, [[100, "a"], [950, "x"]], 900),
        (90, [[80, "x"]], 80), (950, [[100, "a"], [900, "b"], [940, "c"]], 940),
    ],
)  # fmt: skip
def test_who_has_planned_what_was_lost_is_told_from_where(
    position: int, known: list[list[Any]], lost: int | None
) -> None:
    """The disk was lost twice: with what came after offset 100, and after 900."""
    relay = {"forks": [[100, "a"], [900, "b"]]}
    assert lost_after(relay, position=Offset(position), known=known) == lost
    assert lost_after({"forks": known}, position=Offset(position), known=known) is None


def test_a_log_that_was_restored_is_the_same_up_to_there() -> None:
    relay = {"uuid": "u", "forks": [[900, "a"], [100, "b"]]}
    assert identity_of({"uuid": "u"}) == "u" and identity_of(relay) == "u+b"
    same = {one: survives(relay, one) for one in ("u", "u+a", "u+b", "u+x", "v", "v+b")}
    assert same == {"u": 100, "u+a": 100, "u+b": ENDLESS, "u+x": None, "v": None, "v+b": None}


def test_readers_stay_registered_when_the_disk_is_lost(
    received: Received, folder: Path, store: Store, tmp_path: Path
) -> None:
    segments = list_segments(folder)
    Consumer(folder, "slow", needs=segments[2].base).close()
    Consumer(folder, "level", needs=received.log.end, id="x", kind="pipeline", place="/state").close()
    archiver(folder, store).step()
    free_lease(store)
    empty = tmp_path / "empty"
    empty.mkdir()
    generation = prepare(archiver(empty, store))
    found = {one.name: (one.kind, one.offset, one.alive) for one in registered(empty)}
    # Nobody has read log that is not there.
    assert found == {
        "slow": ("follower", segments[2].base, False), "level": ("pipeline", segments[-1].base, False)
    }  # fmt: skip
    archiver(empty, store, AT_ONCE, generation=generation + 1).step()
    assert RelayLog.open(LogPlace(None, store)).segments() == segments[2:-1]


@pytest.mark.parametrize(
    "known", [b"", b"{}", b"[1, null]", b'[{"id": "../x", "name": "x"}]', b'[{"id": "a"}]']
)
def test_a_damaged_list_of_readers_stops_nothing(
    folder: Path, store: Store, tmp_path: Path, known: bytes
) -> None:
    archiver(folder, store).step()
    free_lease(store)
    store.put(CONSUMERS, known)
    empty = tmp_path / "empty"
    empty.mkdir()
    prepare(archiver(empty, store))
    assert registered(empty) == []
