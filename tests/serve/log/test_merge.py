"""Transactions of several sources in one order. The sources are made up here."""

from __future__ import annotations

import random
from itertools import chain, groupby

import pytest

from penstock.model.offset import Offset
from penstock.serve.batches import Piece, Place, Places, parse_place
from penstock.serve.log.merge import Merge, Seen

LATE = 10**9


def transaction(number: int, commit_us: int, name: str, *, parts: int = 1, entries: int = 2) -> list[Piece]:
    """The transaction that ends at the offset `number`, as pieces."""
    return [
        Piece(
            Place(Offset(number - 1), part * entries),
            [f"{name}{number}.{part * entries + entry}".encode() for entry in range(entries)],
            Offset(number) if part == parts - 1 else None,
            commit_us=commit_us if part == 0 else 0,
        )
        for part in range(parts)
    ]


def texts(pieces: list[Piece]) -> list[str]:
    return [entry.decode() for one in pieces for entry in one.entries]


def merge_of(*sources: list[Piece], place: Places | None = None) -> Merge:
    made = Merge(place or Places(tuple(Place(Offset(0)) for _ in sources)))
    for number, pieces in enumerate(sources):
        made.add(number, pieces)
    return made


def test_what_was_committed_first_comes_first_and_of_two_the_first_source() -> None:
    a = [*transaction(1, 10, "a", entries=1), *transaction(2, 30, "a", entries=1)]
    b = [*transaction(1, 10, "b", entries=1), *transaction(2, 20, "b", entries=1)]
    merge = merge_of(a, b)
    seen = [Seen(Offset(2), LATE), Seen(Offset(2), LATE)]
    assert texts(merge.take(seen, 10**6)) == ["a1.0", "b1.0", "b2.0", "a2.0"]
    assert merge.place == Places((Place(Offset(2)), Place(Offset(2))))


def test_a_transaction_is_not_divided_by_another_source() -> None:
    first, second, third = transaction(1, 20, "a", parts=3, entries=1)
    merge = merge_of([first], transaction(1, 21, "b", entries=1))
    going_on, ended = Seen(Offset(0), None), Seen(Offset(1), LATE)
    assert texts(merge.take([going_on, ended], 10**6)) == ["a1.0"]
    merge.add(0, [second, third])
    assert texts(merge.take([ended, ended], 10**6)) == ["a1.1", "a1.2", "b1.0"]


def test_a_transaction_whose_end_has_no_entry_ends_when_the_log_was_read_behind_it() -> None:
    merge = merge_of([Piece(Place(Offset(0)), [b"a"], None, commit_us=1)], transaction(1, 2, "b", entries=1))
    other = Seen(Offset(1), LATE)
    assert texts(merge.take([Seen(Offset(0), None), other], 10**6)) == ["a"]
    assert not merge.can_take([Seen(Offset(0), None), other])
    [piece] = merge.take([Seen(Offset(1), LATE), other], 10**6)
    assert texts([piece]) == ["b1.0"]
    assert str(piece.place(1)) == "1.0,1.0"


def test_an_idle_source_holds_the_others_up_until_its_heartbeat() -> None:
    merge = merge_of(transaction(1, 20, "a", entries=1), [])
    own = Seen(Offset(1), 20)
    for idle in (Seen(Offset(5), None), Seen(Offset(5), 19)):
        assert merge.take([own, idle], 10**6) == []
    assert texts(merge.take([own, Seen(Offset(5), 20)], 10**6)) == ["a1.0"]


def test_a_piece_knows_the_places_in_all_logs_behind_each_of_its_entries() -> None:
    merge = merge_of(transaction(1, 10, "a"), transaction(1, 20, "b"))
    first, second = merge.take([Seen(Offset(1), LATE), Seen(Offset(1), LATE)], 10**6)
    assert [str(first.place(count)) for count in (1, 2)] == ["0.1,0.0", "1.0,0.0"]
    assert str(second.behind(1).place(1)) == str(second.place(2)) == "1.0,1.0"
    assert str(second.before(1).place(1)) == "1.0,0.1"
    assert parse_place("1.0,0.1") == second.place(1)


def test_a_client_inside_of_a_transaction_goes_on_with_it() -> None:
    _, rest = transaction(1, 20, "b", parts=2)
    place = Places((Place(Offset(0)), Place(Offset(0), 2)))
    merge = merge_of(transaction(1, 10, "a"), [rest], place=place)
    ends = [Seen(Offset(1), LATE), Seen(Offset(1), LATE)]
    assert texts(merge.take(ends, 10**6)) == ["b1.2", "b1.3", "a1.0", "a1.1"]


@pytest.mark.parametrize("seed", range(20))
def test_from_every_place_the_rest_comes_whole_in_the_order_of_each_source(seed: int) -> None:
    chosen = random.Random(seed)
    sources = []
    for name in "abc":
        made: list[list[Piece]] = []
        for number in range(1, 8):
            parts, commit_us = chosen.choice((1, 1, 3)), chosen.randrange(100)
            made.append(transaction(number, commit_us, name, parts=parts, entries=chosen.choice((1, 2))))
        sources.append([piece for one in made for piece in one])
    whole = [texts(one) for one in sources]
    seen = [Seen(Offset(7), LATE)] * 3
    pieces = merge_of(*sources).take(seen, 10**6)
    assert [[one for one in texts(pieces) if one[0] == name] for name in "abc"] == whole
    given: list[str] = []
    for piece in pieces:
        for count in range(1, len(piece.entries) + 1):
            given.append(piece.entries[count - 1].decode())
            place = piece.place(count)
            assert isinstance(place, Places)
            rests = [rest_of(one, at) for one, at in zip(sources, place.each, strict=True)]
            again = merge_of(*rests, place=place)
            rest = texts(again.take(seen, 10**6))
            assert sorted([*given, *rest]) == sorted(chain.from_iterable(whole))
            names = [text.partition(".")[0] for text in (*given, *rest)]
            assert len(list(groupby(names))) == len(set(names))  # none is divided


def rest_of(pieces: list[Piece], place: Place) -> list[Piece]:
    """What a scan reads from there on."""
    found, skip = [], place.entries
    for one in pieces:
        if one.start.offset < place.offset:
            continue
        count = min(skip, len(one.entries))
        skip -= count
        if count < len(one.entries):
            found.append(one.behind(count))
    return found
