"""The window of newest entries: whatever place a subscriber has, it gets exactly what is behind that, or has
to read the log itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.serve.pieces import pieces_of

from penstock.model.offset import Offset
from penstock.serve.batches import Block, Piece, Place
from penstock.serve.log.window import ENTRY_BYTES, Window

SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=12)


@given(SIZES, st.integers(1, 4), st.integers(1, 4), st.integers(1, 2000), st.data())
def test_what_is_found_behind_a_place_is_what_the_log_has_behind_it(
    sizes: list[int], cut: int, block: int, memory: int, data: st.DataObject
) -> None:
    pieces = pieces_of(sizes, cut)
    entries = [(n, e) for n, size in enumerate(sizes) for e in range(size)]
    window = Window(Offset(0))
    for at in range(0, len(pieces), block):
        window.add(Block(pieces[at : at + block]), memory)
    window.passed = Offset(100 * len(sizes))
    count = data.draw(st.integers(0, len(entries)))
    # The place behind `count` entries, counted from any earlier transaction's end.
    base = data.draw(st.integers(0, entries[count - 1][0] if count else 0))
    before = sum(sizes[:base])
    place = Place(Offset(100 * base), count - before)
    found = window.find(place)
    if found is None:
        assert window.start is None or window.start > place.offset
        return
    number, rest = found
    blocks = window.since(number)
    assert blocks is not None
    behind = [entry for one in ([] if rest is None else [rest]) + blocks for entry in one.entries()]
    assert behind == [f"{n}.{e}".encode() for n, e in entries[count:]]


def test_the_oldest_blocks_are_dropped_and_a_subscriber_behind_them_is_told() -> None:
    window = Window(Offset(0))
    for number in range(10):
        entry = b"x" * 100
        piece = Piece(Place(Offset(number)), [entry], Offset(number + 1))
        window.add(Block([piece]), 3 * (200 + ENTRY_BYTES))
        window.passed = Offset(number + 1)
    assert (window.first, window.next, window.start) == (7, 10, Offset(7))
    assert window.since(6) is None and window.find(Place(Offset(6))) is None
    assert len(window.since(7) or ()) == 3
    assert window.find(Place(Offset(10))) == (10, None)
    assert window.find(Place(Offset(11))) is None


def test_a_transaction_whose_beginning_was_dropped_is_found_again_only_behind_its_end() -> None:
    window = Window(Offset(0))
    for at in range(5):
        window.add(Block([Piece(Place(Offset(0), at), [b"x" * 100])]), 300)
    assert window.start is None and window.find(Place(Offset(0), 4)) is None
    window.add(Block([Piece(Place(Offset(0), 5), [b"x"], Offset(9))]), 300)
    window.passed = Offset(9)
    assert window.start == 9 and window.find(Place(Offset(9))) == (window.next, None)


def test_rows_behind_a_statement_of_their_transaction_belong_to_it() -> None:
    window = Window(Offset(0))
    window.add(Block([Piece(Place(Offset(0)), [b"statement"], None, Offset(50))]), 10_000)
    window.add(Block([Piece(Place(Offset(0), 1), [b"row"], Offset(50))]), 10_000)
    window.passed = Offset(60)
    number, rest = window.find(Place(Offset(0), 1)) or (0, None)
    assert (number, list(rest.entries() if rest else ())) == (2, [b"row"])
    assert window.find(Place(Offset(50))) == (2, None)
