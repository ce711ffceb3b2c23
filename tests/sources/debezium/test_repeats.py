"""Events that a connector sends again, or that share a position: which of them count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.sources.debezium.messages import Table, consumed, mysql, postgres_table, postgresql
from tests.sources.debezium.topic_log import Logs, TopicLog

from penstock._core import EncodedMessages, LogEncoder
from penstock.model.offset import LogRange
from penstock.relaylog.log_parts import parts_of

CONNECTORS: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any], str]] = [
    ("mysql", {"db": "shop", "table": "orders"}, mysql(pos=10), mysql(pos=20), "shop.orders"),
    ("mariadb", {"db": "shop", "table": "orders"}, mysql(pos=10, gtid="0-1-8"), mysql(pos=20, gtid="0-1-9"),
     "shop.orders"),
    ("postgresql", {"db": "shopdb", "schema": "public", "table": "orders"}, postgresql(5, 10),
     postgresql(11, 8), "public.orders"),
    ("sqlserver", {"db": "shop", "schema": "dbo", "table": "orders"},
     {"commit_lsn": "00000027:00000ac0:0002", "change_lsn": "00000027:00000ac0:0001", "event_serial_no": 1},
     {"commit_lsn": "00000027:00000ac0:0002", "change_lsn": "00000027:00000ac0:0001", "event_serial_no": 2},
     "dbo.orders"),
    ("oracle", {"db": "ORCL", "schema": "SHOP", "table": "ORDERS"}, {"scn": "9", "commit_scn": "10"},
     {"scn": "5", "commit_scn": "11"}, "SHOP.ORDERS"),
    ("db2", {"db": "SHOP", "schema": "DB2INST1", "table": "ORDERS"},
     {"commit_lsn": "00000000:0000000a", "change_lsn": "00000000:00000001"},
     {"commit_lsn": "00000000:0000000b", "change_lsn": "00000000:00000000"},
     "DB2INST1.ORDERS"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("connector", "source", "first", "second", "name"), CONNECTORS, ids=[one[0] for one in CONNECTORS]
)
def test_events_that_a_connector_sends_again_are_dropped_and_later_ones_are_not(
    logs: Logs,
    connector: str,
    source: dict[str, Any],
    first: dict[str, Any],
    second: dict[str, Any],
    name: str,
) -> None:
    table, log = Table(connector=connector, source=source), logs()
    one = table.change("c", None, {"id": 1, "note": "old"}, **first)
    two = table.change("u", {"id": 1, "note": "old"}, {"id": 1, "note": "new"}, **second)
    assert log.take(consumed(table, at, pair) for at, pair in enumerate([one, two, one, two])) == []
    assert log.rows(name) == [{"id": 1, "note": "new"}]
    expected = 1 if connector == "oracle" else 2  # the last transaction of Oracle is never dropped
    assert log.translator.counts[2] == expected


def test_what_a_penstock_before_this_one_sends_again_is_dropped(tmp_path: Path) -> None:
    """A sink with `delivery: at_least_once` repeats whole epochs. Here it has rows of two partitions, and one
    of them has smaller places than the other one."""
    first, second = TopicLog(tmp_path / "first"), TopicLog(tmp_path / "second")
    table, names = Table(), [(0, "a"), (1, "b"), (0, "c"), (1, "d")]
    for at, (partition, note) in enumerate(names):
        pair = table.change("c", None, {"id": at, "note": note}, **mysql(pos=at))
        first.take([consumed(table, at + 10 * (1 - partition), pair, partition=partition)])
    log = first.log
    whole = LogRange(log.start, log.end)
    encoder, sent = LogEncoder(parts_of(log, whole), "debezium"), list[tuple[bytes | None, bytes | None]]()
    while (step := encoder.read(1 << 20)) is not None:
        if isinstance(step, EncodedMessages):
            sent += [(key, value) for _, key, value, _ in step.messages()]
    sources = [json.loads(value)["source"] for _, value in sent if value is not None]
    assert [one["connector"] for one in sources] == ["penstock"] * 4
    series = [one["transaction"].rpartition("-")[0] for one in sources]
    assert series == [f"{table.topic}:{partition}" for partition, _ in names]
    assert second.take(consumed(table, at, pair) for at, pair in enumerate([*sent, *sent])) == []
    assert [row["note"] for row in second.changes("shop.orders")] == ["a", "b", "c", "d"]
    assert second.translator.counts[2] == 4


@pytest.mark.parametrize("connector", ["mysql", "postgresql"])
def test_what_was_seen_is_known_after_a_restart(logs: Logs, connector: str) -> None:
    table = Table() if connector == "mysql" else postgres_table()
    name = "shop.orders" if connector == "mysql" else "public.orders"
    place = (lambda at: mysql(pos=at)) if connector == "mysql" else (lambda at: postgresql(at, at))
    events = [table.change("c", None, {"id": at, "note": "x"}, **place(at)) for at in range(1, 4)]
    logs().take(consumed(table, at, pair) for at, pair in enumerate(events))
    again = logs()
    assert again.translator.positions == [
        (table.topic, 0, f"{table.topic}:0", 3)
    ] and again.translator.tables == [name]
    assert again.take(consumed(table, 3 + at, pair) for at, pair in enumerate(events)) == []
    assert again.translator.counts[2] == 3
    assert len(again.changes(name)) == 3 and len(again.statements) == 1


def test_a_change_with_a_smaller_lsn_in_a_later_transaction_is_not_dropped(logs: Logs) -> None:
    """Transactions come in the order of commits; their changes may be older."""
    table, log = postgres_table(), logs()
    events = [table.change("c", None, {"id": 1, "note": "a"}, **postgresql(90, 150)),
              table.change("c", None, {"id": 2, "note": "b"}, **postgresql(160, 100))]  # fmt: skip
    log.take(consumed(table, at, pair) for at, pair in enumerate(events))
    assert [row["id"] for row in log.rows("public.orders")] == [1, 2]


def test_rows_of_one_statement_with_one_position_all_count(logs: Logs) -> None:
    table, log = postgres_table(), logs()
    events = [table.change("c", None, {"id": at, "note": "copy"}, **postgresql(5, 5)) for at in range(3)]
    log.take(consumed(table, at, pair) for at, pair in enumerate([*events, *events]))
    assert [row["id"] for row in log.rows("public.orders")] == [0, 1, 2]
    assert log.translator.counts[2] == 3


def test_after_a_failover_events_of_the_new_server_count_though_its_positions_are_smaller(logs: Logs) -> None:
    table, log = Table(), logs()
    old, new = "11111111-0000-0000-0000-000000000000", "22222222-0000-0000-0000-000000000000"
    events = [
        table.change("c", None, {"id": 1, "note": "a"}, **mysql(pos=900, gtid=f"{old}:8")),
        table.change("c", None, {"id": 2, "note": "b"}, **mysql(file="x.000001", pos=4, gtid=f"{new}:1")),
        table.change("c", None, {"id": 3, "note": "c"}, **mysql(file="x.000001", pos=90, gtid=f"{old}:9")),
    ]
    log.take(consumed(table, at, pair) for at, pair in enumerate(events))
    assert [row["id"] for row in log.rows("shop.orders")] == [1, 2, 3]


def test_all_changes_of_a_compressed_transaction_count(logs: Logs) -> None:
    """Its events have one position, and their rows are counted from 0 in each of them."""
    table, log = Table(), logs()
    at: dict[str, Any] = {"gtid": "11111111-0000-0000-0000-000000000000:8", "pos": 900}
    events = [
        *(table.change("c", None, {"id": n, "note": "a"}, **mysql(row=n, **at)) for n in range(3)),
        table.change("c", None, {"id": 9, "note": "b"}, **mysql(row=0, **at)),
        *(
            table.change("u", {"id": 1, "note": one}, {"id": 1, "note": other}, **mysql(row=0, **at))
            for one, other in ("ax", "xa", "ax")
        ),
    ]
    log.take(consumed(table, number, pair) for number, pair in enumerate(events))
    rows = [{"id": 0, "note": "a"}, {"id": 1, "note": "x"}, {"id": 2, "note": "a"}, {"id": 9, "note": "b"}]
    assert log.rows("shop.orders") == rows and log.translator.counts[2] == 0
    # Sent again: rows that changed once are dropped, and the others end as before.
    log.take(consumed(table, 10 + number, pair) for number, pair in enumerate(events))
    assert log.rows("shop.orders") == rows and log.translator.counts[2] == 3


def test_shards_of_mongodb_have_positions_of_their_own(logs: Logs) -> None:
    table, log = Table(connector="mongodb", source={"db": "shop", "collection": "orders"}), logs()
    events = [
        table.change("c", None, {"id": number}, rs=shard, ord=order)
        for number, (shard, order) in enumerate([("one", 5), ("two", 2), ("one", 6)])
    ]
    log.take(consumed(table, number, pair) for number, pair in enumerate(events))
    assert log.translator.counts == (3, 0, 0, 0)


def test_a_tombstone_deletes_its_row_if_compaction_has_removed_the_message_before(logs: Logs) -> None:
    table, log = Table(), logs()
    rows = [{"id": number, "note": "a"} for number in range(3)]
    created = [table.change("c", None, row, **mysql(pos=10 * at)) for at, row in enumerate(rows)]
    deleted = table.change("d", rows[0], None, **mysql(pos=50))
    messages = [*created, deleted, (table.key_of(rows[0]), None), (table.key_of(rows[1]), None)]
    assert log.take(consumed(table, at, pair) for at, pair in enumerate(messages)) == []
    assert log.rows("shop.orders") == rows[2:]
    assert [row["id"] for row in log.changes("shop.orders", "delete")] == [0, 1]
    # Also if the receiver ended between the two, and if the row came again.
    log.take([consumed(table, 6, table.change("d", rows[2], None, **mysql(pos=60)))])
    log = logs()
    again = [(table.key_of(rows[2]), None), created[1]]
    log.take(consumed(table, at, pair) for at, pair in enumerate(again, start=7))
    assert [row["id"] for row in log.changes("shop.orders", "delete")] == [0, 1, 2]
    log.take([consumed(table, 9, (table.key_of(rows[1]), None)), consumed(table, 10, created[1])])
    assert log.rows("shop.orders") == [rows[1]]


def test_truncations_of_two_tables_at_one_position_both_count(logs: Logs) -> None:
    one, log = postgres_table(), logs()
    two = postgres_table()
    two.source = {**one.source, "table": "items"}
    row = {"id": 1, "note": "a"}
    messages = [table.change("r", None, row) for table in (one, two)]
    messages += [(None, table.value("t", None, None, **postgresql(5, 5))) for table in (one, two)]
    assert log.take(consumed(one, at, pair) for at, pair in enumerate(messages)) == []
    words = [set(json.loads(one)) - {"table"} for one in log.statements]
    assert words == [{"created"}, {"created"}, {"emptied"}, {"emptied"}]
