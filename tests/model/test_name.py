"""Names of tables as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.name import index_keys, index_names
from penstock.model.pattern import exactly, matches, named_table
from penstock.model.schema import TableId

names = st.text(min_size=1, max_size=6) | st.text(alphabet="a.`*?\n ", min_size=1, max_size=6)
tables = st.builds(TableId, names, names)


@given(tables)
def test_a_name_comes_back_from_its_text(table: TableId) -> None:
    assert TableId.parse(str(table)) == table


@given(st.lists(tables, min_size=2, max_size=8, unique=True))
def test_different_tables_have_different_texts(several: list[TableId]) -> None:
    assert len(set(map(str, several))) == len(several)


@given(tables, tables)
def test_the_exact_pattern_of_a_table_matches_no_other(table: TableId, other: TableId) -> None:
    assert matches(exactly(table), table)
    assert matches(exactly(table), other) == (table == other)
    assert named_table(exactly(table)) == table


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (TableId("shop", "orders"), "shop.orders"),
        (TableId("a", "b.t"), "a.b.t"),
        (TableId("a.b", "t"), "`a.b`.t"),
        (TableId("x`y", "t"), "x`y.t"),
        (TableId("x.`y", "t"), "`x.``y`.t"),
        (TableId("`x", "`t"), "```x`.```t`"),
    ],
)
def test_only_what_would_be_misread_is_quoted(table: TableId, text: str) -> None:
    assert str(table) == text


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("`shop`.`orders`", TableId("shop", "orders")),
        ("`a.b`.`c.d`", TableId("a.b", "c.d")),
        ("a.`b.c`", TableId("a", "b.c")),
        ("`a.b`.c.d", TableId("a.b", "c.d")),
        ("`a", None),
        ("`a.b`", TableId("`a", "b`")),
    ],
)
def test_people_may_quote_more_than_is_needed(text: str, table: TableId | None) -> None:
    if table is None:
        with pytest.raises(ValueError, match="write it as database"):
            TableId.parse(text)
    else:
        assert TableId.parse(text) == table


@pytest.mark.parametrize("text", ["orders", ".orders", "shop.", "", "."])
def test_what_lacks_a_part_is_no_name(text: str) -> None:
    with pytest.raises(ValueError, match="write it as database"):
        TableId.parse(text)


plain_names = st.text(alphabet="ab.c-$ é`", min_size=1, max_size=6).filter(lambda text: text[0] != "`")


@given(plain_names, plain_names)
def test_a_key_of_an_index_is_one_table_and_an_old_one_is_never_missed(database: str, table: str) -> None:
    now, *before = index_keys(database, table)
    assert index_names(now) == [(database, table)]
    old = f"{database}.{table}"
    assert (database, table) in index_names(old)
    assert before == ([] if old == now else [old])


def test_an_old_key_with_several_dots_counts_for_every_way_to_split_it() -> None:
    assert index_names("a.b.c.d") == [("a", "b.c.d"), ("a.b", "c.d"), ("a.b.c", "d")]
    assert index_names("shop.orders") == [("shop", "orders")]
