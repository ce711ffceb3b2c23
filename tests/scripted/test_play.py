"""A source that is a script drives planner, placement, state store and a target through the source seam."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.scripted.play import Play
from tests.scripted.script import (
    ABORT,
    EOF,
    PAUSE,
    AddColumn,
    Chunk,
    Delete,
    Drop,
    DropColumn,
    Insert,
    Item,
    Rewrite,
    Transaction,
    Truncate,
    Update,
    column,
)

from penstock.model.schema import TableId, TableSchema
from penstock.snapshot.placement import PlacementLimits
from penstock.sources import open_source

ORDERS, LINES = TableId("shop", "orders"), TableId("shop", "lines")
NOTE = column("note", "varchar", length=20)
COLOUR = column("colour", "varchar", length=100)
MERGED = PlacementLimits(1 << 40, 0)
"""Limits with which every chunk is merged, and none appended."""


def table(name: TableId) -> TableSchema:
    return TableSchema(name, (column("id", "bigint", nullable=False), NOTE), ("id",))


Plays = Callable[..., Play]


@pytest.fixture
def plays(tmp_path: Path) -> Iterator[Plays]:
    begun: list[Play] = []

    def begin(*tables: TableId, **options: Any) -> Play:
        begun.append(Play(tmp_path / str(len(begun)), *map(table, tables or (ORDERS,)), **options))
        return begun[-1]

    yield begin
    for play in begun:
        play.close()


def inserted(*keys: int, into: TableId = ORDERS, note: str = "new") -> Transaction:
    return Transaction(*(Insert(into, (key, note)) for key in keys))


@pytest.mark.parametrize("append_only", [False, True])
def test_existing_rows_and_what_happens_to_them_arrive(plays: Plays, append_only: bool) -> None:
    play = plays(append_only=append_only)
    play.play(
        inserted(1, 2, 3, 4, 5),
        Chunk(),
        Transaction(Update(ORDERS, 1, (1, "paid")), Delete(ORDERS, 2), Insert(ORDERS, (6, None))),
        Chunk(),
        PAUSE,
        Transaction(Update(ORDERS, 5, (7, "moved"))),
        EOF,
    )
    assert play.rows(ORDERS) == [(1, "paid"), (3, "new"), (4, "new"), (6, None), (7, "moved")]
    assert play.state(ORDERS).snapshot == "done"


@pytest.mark.parametrize("options", [{}, {"limits": MERGED}, {"append_only": True}], ids=str)
def test_a_chunk_never_overwrites_what_changed_while_and_after_it_was_read(
    plays: Plays, options: dict[str, Any]
) -> None:
    play = plays(**options)
    play.play(
        inserted(1, 2),
        Chunk(
            meanwhile=(
                Transaction(Update(ORDERS, 1, (1, "newer")), Delete(ORDERS, 2)),
                inserted(3, note="meanwhile"),
            )
        ),
        Transaction(Update(ORDERS, 1, (1, "newest"))),
        PAUSE,
    )
    assert play.rows(ORDERS) == [(1, "newest"), (3, "meanwhile")], "2 does not come back"
    play.play(EOF)


def test_a_chunk_waits_until_the_log_has_reached_its_high_watermark(plays: Plays) -> None:
    play = plays()
    play.play(inserted(1), PAUSE)
    position = play.run.state.position
    assert play.run.read_chunk(meanwhile=[inserted(2)])
    counts = play.run.state.chunk_counts(ORDERS)
    assert counts == {"staged": 1} and play.run.state.position == position
    play.run.turn()
    play.play(EOF)
    assert play.rows(ORDERS) == [(1, "new"), (2, "new")]


@pytest.mark.parametrize("append_only", [False, True])
def test_a_changed_definition_ends_an_epoch_and_voids_what_was_read_before(
    plays: Plays, append_only: bool
) -> None:
    play = plays(append_only=append_only)
    play.play(
        inserted(1, 2),
        Chunk(),
        AddColumn(ORDERS, COLOUR),
        Transaction(Insert(ORDERS, (3, "new", "red")), Update(ORDERS, 1, (1, "old", "blue"))),
        PAUSE,
        EOF,
    )
    assert play.rows(ORDERS) == [(1, "old", "blue"), (2, "new", None), (3, "new", "red")]
    assert play.state(ORDERS).schema.version == 2
    play.play(DropColumn(ORDERS, "note"), Transaction(Insert(ORDERS, (4, "grey"))), EOF)
    assert play.rows(ORDERS) == [(1, "blue"), (2, None), (3, "red"), (4, "grey")]
    assert [one.what for one in play.run.state.history()][-2:] == [
        "column colour added", "column note dropped",
    ]  # fmt: skip


def test_a_chunk_read_before_a_truncate_is_read_again_and_its_rows_do_not_come_back(plays: Plays) -> None:
    play = plays()
    play.play(inserted(1, 2), Chunk(), Truncate(ORDERS), inserted(3), PAUSE)
    assert play.rows(ORDERS) == [(3, "new")]
    assert play.run.state.chunk_counts(ORDERS) == {"planned": 1}
    play.play(EOF)


def test_a_dropped_table_ends_and_the_others_go_on(plays: Plays) -> None:
    play = plays(ORDERS, LINES)
    play.play(
        inserted(1), inserted(1, into=LINES), Chunk(), Chunk(), Drop(LINES), inserted(2), EOF,
    )  # fmt: skip
    assert play.state(LINES).status == "dropped"
    assert play.rows(ORDERS) == [(1, "new"), (2, "new")]


@pytest.mark.parametrize("append_only", [False, True])
def test_rows_that_changed_without_events_are_read_again(plays: Plays, append_only: bool) -> None:
    play = plays(append_only=append_only)
    play.play(inserted(1, 2, 3), EOF, Rewrite(ORDERS, "rewritten"), Transaction(Delete(ORDERS, 2)), EOF)
    assert play.rows(ORDERS) == [(1, "rewritten"), (3, "rewritten")]


def test_half_a_transaction_that_had_arrived_when_the_process_died_arrives_as_a_whole(plays: Plays) -> None:
    play = plays(limits=MERGED)
    play.play(inserted(1, 2), EOF)
    end = play.run.log.end
    play.play(Transaction(Update(ORDERS, 1, (1, "first")), ABORT, Delete(ORDERS, 2)))
    play.run.log.refresh()
    assert play.run.log.end > end, "the next process has received it"
    play.play(inserted(3), EOF)
    assert play.rows(ORDERS) == [(1, "first"), (3, "new")]


@pytest.mark.parametrize("append_only", [False, True])
def test_a_plan_that_was_not_applied_is_applied_by_the_next_process(plays: Plays, append_only: bool) -> None:
    play = plays(append_only=append_only)
    play.play(inserted(1, 2, 3), Chunk(), inserted(4), ABORT)
    assert play.run.state.has_pending()
    play.play(Chunk(), ABORT, Transaction(Delete(ORDERS, 1)), ABORT, EOF)
    assert play.rows(ORDERS) == [(2, "new"), (3, "new"), (4, "new")]


def test_at_its_end_a_script_has_nothing_more_to_do(plays: Plays) -> None:
    play = plays()
    play.play(inserted(1), EOF)
    run = play.run
    epoch, position = run.state.last_epoch(), run.state.position
    assert position == run.log.end and run.log.reached(play.source.end_position())
    play.play(EOF, PAUSE)
    assert (run.state.last_epoch(), run.state.position) == (epoch, position)


@pytest.mark.parametrize("seed", range(25))
def test_whatever_a_script_holds_the_target_ends_as_the_source(plays: Plays, seed: int) -> None:
    dice = random.Random(seed)
    limits = dice.choice((PlacementLimits(1 << 40, 1 << 40), MERGED, PlacementLimits(2000, 1000)))
    bytes_max = dice.choice((1000, 1_000_000))
    play = plays(
        ORDERS, LINES, append_only=dice.random() < 0.4, limits=limits, epoch={"bytes_max": bytes_max}
    )
    play.play(*_script(dice), EOF)


def _script(dice: random.Random) -> Iterator[Item]:
    """A random script. It has few keys, so that changes and chunks often meet."""
    held: dict[TableId, set[int]] = {ORDERS: set(), LINES: set()}
    chunks = 0

    def transaction() -> Transaction:
        changes: list[Any] = []
        for _ in range(dice.randint(1, 4)):
            into, key = dice.choice((ORDERS, LINES)), dice.randrange(8)
            there, note = held[into], f"v{dice.randrange(1000)}"
            if key not in there:
                changes.append(Insert(into, (key, note)))
                there.add(key)
            elif dice.random() < 0.4:
                changes.append(Delete(into, key))
                there.remove(key)
            else:
                other = dice.randrange(8)
                other = key if other in there else other
                changes.append(Update(into, key, (other, note)))
                there.remove(key)
                there.add(other)
        return Transaction(*changes)

    def truncated() -> Truncate:
        into = dice.choice((ORDERS, LINES))
        held[into].clear()
        return Truncate(into)

    yield transaction()
    yield transaction()
    yield Chunk(meanwhile=(transaction(),))
    for _ in range(25):
        kind = dice.random()
        if kind < 0.6:
            one = transaction()
            half = kind < 0.06
            yield Transaction(one.changes[0], ABORT, *one.changes[1:]) if half else one
        elif kind < 0.75:
            yield PAUSE
        elif kind < 0.85:
            yield ABORT
        elif kind < 0.92:
            yield truncated()
        elif chunks == 0:
            chunks += 1
            yield Chunk(meanwhile=(transaction(), transaction()))


def test_a_source_is_opened_by_its_type(plays: Plays) -> None:
    play = plays()
    assert open_source(play.config).end_position() == play.server.end
