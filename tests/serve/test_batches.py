"""Batches, as pure rules: nothing is lost, doubled or out of order, whatever clients do."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.serve.pieces import pieces_of

from penstock.model.offset import Offset
from penstock.serve.batches import AnyPlace, Block, Limit, Outstanding, Piece, Place, ReadAhead

SIZES = st.lists(st.integers(1, 12), min_size=1, max_size=12)


def ahead_of(pieces: list[Piece], block: int = 1) -> ReadAhead:
    """With so many pieces in each block."""
    made = ReadAhead()
    for at in range(0, len(pieces), block):
        made.add(Block(pieces[at : at + block]))
    return made


def taken(
    ahead: ReadAhead, limit: Limit, *, more: bool = False, whole: bool = False
) -> tuple[list[bytes], AnyPlace] | None:
    found = ahead.take(limit, more=more, whole=whole)
    return None if found is None else ([entry for block in found[0] for entry in block.entries()], found[1])


@given(SIZES, st.integers(1, 8), st.integers(1, 20), st.integers(1, 5))
def test_batches_are_all_entries_in_order_and_divide_only_what_is_too_large(
    sizes: list[int], cut: int, limit: int, block: int
) -> None:
    ahead, given_out = ahead_of(pieces_of(sizes, cut), block), list[bytes]()
    ends = set(accumulate(sizes))
    while (found := taken(ahead, Limit(items=limit))) is not None:
        entries, place = found
        assert 0 < len(entries) <= limit
        begin = len(given_out)
        given_out += entries
        if len(given_out) not in ends:
            # Inside of a transaction that alone is larger than the limit, and nothing before it.
            number = int(entries[-1].split(b".")[0])
            assert sizes[number] - int(entries[0].split(b".")[1]) > limit
            assert {entry.split(b".")[0] for entry in given_out[begin:]} == {str(number).encode()}
            assert place == Place(Offset(100 * number), int(entries[-1].split(b".")[1]) + 1)
        else:
            assert place == Place(Offset(100 * (int(entries[-1].split(b".")[0]) + 1)))
    assert given_out == [entry for piece in pieces_of(sizes, cut) for entry in piece.entries]
    assert (ahead.bytes, ahead.items) == (0, 0) and not ahead


@given(SIZES, st.integers(1, 20))
def test_nothing_is_given_while_a_batch_could_still_grow(sizes: list[int], limit: int) -> None:
    found = taken(ahead_of(pieces_of(sizes, 3), 2), Limit(items=limit), more=True)
    assert (found is None) == (sum(sizes) < limit)


@given(SIZES, st.integers(1, 11), st.integers(1, 30), st.integers(1, 5))
def test_a_transaction_that_is_not_read_to_its_end_waits_unless_it_is_larger_than_a_batch(
    sizes: list[int], cut: int, limit: int, block: int
) -> None:
    pieces = pieces_of([*sizes, 12], cut)[:-1]  # the last one goes on
    ahead, given_out = ahead_of(pieces, block), list[bytes]()
    while (found := taken(ahead, Limit(items=limit), whole=True)) is not None:
        given_out += found[0]
    entries = [entry for piece in pieces for entry in piece.entries]
    assert given_out == entries[: len(given_out)]
    if limit >= 12:
        assert len(given_out) == sum(sizes)


def test_bytes_limit_a_batch_but_one_entry_may_be_larger() -> None:
    ahead = ahead_of([Piece(Place(Offset(0)), [b"x" * 50, b"y" * 5, b"z" * 5], Offset(9))])
    assert taken(ahead, Limit(size=10)) == ([b"x" * 50], Place(Offset(0), 1))
    assert taken(ahead, Limit(size=10)) == ([b"y" * 5, b"z" * 5], Place(Offset(9)))


def test_one_entry_that_is_larger_than_a_batch_leaves_nothing_behind() -> None:
    ahead = ahead_of([Piece(Place(Offset(0)), [b"x" * 50], Offset(9))])
    assert taken(ahead, Limit(size=10)) == ([b"x" * 50], Place(Offset(9)))
    assert (ahead.bytes, ahead.items) == (0, 0) and not ahead


def test_a_batch_that_is_full_is_given_although_more_may_follow() -> None:
    for entries, limit in (([b"x" * 50], Limit(size=10)), ([b"x", b"y"], Limit(items=2))):
        ahead = ahead_of([Piece(Place(Offset(0)), entries)])
        assert taken(ahead, limit, more=True) == (entries, Place(Offset(0), len(entries)))


def test_batches_are_acknowledged_in_order_each_once() -> None:
    outstanding = Outstanding()
    places = [Place(Offset(number)) for number in range(4)]
    first, second, third = (outstanding.add(places[n], places[n + 1]) for n in range(3))
    with pytest.raises(ValueError, match="not the first"):
        outstanding.acknowledge(second.id)
    assert outstanding.acknowledge(first.id) == places[1]
    with pytest.raises(ValueError, match="does not exist"):
        outstanding.acknowledge(first.id)
    assert outstanding.roll_back(third.id) == places[2]
    assert outstanding.acknowledge(second.id) == places[2]
    assert outstanding.roll_back() is None
    assert outstanding.add(places[2], places[3]).id > third.id


def test_a_rollback_gives_up_a_batch_and_all_later_ones() -> None:
    outstanding = Outstanding()
    batches = [outstanding.add(Place(Offset(n)), Place(Offset(n + 1))) for n in range(4)]
    assert outstanding.roll_back(batches[1].id) == Place(Offset(1))
    assert len(outstanding) == 1
    with pytest.raises(ValueError, match="does not exist"):
        outstanding.roll_back(batches[2].id)
    assert outstanding.roll_back() == Place(Offset(0))
