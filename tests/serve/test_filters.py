"""Filters in Canal's words."""

from __future__ import annotations

import time

import pytest

from penstock.model.schema import TableId
from penstock.serve.filters import BadFilter, Filter


def matching(filter: Filter, *names: str) -> list[str]:
    return [name for name in names if TableId.parse(name) in filter]


NAMES = ("shop.orders", "shop.orders_1", "Shop.Other", "stock.orders", "xshop.orders")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["shop.orders", "shop.orders_1", "Shop.Other", "stock.orders", "xshop.orders"]),
        (r".*\..*", ["shop.orders", "shop.orders_1", "Shop.Other", "stock.orders", "xshop.orders"]),
        (r"shop\..*", ["shop.orders", "shop.orders_1", "Shop.Other"]),
        (r"shop\.orders", ["shop.orders"]),
        (r"shop\.orders_\d{1,3} , stock\.orders", ["shop.orders_1", "stock.orders"]),
        (r"(shop|stock)\.(orders|other)", ["shop.orders", "Shop.Other", "stock.orders"]),
        (r".*\.orders.*,shop\.other", ["shop.orders", "shop.orders_1", "Shop.Other", "stock.orders",
                                        "xshop.orders"]),
    ],
)  # fmt: skip
def test_one_expression_matches_the_whole_name_and_case_does_not_count(
    text: str, expected: list[str]
) -> None:
    assert matching(Filter((text,)), *NAMES) == expected


def test_excluded_tables_are_left_out() -> None:
    assert matching(Filter((r"shop\..*",), r"shop\.orders_.*,.*\.other"), *NAMES) == ["shop.orders"]


def test_a_client_can_only_narrow_the_filter_of_its_destination() -> None:
    destination = Filter((r"shop\..*",), r"shop\.other")
    assert matching(destination.narrowed(r".*\..*"), *NAMES) == ["shop.orders", "shop.orders_1"]
    assert matching(destination.narrowed(r"shop\.orders"), *NAMES) == ["shop.orders"]
    assert matching(destination.narrowed(""), *NAMES) == ["shop.orders", "shop.orders_1"]


@pytest.mark.parametrize("text", ["shop.[", "(", "*", r"(?=shop)shop\..*.*.*.*", "a" * 20_000])
def test_a_filter_that_cannot_be_used_is_refused(text: str) -> None:
    with pytest.raises(BadFilter):
        Filter((text,))


def test_an_expression_of_a_client_cannot_take_forever() -> None:
    name = TableId("s", "a" * 64)
    began = time.monotonic()
    for text in (r"s\.(a+)+b", r"s\.(a|a)*(a|a)*b", r".*a.*a.*a.*a.*a.*a.*a.*a.*b", r".*a.*a.*b"):
        assert name not in Filter((text,))
    assert time.monotonic() - began < 5
