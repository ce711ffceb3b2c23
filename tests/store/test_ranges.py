from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.store.ranges import spans, within

DATA = bytes(range(256)) * 2
RANGES = st.lists(
    st.tuples(st.integers(0, 500), st.integers(0, 40)).map(lambda pair: (pair[0], min(512, sum(pair))))
)


@given(RANGES, st.integers(0, 100))
def test_each_range_gets_its_bytes_from_few_and_separate_spans(
    ranges: list[tuple[int, int]], gap: int
) -> None:
    wanted = spans(ranges, gap)
    for (_, end), (start, _) in pairwise(wanted):
        assert start - end > gap
    found = [memoryview(DATA)[start:end] for start, end in wanted]
    assert within(ranges, wanted, found) == [DATA[start:end] for start, end in ranges]


def test_nothing_is_read_for_nothing() -> None:
    assert spans([], 10) == []
    assert spans([(5, 5)], 10) == []
    assert within([(5, 5)], [], []) == [b""]
