"""When a larger epoch looks its keys up in the index, and that both ways find the same rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.sinks.conftest import Place, iceberg_first
from tests.sinks.lake.test_file_merge import by_files, newer

from penstock.sinks.lake.index import replaced
from penstock.sinks.lake.index.replaced import is_worth_it

Make = Callable[..., Place]
MILLION = 1_000_000


@pytest.mark.parametrize(
    ("keys", "rows", "missing", "read", "expected"),
    [
        (MILLION, 0, 0, 0, False),
        (MILLION, 2 * MILLION, 0, 0, False),
        (MILLION, 100 * MILLION, 0, 0, True),
        (MILLION, 100 * MILLION, 100 * MILLION, 0, False),
        (MILLION, 100 * MILLION, 100 * MILLION, 300 * MILLION, True),
        (MILLION, 100 * MILLION, 2 * MILLION, 0, True),
    ],
    ids=["bounds exclude all", "many keys", "few keys", "no index yet", "keys were read often", "new rows"],
)
def test_keys_are_looked_up_where_that_costs_less(
    keys: int, rows: int, missing: int, read: int, expected: bool
) -> None:
    assert is_worth_it(keys, rows, missing=missing, read=read) == expected


@iceberg_first  # Delta's test_key_index.py has a larger epoch
def test_both_ways_find_the_same_rows(place: Make, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    choose = random.Random(3)
    it = place(kind).create()
    model: dict[int, tuple[str, int]] = {}
    monkeypatch.setattr(replaced, "BATCH_KEYS", 3)
    for epoch in range(1, 9):
        by_index = choose.random() < 0.6
        monkeypatch.setattr(replaced, "is_worth_it", lambda *_, by_index=by_index, **__: by_index)
        rows: list[tuple[Any, ...]] = [
            (n, f"{epoch}", choose.random() < 0.3, epoch) for n in choose.sample(range(30), 12)
        ]
        it.sink.merge(it.table, newer(it, *rows), it.key, it.commit(epoch))
        assert by_files(it)
        for number, text, deleted, at in rows:
            model.pop(number, None)
            if not deleted:
                model[number] = (text, at)
        assert it.rows() == sorted((n, *value) for n, value in model.items()), (epoch, by_index)


def test_an_index_is_built_once_its_keys_were_read_often_enough(
    place: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = place("iceberg").create()
    it.sink.append(it.table, it.latest(*[(n, "a", False, 1) for n in range(100)]), it.commit(1))
    ways: list[str] = []

    def told(name: str) -> None:
        act = getattr(replaced, name)

        def tell(*args: Any) -> Any:
            ways.append(name)
            return act(*args)

        monkeypatch.setattr(replaced, name, tell)

    told("deleted_rows")
    told("_by_index")
    for epoch in range(2, 8):
        rows = [(n, "b", False, epoch) for n in (epoch, 99)]  # no bounds exclude the first files
        it.sink.merge(it.table, newer(it, *rows), it.key, it.commit(epoch))
    assert ways == ["deleted_rows"] * 3 + ["_by_index"] * 3
    assert it.rows() == [(n, "b", n) if 2 <= n < 8 else (n, "a", 1) for n in range(99)] + [(99, "b", 7)]
