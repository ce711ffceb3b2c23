"""An archive in S3, through a proxy that injects faults; and the programs that read an archive alone."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.relaylog.conftest import TABLES, Received
from tests.relaylog.test_archive import answers, archiver, objects
from tests.store.conftest import faulty_store, options, proxy, s3_server, url

from penstock.changes.reader import ChangeBatch, ChangeReader, Definitions
from penstock.commands.inspect import log_files
from penstock.errors import ConfigError, LeaseHeld, TransientError
from penstock.model.offset import LogRange, Offset, Split
from penstock.model.schema import TableSchema
from penstock.relaylog import segment_bytes
from penstock.relaylog.archive import Archive
from penstock.relaylog.files import LogPlace
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment import STATUS_FILE, list_segments
from penstock.relaylog.segment_bytes import InStore, opened
from penstock.store.base import Store
from penstock.store.errors import StoreUnavailable
from penstock.store.opening import open_store
from penstock.testing.faulty_proxy import Fault, FaultyProxy, Request, get, put
from penstock.testing.servers.s3 import KEY_ID, SECRET

__all__ = ["faulty_store", "proxy", "s3_server", "url"]

FAULTS = [
    Fault("answer", status=503, code="SlowDown"),
    Fault("answer", status=500, code="InternalError"),
    Fault("done, but answer", status=500, code="InternalError"),
    Fault("lost answer"),
    Fault("reset in the middle"),
    Fault("truncated"),
    Fault("slow", seconds=0.1),
]


@pytest.mark.parametrize("seed", range(4))
def test_faults_of_the_store_change_nothing_in_the_archive(
    received: Received, folder: Path, faulty_store: Store, proxy: FaultyProxy, seed: int
) -> None:
    chance = random.Random(seed)
    for _ in range(12):
        number = chance.randrange(1, 15)
        proxy.plan(chance.choice(FAULTS), when=every(number), times=1)
    writing = archiver(folder, faulty_store)
    for _ in range(5):
        try:
            writing.step(last_too=True)
        except TransientError:
            continue
        break
    log = RelayLog.open(LogPlace(None, faulty_store))
    assert log.end == received.log.end
    assert answers(log, received, seed) == answers(received.log, received, seed)
    proxy.forget()
    manifest = Archive(faulty_store).manifest()
    assert manifest is not None
    assert len(objects(faulty_store)) == 3 + 2 * len(manifest.segments)  # no orphan


def every(number: int) -> Any:
    """Matches the n-th request from now on."""
    seen = 0

    def matches(request: Request) -> bool:
        nonlocal seen
        seen += 1
        return seen == number

    return matches


def of_the_manifest(request: Request) -> bool:
    return put(request) and "log.json" in request.path


def test_a_manifest_whose_answer_is_lost_for_good_is_read_again(
    received: Received, folder: Path, s3_server: Any, proxy: FaultyProxy, url: str
) -> None:
    hasty = open_store(url, options(proxy.url, seconds=1, attempts=1))
    writing = archiver(folder, hasty)
    proxy.plan(
        Fault("lost answer"), when=lambda request: put(request) and "log.json" in request.path, times=3
    )
    failed = 0
    for _ in range(8):
        try:
            writing.step(last_too=True)
        except (StoreUnavailable, LeaseHeld) as error:
            assert isinstance(error, StoreUnavailable)
            failed += 1
    log = RelayLog.open(LogPlace(None, hasty))
    assert failed >= 1
    assert (log.end, len(log.segments())) == (received.log.end, len(received.log.segments()))


def test_an_outage_of_the_store_is_no_damaged_log(
    received: Received, folder: Path, s3_server: Any, proxy: FaultyProxy, url: str
) -> None:
    hasty = open_store(url, options(proxy.url, seconds=1, attempts=1))
    archiver(folder, hasty).step(last_too=True)
    log = RelayLog.open(LogPlace(None, hasty))
    table = TABLES[1]
    [split, *_] = log.splits(LogRange(log.start, log.end), table, bytes_aim=50_000)
    segment_bytes._open.clear()
    proxy.plan(Fault("answer", status=503), when=get, times=1)
    part = opened(split)
    with pytest.raises(StoreUnavailable):
        list(decoder_of(received.schemas[table], part))
    assert list(decoder_of(received.schemas[table], opened(split)))


def decoder_of(schema: TableSchema, part: segment_bytes.OpenSplit) -> Any:
    from penstock._core import RangeDecoder

    return RangeDecoder(schema.to_json(), *part.place, preamble=part.preamble)


def test_an_executor_reads_a_split_with_one_request_for_its_bytes_and_one_for_the_head(
    received: Received, folder: Path, faulty_store: Store, proxy: FaultyProxy
) -> None:
    archive = Archive(faulty_store)
    archiver(folder, faulty_store).step(last_too=True)
    sizes = {one.name.base: one for one in archive.manifest().segments}  # type: ignore[union-attr]
    table = TABLES[1]
    splits = [
        Split(
            str(path),
            Offset(walk.base),
            Offset(walk.transactions[3].start),
            Offset(walk.transactions[-2].end),
        )
        for path, walk in received.walk.segments
        if len(walk.transactions) > 8
    ]
    assert splits
    for split in splits[:3]:
        segment = sizes[split.base]
        remote = replace(split, source=InStore(faulty_store, archive.data_key(segment.name), segment.bytes))
        proxy.requests.clear()
        list(decoder_of(received.schemas[table], opened(remote)))
        asked = [one.headers.get("range") for one in proxy.requests if one.method == "GET"]
        start, end = split.start - split.base, split.end - split.base
        assert f"bytes={start}-{end - 1}" in asked
        assert len(asked) == 2


def test_many_tables_read_each_block_of_an_archive_once(
    received: Received, folder: Path, faulty_store: Store, proxy: FaultyProxy
) -> None:
    archiver(folder, faulty_store).step(last_too=True)
    log = RelayLog.open(LogPlace(None, faulty_store))
    splits = [
        (table, split)
        for table in TABLES[:3]
        for split in log.splits(LogRange(log.start, log.end), table, bytes_aim=1 << 30)
    ]
    segment_bytes._open.clear()
    proxy.requests.clear()
    for table, split in sorted(splits, key=lambda one: one[1].base):
        list(decoder_of(received.schemas[table], opened(split)))
    asked = [(one.path, one.headers.get("range")) for one in proxy.requests if "binlog" in one.path]
    read = [one for one in asked if one[1] is not None]
    assert len(read) == len(set(read)) <= 2 * len(log.segments())


# programs that read an archive


def inspect(*arguments: str, endpoint: str = "") -> list[dict[str, Any]]:
    environment = {
        **os.environ, "AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1",
    }  # fmt: skip
    found = subprocess.run(
        [sys.executable, "-m", "penstock", "inspect", *arguments, "--json"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [json.loads(line) for line in found.stdout.splitlines()]


def test_inspect_shows_of_an_archive_what_it_shows_of_the_log(
    folder: Path, faulty_store: Store, proxy: FaultyProxy, tmp_path: Path
) -> None:
    local = open_store((tmp_path / "archive").as_uri())
    for store in (faulty_store, local):
        archiver(folder, store).step(last_too=True)
    expected = inspect(str(folder))
    assert len(expected) > 500
    shutil.rmtree(folder)
    assert inspect(faulty_store.location.url(), endpoint=proxy.url) == expected
    assert inspect(str(tmp_path / "archive")) == expected
    [totals] = inspect(faulty_store.location.url(), "--summary", endpoint=proxy.url)
    assert sum(totals["rows"].values()) == len(expected)


def cached(folder: Path, store: Store) -> None:
    """The older segments are only in the archive, as the receiver's report says."""
    archiving = archiver(folder, store)
    archiving.step()
    archiving.drop_cached(0)
    report = json.dumps({"archive": archiving.report()})
    (folder / STATUS_FILE).write_text(report)


