"""Rows that are followed through the log, one case a rule. That the rules together make the rows of a server
is what tests/properties/test_cascades.py tries."""

from __future__ import annotations

from penstock.cascades.in_memory import LAST, Edge, Effect, Hit, Images, Row, Version, outcome
from penstock.cascades.replay import OwnEdge, replay
from penstock.model.schema import CascadingKey, TableId

KEY = CascadingKey("fk", ("up",), TableId("d", "p"), ("id",), "CASCADE", "CASCADE")
ROW = (1, 7)
"""A row with the key 1 that refers to 7."""


def edge(effects: dict[int, list[Effect]], *, column: int = 1) -> Edge:
    return Edge(KEY, (column,), ("exact",), {(value,): several for value, several in effects.items()})


def becomes(value: int | None, p: int) -> Effect:
    return Effect(p, (value,), ends=False)


def ends(p: int) -> Effect:
    return Effect(p, (None,), ends=True)


def images(*known: tuple[Row, int]) -> Images:
    found = Images((0,))
    found.add([row for row, _ in known], [sequence for _, sequence in known])
    return found


def test_a_row_goes_on_with_its_new_values_and_may_be_hit_again() -> None:
    hits = replay([edge({7: [becomes(8, 20)], 8: [ends(30)]})], (), [Version(ROW, 10)], images())
    assert hits == [
        Hit((1, 7), (1, 8), 20, ends=False, chunk=False),
        Hit((1, 8), (1, None), 30, ends=True, chunk=False),
    ]
    assert outcome(hits, images()) == [((1, 8), True, 30)]


def test_a_change_hits_only_while_the_row_stands() -> None:
    """What begins or ends at the very place of a change is not hit: it was written by the same statement."""
    change = edge({7: [ends(20)]})
    assert replay([change], (), [Version(ROW, 20)], images()) == []
    assert replay([change], (), [Version(ROW, 10)], images((ROW, 20))) == []
    assert len(replay([change], (), [Version(ROW, 10)], images((ROW, 21)))) == 1


def test_a_row_of_a_chunk_and_the_targets_row_of_its_key_do_not_affect_each_other() -> None:
    versions = [Version((1, 7), 10), Version((1, 7), 15, chunk=True)]
    hits = replay([edge({7: [becomes(8, 20)]})], (), versions, images())
    assert [(hit.p, hit.chunk) for hit in hits] == [(20, False), (20, True)]
    late = [Version((1, 7), 10), Version((1, 9), 30, chunk=True)]
    hits = replay([edge({7: [becomes(8, 20)], 8: [ends(40)], 9: [ends(50)]})], (), late, images())
    assert [(hit.before, hit.p, hit.chunk) for hit in hits] == [
        ((1, 7), 20, False),
        ((1, 8), 40, False),
        ((1, 9), 50, True),
    ]
    hits = replay([edge({7: [ends(40)]})], (), versions, images((ROW, 30)))
    assert hits == [], "an image in the log ends both"


def test_of_two_keys_that_hit_a_row_at_once_a_deletion_wins() -> None:
    row = (1, 7, 7)
    edges = [edge({7: [becomes(8, 20)]}), edge({7: [ends(20)]}, column=2)]
    for several in (edges, edges[::-1]):
        [hit] = replay(several, (), [Version(row, 10)], images())
        assert hit.ends and hit.before == row
    [hit] = replay([edges[0], edge({7: [becomes(None, 20)]}, column=2)], (), [Version(row, 10)], images())
    assert hit.after == (1, 8, None)


def test_rows_that_change_places_at_once_do_not_displace_each_other() -> None:
    own = Edge(KEY, (0,), ("exact",), {(1,): [becomes(2, 20)], (2,): [becomes(3, 20)]})
    hits = replay([own], (), [Version((1,), 10), Version((2,), 10)], images())
    assert sorted(hit.after for hit in hits) == [(2,), (3,)]
    left = {row: deleted for row, deleted, _ in outcome(hits, images())}
    assert left == {(1,): True, (2,): False, (3,): False}


def test_what_happens_to_a_row_is_a_change_for_rows_of_its_own_table_on_every_level() -> None:
    rows = [Version((1, 7), 10), Version((2, 1), 10), Version((3, 2), 10), Version((4, None), 10)]
    hits = replay([edge({7: [ends(20)]})], [OwnEdge(0, (0,))], rows, images())
    assert [(hit.before[0], hit.p, hit.ends) for hit in hits] == [(1, 20, True), (2, 20, True), (3, 20, True)]


def test_an_image_after_the_last_hit_says_what_the_row_is() -> None:
    log = images((ROW, 30))
    hits = replay([edge({7: [becomes(8, 20)]})], (), [Version(ROW, 10)], log)
    assert len(hits) == 1 and outcome(hits, log) == []
    assert log.after(ROW, 30) == LAST
