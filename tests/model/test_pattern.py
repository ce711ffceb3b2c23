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


@given(st.text(alphabet="ab*?.\\n[", max_size=8), st.text(alphabet="ab.\\n[", max_size=8))
def test_a_pattern_means_what_its_wildcards_say(pattern: str, name: str) -> None:
    def matched(i: int, j: int) -> bool:
        if i == len(pattern):
            return j == len(name)
        if pattern[i] == "*":
            return matched(i + 1, j) or (j < len(name) and matched(i, j + 1))
        return j < len(name) and pattern[i] in ("?", name[j]) and matched(i + 1, j + 1)

    assert matches(f"d.{pattern}", TableId("d", name)) == matched(0, 0)


def test_no_pattern_takes_longer_than_its_length_and_that_of_the_name() -> None:
    """A search that tried every way to part such a name would take years."""
    assert not matches("d." + "*a" * 100 + "*b", TableId("d", "a" * 2000))
    assert matches("d." + "*?a" * 100 + "**", TableId("d", "ba" * 1000))


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
        ("`a.b`.*", "a?b.t", True),
        ("`a.b`.*", "a.b*", False),
        ("`a*`.t", "ab.t", False),
        ("`a*`.t", "a?.t", True),
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


@pytest.mark.parametrize(
    ("pattern", "table", "is_matched"),
    [
        ("`a.b`.*", TableId("a.b", "t"), True),
        ("`a.b`.*", TableId("a", "b.t"), False),
        ("a.b*", TableId("a", "b.t"), True),
        ("a.b*", TableId("a.b", "t"), False),
        ("*.*", TableId("a.b", "c.d"), True),
        ("a?b.t", TableId("a.b", "t"), True),
        ("`a*`.t", TableId("a*", "t"), True),
        ("`a*`.t", TableId("ab", "t"), False),
        ("a.`t?`", TableId("a", "t?"), True),
        ("a.`t?`", TableId("a", "tx"), False),
        ("x`y.t", TableId("x`y", "t"), True),
        ("`x``y`.t", TableId("x`y", "t"), True),
        ("a_b.t%", TableId("axb", "tt"), False),
        ("é.t", TableId("e\u0301", "t"), False),
        ("Shop.t", TableId("shop", "t"), False),
    ],
)
def test_dots_and_wildcards_in_backticks_are_those_of_the_name(
    pattern: str, table: TableId, is_matched: bool
) -> None:
    assert matches(pattern, table) == is_matched