def test_what_is_only_in_the_archive_is_shown_of_a_cached_log_too(
    received: Received, folder: Path, faulty_store: Store, proxy: FaultyProxy, tmp_path: Path
) -> None:
    expected, segments = inspect(str(folder)), len(list_segments(folder))
    cached(folder, faulty_store)
    assert len(list_segments(folder)) < segments
    assert inspect(str(folder), endpoint=proxy.url) == expected

    file = tmp_path / "pipeline.yaml"
    section = {"endpoint": proxy.url, "access_key_id": KEY_ID, "secret_access_key": SECRET}
    document = {
        "name": "x",
        "source": {"host": "h", "user": "u", "password": "p"},
        "tables": ["d.*"],
        "state": str(tmp_path / "state"),
        "relay_log": {"path": str(folder), "archive": faulty_store.location.url()},
        "store": section,
    }
    file.write_text(yaml.safe_dump(document))
    assert inspect(str(file)) == expected
    with pytest.raises(ConfigError, match="Give the pipeline file"):
        log_files(str(folder))


def test_changes_of_a_cached_log_are_read_from_both(received: Received, folder: Path, tmp_path: Path) -> None:
    cached(folder, open_store((tmp_path / "archive").as_uri()))
    tables = {table: received.schemas[table] for table in TABLES[:2]}

    def read(path: Path) -> list[Any]:
        definitions = Definitions(received.log.start, tables)
        with ChangeReader(path, definitions, start="earliest", until=received.log.end) as reader:
            return [item.batch.to_pylist() for item in reader if isinstance(item, ChangeBatch)]

    assert read(folder) == read(received.folder) != []


def test_changes_are_read_from_an_archive_alone(
    received: Received, folder: Path, faulty_store: Store
) -> None:
    archiver(folder, faulty_store).step(last_too=True)
    shutil.rmtree(folder)
    tables = {table: received.schemas[table] for table in TABLES[:3]}

    def read(place: Any) -> list[Any]:
        found: list[Any] = []
        log = RelayLog.open(place)
        reader = ChangeReader(place, Definitions(log.start, tables), start="earliest", until=received.log.end)
        with reader:
            for item in reader:
                if isinstance(item, ChangeBatch):
                    found += [(str(item.table), row) for row in item.batch.to_pylist()]
        return sorted(found, key=lambda one: one[1]["_sequence"])

    found = read(LogPlace(None, faulty_store))
    assert found == read(received.folder)
    assert len(found) > 300
    with pytest.raises(ConfigError, match="consumers are registered where the receiver runs"):
        ChangeReader(LogPlace(None, faulty_store), Definitions(received.log.start, tables), name="x")
