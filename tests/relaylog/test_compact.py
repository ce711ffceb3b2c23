"""Lines of an index put together, as values: nothing is lost, and epochs can end between them."""

from __future__ import annotations

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from penstock.relaylog.index import Entry, compact
from penstock.relaylog.segment_format import of_suffix

SPAN = 1000


def lines(seed: int) -> list[Entry]:
    """As flushes leave them: most end with a transaction, some inside of one."""
    chosen = random.Random(seed)
    at = committed = 0
    found: list[Entry] = []
    for number in range(chosen.randrange(1, 120)):
        start, at = at, at + chosen.choice([10, 90, 300, 990, 2500])
        if chosen.random() < chosen.choice([0.2, 0.9]):
            committed = at
        fields = {"start": start, "end": at, "committed": committed, "file": f"b.{number // 50:06d}"}
        tables = {"d.t": [chosen.randrange(5), at - start]}
        done = int(committed == at)
        found.append(Entry({**fields, "position": at, "tables": tables, "transactions": done}))
    return found


@given(st.integers())
def test_entries_cover_the_same_and_count_the_same(seed: int) -> None:
    before = lines(seed)
    after = compact(before, SPAN, of_suffix("binlog"))
    assert [after[0].start, after[-1].end] == [before[0].start, before[-1].end]
    assert all(one.end == other.start for one, other in itertools.pairwise(after))
    assert sum(one.transactions for one in after) == sum(one.transactions for one in before)
    counts = [sum(one.tables["d.t"][0] for one in entries) for entries in (before, after)]
    assert counts[0] == counts[1]
    by_end = {one.end: one for one in before}
    for one in after:
        assert one.committed == by_end[one.end].committed
        assert one.end - one.start <= SPAN or by_end[one.end].start == one.start
        assert len({line.position.order[0] for line in before if one.start < line.end <= one.end}) == 1


@given(st.integers())
def test_an_entry_ends_inside_a_transaction_only_where_none_ends_in_it_or_its_file_does(seed: int) -> None:
    before = lines(seed)
    for one in compact(before, SPAN, of_suffix("binlog"))[:-1]:
        inside = [line for line in before if one.start < line.end <= one.end]
        assert one.end == one.committed or all(line.end != line.committed for line in inside)
