"""Which server serves which destination."""

from __future__ import annotations

import random
from collections import Counter

from penstock.serve.zookeeper.assignment import Seen, assigned, decide


def everywhere(destinations: int, servers: list[str]) -> dict[str, list[str]]:
    return {f"d{number}": servers for number in range(destinations)}


def test_every_server_computes_the_same_and_none_has_more_than_its_share() -> None:
    servers = ["10.0.0.1:11111", "10.0.0.2:11111", "10.0.0.3:11111"]
    found = assigned(everywhere(20, servers))
    for _ in range(10):
        shuffled = random.sample(servers, 3)
        assert assigned(everywhere(20, shuffled)) == found
    assert max(Counter(found.values()).values()) <= 7 and len(found) == 20


def test_a_server_that_comes_or_goes_moves_few_destinations() -> None:
    few, more = ["a:1", "b:1", "c:1"], ["a:1", "b:1", "c:1", "d:1"]
    before, after = assigned(everywhere(60, few)), assigned(everywhere(60, more))
    moved = [name for name in before if before[name] != after[name]]
    assert 10 <= len(moved) <= 30  # a quarter must; all would be three quarters


def test_only_servers_that_can_serve_it_get_a_destination() -> None:
    assert assigned({"a": ["x:1"], "b": ["x:1"], "c": []}) == {"a": "x:1", "b": "x:1"}


def seen(**changes: object) -> Seen:
    known = {
        "mine": False, "assigned_here": False, "assigned": True, "ready": True, "free_s": None,
        "assigned_s": 9.0,
    }  # fmt: skip
    return Seen(**{**known, **changes})  # type: ignore[arg-type]


def test_what_is_free_is_taken_by_its_own_server_first_and_by_others_when_that_does_not() -> None:
    assert decide(seen(free_s=0.0, assigned_here=True)) == "claim"
    assert decide(seen(free_s=0.0)) == "stay"
    assert decide(seen(free_s=1.5)) == "claim"
    assert decide(seen(free_s=1.5, ready=False)) == decide(seen(free_s=1.5, ready=False, assigned_here=True))
    assert decide(seen(free_s=1.5, ready=False)) == "stay"
    assert decide(seen(free_s=6.0, ready=False)) == "claim"
    assert decide(seen(free_s=None, assigned_here=True)) == "stay"


def test_what_is_served_moves_only_to_a_server_that_is_there_for_a_while() -> None:
    assert decide(seen(mine=True)) == "hand over"
    assert decide(seen(mine=True, assigned_s=1.0)) == "stay"
    assert decide(seen(mine=True, assigned=False)) == "stay"
    assert decide(seen(mine=True, assigned_here=True)) == "stay"
