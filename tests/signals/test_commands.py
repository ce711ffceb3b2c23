"""What signals may say."""

from __future__ import annotations

import pytest

from penstock.errors import ConfigError
from penstock.model.schema import TableId
from penstock.signals.commands import ExecuteSnapshot, matching, parse, parse_data

TABLES = [TableId("shop", name) for name in ("orders", "orders_old", "customers")] + [
    TableId("crm", "orders")
]


def test_debezium_s_signals_are_understood() -> None:
    command = parse(
        "execute-snapshot",
        {
            "data-collections": ["shop.orders"],
            "type": "incremental",
            "additional-conditions": [{"data-collection": "shop.orders", "filter": "id > 5"}],
        },
    )
    assert isinstance(command, ExecuteSnapshot) and command.conditions[0].filter == "id > 5"


def test_keys_of_one_column_need_no_brackets() -> None:
    plain = parse("execute-snapshot", {"data-collections": ["a.b"], "keys": [5, "x"]})
    assert plain.keys == [(5,), ("x",)]
    assert parse("execute-snapshot", {"data-collections": ["a.b"], "keys": [[5, "x"]]}).keys == [(5, "x")]
    bounds = parse("execute-snapshot", {"data-collections": ["a.b"], "from": 5, "to": [9]})
    assert (bounds.lower, bounds.upper) == ((5,), (9,))


@pytest.mark.parametrize(
    ("kind", "data", "named"),
    [
        ("execute", {}, "execute-snapshot, stop-snapshot"),
        ("execute-snapshot", {}, "data-collections"),
        ("execute-snapshot", {"data-collections": []}, "data-collections"),
        ("execute-snapshot", {"data-collections": ["a.b"], "typ": "x"}, "typ"),
        ("execute-snapshot", {"data-collections": ["a.b", "a.c"], "keys": [1]}, "one table"),
        ("execute-snapshot", {"data-collections": ["a.b"], "keys": [1], "from": 2}, "give only one of"),
        ("park", {"tables": "a.b"}, "tables"),
        ("add-table", {"tables": ["orders"]}, "has no database"),
        ("set-limits", {"parallel": 0}, "parallel"),
    ],
)
def test_what_is_wrong_is_named(kind: str, data: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(kind, data)
    assert named in refused.value.message + refused.value.hint


@pytest.mark.parametrize("text", ["{", "[1]", '"x"', "[" * 100_000, "1e999999", '{"a": 1}' + " " * 2_000_000])
def test_data_that_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_data(text)


def test_patterns_mean_tables_in_both_ways_of_writing() -> None:
    for pattern in ("shop.orders*", r"shop\.orders.*", "shop.orders.*"):
        assert matching([pattern], TABLES)[pattern] == [TABLES[0], TABLES[1]], pattern
    assert matching(["shop.orders"], TABLES)["shop.orders"] == [TABLES[0]]
    assert matching(["(a+)+$", "orders", "shop"], TABLES) == {"(a+)+$": [], "orders": [], "shop": []}


@pytest.mark.parametrize("name", ["rows_per_second", "bytes_per_second"])
def test_limits_are_numbers_that_can_be_worked_with(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        parse("set-limits", {name: 10**400})
