"""What is told of a snapshot is what Debezium's documentation says, whatever happens between two looks."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from penstock.notifications.events import (
    INCREMENTAL,
    INITIAL,
    Notification,
    PartSeen,
    Progress,
    Seen,
    TableSeen,
    Told,
    changes,
)


def types(found: list[Notification]) -> list[tuple[str, str]]:
    return [(one.aggregate, one.type) for one in found]


def seen(**tables: Progress) -> Seen:
    return Seen({name: TableSeen(progress, 1, 7) for name, progress in tables.items()})


def test_a_snapshot_is_told_from_its_start_to_its_end() -> None:
    found, told = changes(Told(), seen(a="reading", b="reading"), "s1")
    assert types(found) == [(INITIAL, "STARTED"), (INITIAL, "IN_PROGRESS"), (INITIAL, "IN_PROGRESS")]
    assert found[0].data == {"data_collections": "a,b"}
    assert found[1].data["current_collection_in_progress"] == "a"
    found, told = changes(told, seen(a="done", b="reading"), "x")
    assert [(one.type, one.data.get("scanned_collection")) for one in found] == [
        ("TABLE_SCAN_COMPLETED", "a")
    ]
    assert (found[0].data["status"], found[0].data["total_rows_scanned"]) == ("SUCCEEDED", "7")
    found, told = changes(told, seen(a="done", b="done"), "x")
    assert types(found) == [(INITIAL, "TABLE_SCAN_COMPLETED"), (INITIAL, "COMPLETED")]
    assert {one.id for one in found} == {"s1"}
    assert changes(told, seen(a="done", b="done"), "x") == ([], told)


def test_the_message_is_debeziums() -> None:
    [first, *_], _ = changes(Told(), seen(a="reading"), "5563ae14")
    assert first.to_json(pipeline="shop", at_ms=1695817046353) == {
        "id": "5563ae14", "aggregate_type": "Initial Snapshot", "type": "STARTED",
        "additional_data": {"connector_name": "shop", "data_collections": "a"}, "timestamp": 1695817046353,
    }  # fmt: skip


def test_a_table_that_was_read_between_two_looks_is_told_of() -> None:
    found, told = changes(Told(), seen(a="done"), "s1")
    assert [one.type for one in found] == ["STARTED", "IN_PROGRESS", "TABLE_SCAN_COMPLETED", "COMPLETED"]
    again = Seen({"a": TableSeen("done", 2, 9)})
    found, told = changes(told, again, "s2")
    assert types(found) == [
        (INCREMENTAL, kind) for kind in ("STARTED", "IN_PROGRESS", "TABLE_SCAN_COMPLETED", "COMPLETED")
    ]
    assert {one.id for one in found} == {"s2"}
    assert changes(told, again, "x") == ([], told)


def test_a_table_that_is_brought_back_and_continues_is_no_snapshot() -> None:
    _, told = changes(Told(), seen(a="done"), "s1")
    _, told = changes(told, Seen({"a": TableSeen("parked", 1, reason="why")}), "s2")
    found, told = changes(told, seen(a="done"), "s3")
    assert types(found) == [("Table", "UNPARKED")]
    _, told = changes(told, Seen({"a": TableSeen("parked", 1, reason="why")}), "s4")
    found, _ = changes(told, Seen({"a": TableSeen("done", 2, 9)}), "s5")
    assert (INCREMENTAL, "STARTED") in types(found)


def test_a_table_without_a_snapshot_is_not_told_of() -> None:
    assert changes(Told(), seen(a="none"), "s1")[0] == []


def test_a_snapshot_whose_tables_are_all_parked_is_aborted() -> None:
    _, told = changes(Told(), seen(a="reading"), "s1")
    parked = Seen({"a": TableSeen("parked", 1, reason="no key")})
    found, told = changes(told, parked, "p1")
    assert [(one.aggregate, one.type) for one in found] == [
        (INITIAL, "TABLE_SCAN_COMPLETED"), (INITIAL, "ABORTED"), ("Table", "PARKED"),
    ]  # fmt: skip
    assert found[0].data["status"] == "SQL_EXCEPTION"
    assert found[2].data == {"data_collection": "a", "reason": "no key"}
    found, _ = changes(told, seen(a="reading"), "s2")
    assert (INCREMENTAL, "STARTED") in types(found)
    assert ("Table", "UNPARKED") in types(found)


def test_a_partial_snapshot_has_the_id_of_its_signal() -> None:
    _, told = changes(Told(), seen(a="done"), "s1")
    base = seen(a="done").tables
    found, told = changes(told, Seen(base, {4: PartSeen("ad-hoc", "a")}), "x")
    assert types(found) == [(INCREMENTAL, "STARTED"), (INCREMENTAL, "IN_PROGRESS")]
    told = Told.from_json(json.loads(json.dumps(told.to_json())))
    found, told = changes(told, Seen(base, {4: PartSeen("ad-hoc", "a", "done", 3)}), "x")
    assert types(found) == [(INCREMENTAL, "TABLE_SCAN_COMPLETED"), (INCREMENTAL, "COMPLETED")]
    assert {one.id for one in found} == {"ad-hoc"}
    assert found[0].data["total_rows_scanned"] == "3"
    assert changes(told, Seen(base), "x")[0] == []


def test_a_pause_is_told_once() -> None:
    _, told = changes(Told(), seen(a="reading"), "s1")
    paused = Seen(seen(a="reading").tables, paused=True)
    found, told = changes(told, paused, "x")
    assert types(found) == [(INITIAL, "PAUSED")]
    assert changes(told, paused, "x")[0] == []
    assert types(changes(told, seen(a="reading"), "x")[0]) == [(INITIAL, "RESUMED")]


PROGRESS = st.sampled_from(["none", "reading", "done", "parked"])
LOOKS = st.lists(
    st.dictionaries(st.sampled_from("abc"), st.tuples(PROGRESS, st.integers(1, 3)), max_size=3), max_size=12
)


@given(LOOKS)
def test_every_snapshot_that_starts_ends_once_and_is_told_in_between_only(
    looks: list[dict[str, tuple[Progress, int]]],
) -> None:
    told, running = Told(), ""
    looks.append({})
    for number, look in enumerate(looks):
        now = Seen({name: TableSeen(progress, start) for name, (progress, start) in look.items()})
        found, told = changes(told, now, f"s{number}")
        told = Told.from_json(json.loads(json.dumps(told.to_json())))
        for one in (one for one in found if one.aggregate != "Table"):
            assert one.type == "STARTED" if not running else one.id == running
            running = "" if one.type in ("COMPLETED", "ABORTED") else one.id
        assert changes(told, now, "again")[0] == []
    assert not running
