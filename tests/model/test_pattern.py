"""Which tables patterns mean, and whether two can mean one table."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.pattern import matches, overlap
from penstock.model.schema import TableId
from penstock.model.shards import ShardRule, Shards

parts = st.text(alphabet="ab*?", min_size=1, max_size=4)


@given(parts, parts)
def test_patterns_overlap_just_where_some_name_matches_both(one: str, other: str) -> None:
    # The shortest common name is no longer than both patterns together.
    names = itertools.chain.from_iterable(
        itertools.product("ab", repeat=length) for length in range(len(one) + len(other) + 1)
    )
    both = any(
        matches(f"d.{one}", TableId("d", text)) and matches(f"d.{other}", TableId("d", text))
        for text in map("".join, names)
    )
    assert overlap(f"d.{one}", f"d.{other}") == overlap(f"d.{other}", f"d.{one}") == both


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("shop_*.orders_*", "shop_1.orders_1", True),
        ("shop_*.orders_*", "shop_1.lines_1", False),
        ("shop_*.orders_*", "store.orders_1", False),
        ("*.*_1", "shop.orders_*", True),
        ("shop.a.b", "shop.a.?", True),
    ],
)
def test_patterns_of_databases_and_tables(one: str, other: str, both: bool) -> None:
    assert overlap(one, other) == both


def test_tables_are_together_if_one_rule_has_them() -> None:
    rules = [ShardRule("a_*.t_*", "a.t"), ShardRule(("b.t_?", "b.u"), "b.t", "part")]
    shards = Shards(rules)
    assert shards.rule(TableId("a_1", "t_1")) is rules[0]
    assert shards.rule(TableId("b", "u")) is rules[1]
    assert shards.rule(TableId("a", "t")) is None
    assert shards.together(TableId("b", "t_1"), TableId("b", "u"))
    assert not shards.together(TableId("b", "t_1"), TableId("a_1", "t_1"))
    assert not shards.together(TableId("c", "t"), TableId("c", "t"))
