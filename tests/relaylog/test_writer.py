"""What a crash, damage or a fenced writer leaves behind, and what readers and the next writer make of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.relaylog.conftest import SPAN_SIZE, Received
from tests.relaylog.fenced import begin_behind
from tests.relaylog.walking import LogWalk, Transaction, index_entries

from penstock.config import RelayLogConfig
from penstock.errors import RelayLogCorrupt
from penstock.model.offset import LogRange, Offset
from penstock.relaylog import index
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment import SegmentName, list_segments
from penstock.relaylog.writer import RelayLogWriter
from penstock.sources.mysql.binlog_position import LastTransaction

CONFIG = RelayLogConfig(disk_free_min=0, span_size=SPAN_SIZE)


@pytest.fixture
def folder(received: Received, tmp_path: Path) -> Path:
    copy = tmp_path / "relay"
    shutil.copytree(received.folder, copy)
    return copy


def recovered_end(folder: Path) -> Offset:
    writer = RelayLogWriter(folder, CONFIG)
    try:
        return writer.end
    finally:
        writer.close()


def last_index(folder: Path) -> Path:
    return folder / list_segments(folder)[-1].index


@pytest.mark.parametrize("lost", [2, 9, 10, 60])
def test_a_torn_last_index_line_does_not_exist(received: Received, folder: Path, lost: int) -> None:
    path = last_index(folder)
    lines = path.read_bytes().splitlines()
    before = json.loads(lines[-2][:-9])["committed"]
    path.write_bytes(path.read_bytes()[:-lost])
    assert RelayLog.open(folder).end == before
    assert index.recovered_end(folder) == before
    assert recovered_end(folder) == before
    log = RelayLog.open(folder)
    assert log.end == before
    name = list_segments(folder)[-1]
    assert (folder / name.file).stat().st_size == before - name.base
    whole = LogRange(log.start, log.end)
    found = {str(table): counts for table, counts in log.tables(whole).items()}
    assert found == received.walk.tables(log.start, before)


def test_a_last_index_line_that_lacks_only_its_newline_is_completed_by_the_next_writer(
    received: Received, folder: Path
) -> None:
    path = last_index(folder)
    path.write_bytes(path.read_bytes()[:-1])
    assert RelayLog.open(folder).end < received.log.end
    assert index.recovered_end(folder) == received.log.end
    assert recovered_end(folder) == received.log.end
    assert RelayLog.open(folder).end == received.log.end


def test_bytes_behind_the_last_index_line_are_cut_off_by_the_next_writer(
    received: Received, folder: Path
) -> None:
    binlog = folder / list_segments(folder)[-1].file
    whole = binlog.read_bytes()
    binlog.write_bytes(whole + b"\x00" * 1000)
    assert RelayLog.open(folder).end == received.log.end
    assert recovered_end(folder) == received.log.end
    assert binlog.read_bytes() == whole


@pytest.mark.parametrize("segment", [0, -1])
def test_a_damaged_index_line_is_told_with_its_file(folder: Path, segment: int) -> None:
    path = folder / list_segments(folder)[segment].index
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x11
    path.write_bytes(bytes(data))
    with pytest.raises(RelayLogCorrupt, match=path.name) as caught:
        log = RelayLog.open(folder)
        log.tables(LogRange(log.start, log.end))
    assert caught.value.details["path"] == str(path)
    assert caught.value.hint


def test_a_closed_index_that_lost_its_end_is_damage_not_a_shorter_log(folder: Path) -> None:
    path = folder / list_segments(folder)[1].index
    lines = path.read_bytes().splitlines(keepends=True)
    for kept in (b"".join(lines[:-1]), b""):
        path.write_bytes(kept)
        log = RelayLog.open(folder)
        with pytest.raises(RelayLogCorrupt, match=path.name):
            log.tables(LogRange(log.start, log.end))


def test_a_segment_shorter_than_its_index_says_is_refused_by_the_next_writer(folder: Path) -> None:
    binlog = folder / list_segments(folder)[-1].file
    binlog.write_bytes(binlog.read_bytes()[:-1])
    with pytest.raises(RelayLogCorrupt, match=binlog.name):
        RelayLogWriter(folder, CONFIG)


def test_of_two_segments_with_one_base_the_later_generation_counts(received: Received, folder: Path) -> None:
    name = list_segments(folder)[-1]
    for suffix in ("file", "index"):
        later = SegmentName(name.base, name.generation + 1)
        shutil.copy(folder / getattr(name, suffix), folder / getattr(later, suffix))
        (folder / getattr(name, suffix)).write_bytes(b"left by a fenced writer")
    log = RelayLog.open(folder)
    assert log.end == received.log.end
    assert str(log.segment_of(log.end)[0]).endswith(SegmentName(name.base, name.generation + 1).file)


def assert_only_the_successor_counts(received: Received, copy: Path, transaction: Transaction) -> None:
    """Another writer began a segment at the end of a transaction, and what stands behind it is left over."""
    last = next(walk for walk in reversed(received.walk.walks) if walk.base < transaction.start)
    shutil.copytree(received.folder, copy)
    names = {name.base: name for name in list_segments(copy)}
    for gone in (name for base, name in names.items() if base > last.base):
        (copy / gone.file).unlink()
        (copy / gone.index).unlink()
    name, base = names[Offset(last.base)], Offset(transaction.end)
    file, position = received.source_ends[transaction.number]
    gtids = f"{received.server_uuid}:1-{transaction.number}"
    end = begin_behind(
        copy, name, base, last.head_end - last.base, file=f"binlog.{file:06d}", position=position,
        head={"server_uuid": received.server_uuid, "executed": gtids},
    )  # fmt: skip

    log = RelayLog.open(copy)
    assert log.end == end
    assert str(log.executed_at(base)) == str(log.executed_at(log.end)) == gtids
    assert log.position_at(base).order == (file, position)
    known = LastTransaction.of(log)
    assert known is not None and (known.start, known.end) == (transaction.start, transaction.end)
    walk, whole = LogWalk(copy, end), LogRange(log.start, log.end)
    assert log.transactions_between(whole) == len(walk.transactions) == transaction.number
    for exact in (False, True):
        tables = {str(table): counts for table, counts in log.tables(whole, exact=exact).items()}
        assert tables == walk.tables(log.start, end)
    statements = [(s.offset, s.end) for s in log.statements(whole)]
    assert statements == [(s.offset, s.end) for s in walk.statements]


def test_what_a_fenced_writer_put_behind_its_successor_s_base_is_not_seen(
    received: Received, tmp_path: Path
) -> None:
    """The successor begins inside a compacted span: what the span says of the rest must not count."""
    for transaction in received.walk.walks[-1].transactions[3:-1:7]:
        assert_only_the_successor_counts(received, tmp_path / f"at{transaction.end}", transaction)


def test_nor_is_the_beginning_of_a_transaction_that_a_fenced_writer_put_there(
    received: Received, tmp_path: Path
) -> None:
    """The successor begins where the last transaction of a span ends, and the span goes on."""
    entries = list(index_entries(received.folder))
    ends = {one["committed"] for one in entries if one["start"] < one["committed"] < one["end"]}
    found = [one for one in received.walk.transactions if one.end in ends]
    assert found, "no span ends inside a transaction"
    for transaction in found[-4:]:
        assert_only_the_successor_counts(received, tmp_path / f"at{transaction.end}", transaction)
