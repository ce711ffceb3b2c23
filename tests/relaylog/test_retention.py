"""What retention removes, and what a reader says who still wanted it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.relaylog.conftest import AT_ONCE, DAY_S, SPAN_SIZE, TABLES, Received

from penstock._core import GtidSet
from penstock.config import RelayLogConfig
from penstock.errors import LogPurged, RelayLogCorrupt
from penstock.model.offset import LogRange, Offset
from penstock.relaylog import retention, segment_format
from penstock.relaylog.consumers import Consumer, remove
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment import SegmentName, list_segments
from penstock.relaylog.writer import RelayLogWriter
from penstock.sources.mysql.binlog_position import LastTransaction

FOREVER = RelayLogConfig(keep_age=10**12, disk_free_min=0, span_size=SPAN_SIZE)


def register(folder: Path, name: str, offset: Offset) -> None:
    """One that has read up to there and does not run now."""
    consumer = Consumer(folder, name, needs=offset, id=name)
    consumer.needs(offset)
    consumer.close()


def test_without_a_consumer_everything_stays(folder: Path) -> None:
    assert retention.apply(folder, AT_ONCE) == []


def test_only_segments_that_every_consumer_has_wholly_passed_are_removed(folder: Path) -> None:
    names = list_segments(folder)
    register(folder, "fast", RelayLog.open(folder).end)
    for number, name in enumerate(names[1:], 1):
        register(folder, "slow", Offset(name.base - 1))
        assert retention.apply(folder, AT_ONCE) == []
        register(folder, "slow", name.base)
        assert retention.apply(folder, AT_ONCE) == [names[number - 1]]
        assert list_segments(folder) == names[number:]
    assert retention.apply(folder, AT_ONCE) == []


def test_a_consumer_whose_file_cannot_be_read_has_passed_nothing(folder: Path) -> None:
    register(folder, "one", RelayLog.open(folder).end)
    (folder / "consumers" / "two.json").write_text('{"offs')
    assert retention.apply(folder, AT_ONCE) == []
    remove(folder, "two")
    assert retention.apply(folder, AT_ONCE) != []
    assert len(list_segments(folder)) == 1


def test_segments_stay_until_they_are_old(folder: Path) -> None:
    names = list_segments(folder)
    register(folder, "all", RelayLog.open(folder).end)
    os.utime(folder / names[1].file)
    config = RelayLogConfig(keep_age=int(DAY_S / 2 * 1000), disk_free_min=0)
    assert retention.apply(folder, config) == names[:1], "none is removed behind one that stays"


def test_the_oldest_go_until_the_rest_fits_the_size(folder: Path) -> None:
    names = list_segments(folder)
    sizes = [(folder / name.file).stat().st_size for name in names]
    register(folder, "all", RelayLog.open(folder).end)
    keep = sum(sizes[2:])
    config = FOREVER.model_copy(update={"keep_size": keep})
    assert retention.apply(folder, config) == names[:2]
    assert sum(path.stat().st_size for path in folder.glob("*.binlog")) <= keep


def purge(folder: Path, count: int) -> list[SegmentName]:
    """Removes the oldest segments, as consumers that have passed them allow."""
    register(folder, "all", list_segments(folder)[count].base)
    return retention.apply(folder, AT_ONCE)


def test_a_range_that_began_in_a_removed_segment_is_refused_with_the_cure(folder: Path) -> None:
    log = RelayLog.open(folder)
    start, end = log.start, log.end
    gone = purge(folder, 2)
    whole = LogRange(start, end)
    asks = (
        lambda: log.splits(whole, TABLES[0], bytes_aim=1_000),
        lambda: log.tables(whole),
        lambda: log.statements(whole),
        lambda: log.cut(start, 1),
        lambda: log.executed_at(start),
    )
    unnoticed = [(log_asks, False) for log_asks in asks[:3]]  # a reader that has not refreshed since
    for ask, refreshed in [*unnoticed, *((ask, True) for ask in asks)]:
        if refreshed:
            log.refresh()
        with pytest.raises(LogPurged, match="relay") as caught:
            ask()
        assert str(folder) in caught.value.details["path"]
        assert "penstock reset FILE" in caught.value.hint
    assert log.start > gone[-1].base


def test_searches_over_the_whole_log_go_on_without_what_retention_removed(
    received: Received, folder: Path
) -> None:
    stale = RelayLog.open(folder)
    kept_from = list_segments(folder)[2].base
    purge(folder, 2)
    everything = GtidSet(f"{received.server_uuid}:1-{len(received.walk.transactions)}")
    assert stale.window_start(everything, not_after=stale.end) == stale.end
    assert stale.start == next(w.head_end for w in received.walk.walks if w.base == kept_from)
    first = next(t for t in received.walk.transactions if t.start >= kept_from)
    file, position = received.source_ends[first.number]
    found = stale.offset_reaching(segment_format.position(f"binlog.{file:06d}", position))
    assert found is not None and found >= first.end
    last = LastTransaction.of(stale)
    assert last is not None and last.end == received.walk.transactions[-1].end
    assert str(stale.executed_at(Offset(first.end))) == f"{received.server_uuid}:1-{first.number}"


def test_a_segment_missing_from_the_middle_is_damage_not_a_shorter_range(folder: Path) -> None:
    (folder / list_segments(folder)[1].file).unlink()
    with pytest.raises(RelayLogCorrupt, match="gap"):
        log = RelayLog.open(folder)
        log.tables(LogRange(log.start, log.end))


def test_a_segment_lost_under_an_open_reader_is_named(folder: Path) -> None:
    log, name = RelayLog.open(folder), list_segments(folder)[1]
    (folder / name.index).unlink()
    with pytest.raises(RelayLogCorrupt, match=name.file):
        log.tables(LogRange(log.start, log.end))


def test_a_log_removed_under_a_reader_does_not_seem_empty(folder: Path) -> None:
    log = RelayLog.open(folder)
    shutil.rmtree(folder)
    with pytest.raises(RelayLogCorrupt, match="are gone"):
        log.refresh()


def test_the_next_writer_goes_on_at_the_end_of_a_purged_log(folder: Path) -> None:
    end = RelayLog.open(folder).end
    purge(folder, len(list_segments(folder)) - 1)
    writer = RelayLogWriter(folder, FOREVER)
    assert writer.end == end
    writer.close()
    assert RelayLog.open(folder).end == end
