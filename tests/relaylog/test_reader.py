"""Every answer of `RelayLog` against a walk over all events of its segments (`walking.py`)."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from tests.relaylog.conftest import SPAN_SIZE, TABLES, Received
from tests.relaylog.walking import index_entries

from penstock._core import GtidSet, RangeDecoder
from penstock.commands.snapshot_at import committed_from
from penstock.model.offset import LogRange, Offset, Split
from penstock.model.schema import TableId
from penstock.relaylog import segment_format
from penstock.sources.mysql.binlog_position import LastTransaction


def ranges(received: Received, seed: int, count: int) -> list[LogRange]:
    """Random ranges whose bounds are transaction ends; half of them short."""
    chance, ends = random.Random(seed), received.walk.ends
    found = []
    for number in range(count):
        at = chance.randrange(len(ends))
        reach = len(ends) if number % 2 else 12
        other = chance.randrange(at, min(len(ends), at + reach))
        found.append(LogRange(Offset(ends[at]), Offset(ends[other])))
    return found


def last_end_by(received: Received, offset: int) -> int:
    """The last place at or before `offset` where a range can begin."""
    return max((end for end in received.walk.ends if end <= offset), default=0)


def decode(received: Received, table: TableId, split: Split) -> pa.Table:
    preamble = [(path, int(base), int(offset)) for path, base, offset in split.preamble]
    decoder = RangeDecoder(
        received.schemas[table].to_json(), split.path, split.base, split.start, split.end, preamble=preamble
    )
    return pa.Table.from_batches(list(decoder), decoder.schema)


def decode_whole(received: Received, table: TableId, range_: LogRange) -> pa.Table:
    """The range decoded segment by segment, without any split."""
    parts = []
    for path, walk in received.walk.segments:
        start, end = max(walk.head_end, range_.start), min(walk.end, range_.end)
        if start < end:
            parts.append(
                decode(received, table, Split(str(path), Offset(walk.base), Offset(start), Offset(end)))
            )
    return pa.concat_tables(parts) if parts else pa.table({})


def assert_splits_hold(received: Received, range_: LogRange, table: TableId, splits: list[Split]) -> None:
    """Each row event of the table in the range is in just one split, and decodes there as in the whole."""
    wanted = received.walk.rows_in(str(table), range_.start, range_.end)
    held = [event for split in splits for event in received.walk.rows_in(str(table), split.start, split.end)]
    assert held == wanted
    files = {str(path): walk for path, walk in received.walk.segments}
    for split in splits:
        walk = files[split.path]
        assert split.base == walk.base
        assert walk.base <= split.start < split.end <= walk.end
        assert range_.start <= split.start and split.end <= range_.end
    whole = decode_whole(received, table, range_)
    parts = [decode(received, table, split) for split in splits]
    if not wanted:
        assert sum(part.num_rows for part in parts) == whole.num_rows == 0
        return
    assert pa.concat_tables(parts).combine_chunks().equals(whole.combine_chunks())


def test_the_workload_is_what_these_tests_need(received: Received) -> None:
    walk = received.walk
    assert len(walk.segments) >= 5
    assert max(t.end - t.start for t in walk.transactions) > 5 * SPAN_SIZE
    assert len({number for number, _ in received.source_ends.values()}) > 2
    entries = list(index_entries(received.folder))
    assert sum("open" in entry for entry in entries) > 10
    assert max(entry.get("transactions", 0) for entry in entries) > 3
    assert [t.number for t in walk.transactions] == list(range(1, len(walk.transactions) + 1))
    whole = LogRange(received.log.start, received.log.end)
    for table in TABLES[:3]:
        changes = decode_whole(received, table, whole).column("_change_type").to_pylist()
        assert changes.count("insert") == received.rows_inserted[table]


def test_start_and_end_are_the_ends_of_the_first_head_and_the_last_transaction(received: Received) -> None:
    assert received.log.start == received.walk.walks[0].head_end
    assert received.log.end == received.walk.ends[-1]


def test_cut_is_the_last_known_transaction_end_within_the_limit_and_at_least_the_next(
    received: Received,
) -> None:
    chance, ends = random.Random(11), received.walk.ends
    known = sorted({entry["committed"] for entry in index_entries(received.folder)})
    assert set(known) <= set(ends)
    for _ in range(400):
        after, limit = chance.choice(ends), chance.choice([1, 400, 7_000, 40_000, 10**9])
        later = [end for end in known if end > after]
        within = [end for end in later if end <= after + limit]
        expected = within[-1] if within else later[0] if later else after
        assert received.log.cut(Offset(after), limit) == expected


def test_cuts_follow_each_other_to_the_end_and_never_split_a_transaction(received: Received) -> None:
    at, seen = received.log.start, []
    while (following := received.log.cut(at, 1)) != at:
        seen.append(at := following)
    assert at == received.log.end
    assert set(seen) <= set(received.walk.ends)


def test_tables_of_whole_spans_are_exact(received: Received) -> None:
    chance = random.Random(12)
    bounds = sorted({e["end"] for e in index_entries(received.folder) if e["end"] == e["committed"]})
    for _ in range(150):
        start, end = sorted(chance.sample(bounds, 2))
        found = received.log.tables(LogRange(Offset(start), Offset(end)))
        assert {str(table): counts for table, counts in found.items()} == received.walk.tables(start, end)


def test_tables_are_exact_inside_spans_too_if_that_is_asked_for(received: Received) -> None:
    for range_ in ranges(received, 14, 60):
        found = received.log.tables(range_, exact=True)
        counted = {str(table): counts for table, counts in found.items()}
        assert counted == received.walk.tables(range_.start, range_.end)


def test_tables_inside_spans_are_upper_bounds_and_name_every_table(received: Received) -> None:
    for range_ in ranges(received, 13, 200):
        found = received.log.tables(range_)
        slack = 2 * (SPAN_SIZE + received.walk.largest)
        for name, (events, size) in received.walk.tables(range_.start, range_.end).items():
            bound = found[TableId.parse(name)]
            assert events <= bound[0]
            assert size <= bound[1] <= size + slack


def test_transactions_between_whole_spans_are_counted_exactly(received: Received) -> None:
    chance = random.Random(14)
    bounds = sorted({e["end"] for e in index_entries(received.folder) if e["end"] == e["committed"]})
    for _ in range(150):
        start, end = sorted(chance.sample(bounds, 2))
        inside = [t for t in received.walk.transactions if start < t.end <= end]
        assert received.log.transactions_between(LogRange(Offset(start), Offset(end))) == len(inside)


def test_statements_are_those_that_end_in_the_range(received: Received) -> None:
    whole = LogRange(Offset(0), received.log.end)
    for range_ in [whole, *ranges(received, 15, 200)]:
        found = [(s.offset, s.end, s.database, s.sql) for s in received.log.statements(range_)]
        assert found == [
            (s.offset, s.end, s.database, s.sql)
            for s in received.walk.statements
            if range_.start < s.end <= range_.end
        ]
    assert len(received.log.statements(whole)) >= 9


def test_splits_hold_every_row_event_once_and_decode_like_the_whole_range(received: Received) -> None:
    chance = random.Random(16)
    for range_ in ranges(received, 17, 90):
        table = chance.choice(TABLES[:3])
        aim = chance.choice([1, 500, 3_000, 20_000, 10**9])
        assert_splits_hold(received, range_, table, received.log.splits(range_, table, bytes_aim=aim))


def test_splits_inside_one_huge_transaction_are_many(received: Received) -> None:
    huge = max(received.walk.transactions, key=lambda t: t.end - t.start)
    range_ = LogRange(Offset(huge.start), Offset(huge.end))
    found = []
    for table in TABLES[:3]:
        splits = received.log.splits(range_, table, bytes_aim=SPAN_SIZE // 2)
        assert_splits_hold(received, range_, table, splits)
        found += splits
    assert len(found) > 3
    assert any(len(split.preamble) > 1 for split in found)


def test_splits_planned_while_the_segment_was_open_hold_after_its_index_was_compacted(
    received: Received,
) -> None:
    coarse = {entry["committed"] for entry in index_entries(received.folder)}
    # How many depends on how fast the log came: what comes in bulk is compacted at once.
    assert any(plan.range.end not in coarse for plan in received.planned)
    for plan in received.planned:
        assert_splits_hold(received, plan.range, plan.table, plan.splits)
        again = received.log.splits(plan.range, plan.table, bytes_aim=3_000)
        assert_splits_hold(received, plan.range, plan.table, again)
        for name, (events, size) in received.walk.tables(plan.range.start, plan.range.end).items():
            bound = plan.tables[TableId.parse(name)]
            assert events <= bound[0] and size <= bound[1]


def test_a_table_without_rows_in_the_range_has_no_splits(received: Received) -> None:
    whole = LogRange(received.log.start, received.log.end)
    assert received.log.splits(whole, TableId("shop", "absent"), bytes_aim=1_000) == []
    empty = LogRange(received.log.end, received.log.end)
    assert received.log.splits(empty, TABLES[0], bytes_aim=1_000) == []


def test_gtids_are_exact_at_every_transaction_end(received: Received) -> None:
    for count, transaction in enumerate(received.walk.transactions, 1):
        found = received.log.executed_at(Offset(transaction.end))
        assert str(found) == f"{received.server_uuid}:1" + (f"-{count}" if count > 1 else "")
    assert not received.log.executed_at(received.log.start)


def test_the_position_at_every_transaction_end_is_the_source_s(received: Received) -> None:
    """Between one transaction's end and the next one's begin; the source may have moved on without events."""
    transactions = received.walk.transactions
    for number, transaction in enumerate(transactions):
        found = received.log.position_at(Offset(transaction.end)).order
        file, position = received.source_ends[transaction.number]
        if number + 1 < len(transactions):
            following = transactions[number + 1]
            after_file, after_end = received.source_ends[following.number]
            bound = (after_file, after_end - (following.end - following.start))
        else:
            bound = (10**9, 0)
        assert (file, position) <= found <= bound, f"at {transaction.end}"


def test_an_offset_reaching_a_position_lies_behind_all_that_came_before_it(received: Received) -> None:
    chance = random.Random(18)
    for transaction in chance.sample(received.walk.transactions, 120):
        number, position = received.source_ends[transaction.number]
        wanted = segment_format.position(f"binlog.{number:06d}", position - chance.choice([0, 0, 1]))
        assert received.log.reached(wanted)
        found = received.log.offset_reaching(wanted)
        assert found is not None and found in received.walk.ends
        assert transaction.end <= found or wanted.order[-1] < position
        before = [t for t in received.walk.transactions if received.source_ends[t.number] <= wanted.order]
        assert before[-1].end <= found <= transaction.end + SPAN_SIZE + received.walk.largest
        assert received.log.position_at(found).order >= wanted.order


def test_a_position_the_source_has_not_written_yet_is_not_reached(received: Received) -> None:
    number, position = max(received.source_ends.values())
    ahead = segment_format.position(f"binlog.{number + 7:06d}", position)
    assert not received.log.reached(ahead)
    assert received.log.offset_reaching(ahead) is None


def test_the_end_of_the_transaction_before_a_statement_is_found(received: Received) -> None:
    log, ends = received.log, [transaction.end for transaction in received.walk.transactions]
    statements = log.statements(LogRange(log.start, log.end))
    assert statements
    for statement in statements:
        before = Offset(max((end for end in ends if end <= statement.offset), default=log.start))
        found = log.committed_before(statement.offset)
        # The head of a segment, which holds no transaction, may stand between.
        assert before <= found <= statement.offset and str(log.executed_at(found)) == str(
            log.executed_at(before)
        )
    for end in random.Random(23).sample(ends, 100):
        assert log.committed_before(Offset(end)) == end


def test_a_snapshot_can_be_asked_for_at_any_offset(received: Received) -> None:
    log, ends = received.log, [one.end for one in received.walk.transactions]
    for offset in [*random.Random(29).sample(range(log.start, log.end), 100), 0, log.start, log.end]:
        found = committed_from(log, Offset(offset))
        assert found in (log.start, *ends) and found >= offset
        log.position_at(found)
    assert {committed_from(log, Offset(end)) for end in (ends[0], ends[-1])} >= {ends[-1]}


def test_commit_times_are_of_the_transactions_on_both_sides_of_an_offset(received: Received) -> None:
    transactions = received.walk.transactions
    picked = random.Random(19).sample(range(len(transactions) - 1), 150)
    for number in [*picked, 0, len(transactions) - 2]:
        before, after = transactions[number], transactions[number + 1]
        assert received.log.commit_time_us_at(Offset(before.end)) == before.commit_us
        assert received.log.first_commit_us_after(Offset(before.end)) == after.commit_us
    assert received.log.commit_time_us_at(received.log.start) is None
    assert received.log.first_commit_us_after(received.log.start) == transactions[0].commit_us
    assert received.log.commit_time_us_at(received.log.end) == transactions[-1].commit_us
    assert received.log.first_commit_us_after(received.log.end) is None


@pytest.mark.parametrize("seed", range(4))
def test_every_transaction_not_in_the_set_lies_behind_the_window_start(received: Received, seed: int) -> None:
    chance, transactions = random.Random(100 + seed), received.walk.transactions
    reach = SPAN_SIZE + received.walk.largest
    for _ in range(60):
        upto = chance.randrange(len(transactions) + 1)
        seen = set(range(1, upto + 1))
        seen -= {upto - chance.randrange(30) for _ in range(chance.randrange(3))}
        seen |= {upto + chance.randrange(30) for _ in range(chance.randrange(3))}
        seen = {number for number in seen if number > 0}
        gtids = GtidSet(f"{received.server_uuid}:{':'.join(map(str, sorted(seen)))}" if seen else "")
        bound = Offset(chance.choice(received.walk.ends)) if chance.random() < 0.3 else received.log.end
        found = received.log.window_start(gtids, not_after=bound)
        assert found in received.walk.ends or found in {walk.base for walk in received.walk.walks}
        assert found <= bound
        missing = [t for t in transactions if t.number not in seen and t.end <= bound]
        if missing:
            assert found <= missing[0].start
            assert found >= last_end_by(received, missing[0].start - reach)
        else:
            assert found >= last_end_by(received, bound - reach)


def test_the_last_transaction_is_told_with_its_places(received: Received) -> None:
    last, expected = LastTransaction.of(received.log), received.walk.transactions[-1]
    assert last is not None
    assert (last.start, last.end) == (expected.start, expected.end)
    assert last.id == f"{received.server_uuid}:{expected.number}"
    file, end = received.source_ends[expected.number]
    assert int(last.file.rsplit(".", 1)[1]) == file
    assert last.position == end - (expected.end - expected.start)
