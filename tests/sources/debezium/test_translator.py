"""Messages of Debezium's connectors become rows of the log: those that the connector's database had."""

from __future__ import annotations

import base64
import datetime
import json
from decimal import Decimal
from typing import Any

import pytest
from tests.sources.debezium.messages import (
    ID,
    NOTE,
    Table,
    column,
    consumed,
    decimal,
    mysql,
    postgres_table,
    postgresql,
)
from tests.sources.debezium.topic_log import Logs, translator

UTC = datetime.timezone.utc


def test_rows_of_a_snapshot_and_changes_after_it_leave_the_rows_of_the_database(logs: Logs) -> None:
    table, log = Table(), logs()
    pairs = [
        table.change("r", None, {"id": 1, "note": "first"}, **mysql(pos=4)),
        table.change("r", None, {"id": 2, "note": None}, **mysql(pos=4)),
        table.change("c", None, {"id": 3, "note": "🐟 ä"}, **mysql(pos=100)),
        table.change("u", {"id": 1, "note": "first"}, {"id": 1, "note": "second"}, **mysql(pos=200)),
        table.change("d", {"id": 2, "note": None}, None, **mysql(pos=300)),
        (table.key_of({"id": 2}), None),
    ]
    assert log.take(consumed(table, at, pair) for at, pair in enumerate(pairs)) == []
    assert log.rows("shop.orders") == [{"id": 1, "note": "second"}, {"id": 3, "note": "🐟 ä"}]
    kinds = [row["_change_type"] for row in log.changes("shop.orders")]
    assert kinds == ["insert", "insert", "insert", "update_preimage", "update_postimage", "delete"]
    assert log.translator.positions == [(table.topic, 0, f"{table.topic}:0", 6)]


VARIABLE = column(
    "v", "struct", "io.debezium.data.VariableScaleDecimal",
    fields=[column("scale", "int32", optional=False), column("value", "bytes", optional=False)],
)  # fmt: skip

VALUES: list[tuple[dict[str, Any], Any, Any]] = [
    (column("v", "boolean"), True, 1),
    (column("v", "int8"), -128, -128),
    (column("v", "int16"), -32768, -32768),
    (column("v", "int32"), 2**31 - 1, 2**31 - 1),
    (column("v", "int64"), -(2**63), -(2**63)),
    (column("v", "float"), 1.5, 1.5),
    (column("v", "double"), -1e300, -1e300),
    (column("v", "string"), "", ""),
    (column("v", "string"), "tab\t\"quote\" \u0000 ä 🐟", "tab\t\"quote\" \u0000 ä 🐟"),
    (column("v", "bytes"), base64.b64encode(b"\x00\xff").decode(), b"\x00\xff"),
    (column("v", "int32", "io.debezium.time.Date"), -1, datetime.date(1969, 12, 31)),
    (column("v", "int32", "io.debezium.time.Date"), -719162, datetime.date(1, 1, 1)),
    (column("v", "int32", "io.debezium.time.Date"), 2932896, datetime.date(9999, 12, 31)),
    (
        column("v", "int64", "io.debezium.time.Timestamp"),
        -1,
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999000),
    ),
    (
        column("v", "int64", "io.debezium.time.MicroTimestamp"),
        1_700_000_000_123_456,
        datetime.datetime(2023, 11, 14, 22, 13, 20, 123456),
    ),
    (column("v", "int64", "io.debezium.time.NanoTimestamp"), 17 * 10**17 + 1, 17 * 10**17 + 1),
    (
        column("v", "string", "io.debezium.time.ZonedTimestamp"),
        "2026-03-01T12:00:00.5+01:00",
        datetime.datetime(2026, 3, 1, 11, 0, 0, 500000, tzinfo=UTC),
    ),
    (
        column("v", "bytes", "org.apache.kafka.connect.data.Decimal",
               parameters={"scale": "3", "connect.decimal.precision": "9"}),
        decimal(-1234567),
        Decimal("-1234.567"),
    ),
    (
        column("v", "bytes", "org.apache.kafka.connect.data.Decimal", parameters={"scale": "0"}),
        decimal(10**30, 16),
        Decimal(10**30),
    ),
    (
        VARIABLE,
        {"scale": 2, "value": decimal(-7)},
        "-0.07",
    ),
    (VARIABLE, {"scale": 0, "value": decimal(-(10**90) - 1, 64)}, f"-{10**90 + 1}"),
    (VARIABLE, {"scale": 3, "value": decimal(1500)}, "1.500"),
    (VARIABLE, {"scale": -2, "value": decimal(7)}, "700"),
    (
        column("v", "bytes", "org.apache.kafka.connect.data.Decimal", parameters={"scale": "50"}),
        decimal(1, 1),
        "0." + "0" * 49 + "1",
    ),
    (
        column("v", "string", "io.debezium.time.Interval"),
        "P1Y-2M3DT4H5M-6.789012S",
        "P1Y-2M3DT4H5M-6.789012S",
    ),
    (column("v", "int64", "io.debezium.time.MicroDuration"), -(2**63), "PT-2562047788H-54.775808S"),
    (column("v", "int64", "io.debezium.time.MicroDuration"), 0, "PT0S"),
    (column("v", "int64", "io.debezium.time.MicroDuration"), 5_400_500_000, "PT1H30M0.5S"),
    (column("v", "int64", "io.debezium.time.NanoDuration"), -500_000_001, "PT-0.500000001S"),
    (column("v", "bytes", "io.debezium.data.Bits", parameters={"length": "12"}), "AQI=", 0x201),
    (column("v", "string", "io.debezium.data.Enum", parameters={"allowed": "a,b"}), "b", "b"),
    (column("v", "string", "io.debezium.data.Json"), '{"a": [1, 2]}', '{"a": [1, 2]}'),
    (column("v", "array", items={"type": "int32"}), [1, None, 2], "[1,null,2]"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("described", "sent", "value"),
    VALUES,
    ids=[f"{one[0].get('name', one[0]['type'])}-{at}" for at, one in enumerate(VALUES)],
)
def test_a_value_is_the_one_of_the_database(
    logs: Logs, described: dict[str, Any], sent: Any, value: Any
) -> None:
    table, log = Table(columns=[ID, described]), logs()
    pairs = [table.change("c", None, {"id": 1, "v": sent}, **mysql(pos=4)),
             table.change("c", None, {"id": 2, "v": None}, **mysql(pos=5))]  # fmt: skip
    assert log.take(consumed(table, at, pair) for at, pair in enumerate(pairs)) == []
    first, second = log.rows("shop.orders")
    found = first["v"]
    assert (
        int.from_bytes(found, "big") if isinstance(found, bytes) and isinstance(value, int) else found
    ) == value
    assert second["v"] is None


def test_a_time_is_the_one_of_the_database(logs: Logs) -> None:
    table, log = Table(columns=[ID, column("v", "int64", "io.debezium.time.MicroTime")]), logs()
    times = [-3_600_000_001, 0, 838 * 3_600_000_000 + 1]
    messages = [
        consumed(table, at, table.change("c", None, {"id": at, "v": time}, **mysql(pos=at + 4)))
        for at, time in enumerate(times)
    ]
    assert log.take(messages) == []
    texts = [row["v"] for row in log.rows("shop.orders")]
    assert texts == ["-01:00:00.000001", "00:00:00.000000", "838:00:00.000001"]


def test_a_geometry_has_its_reference_system(logs: Logs) -> None:
    point = bytes.fromhex("0101000000000000000000f03f0000000000000040")
    parts = [column(name, "double") for name in "xy"] + [column("wkb", "bytes"), column("srid", "int32")]
    shape = column("v", "struct", "io.debezium.data.geometry.Point", fields=parts)
    table, log = Table(columns=[ID, shape]), logs()
    sent = {"x": 1.0, "y": 2.0, "wkb": base64.b64encode(point).decode(), "srid": 4326}
    assert log.take([consumed(table, 0, table.change("c", None, {"id": 1, "v": sent}, **mysql(pos=4)))]) == []
    [row] = log.rows("shop.orders")
    assert row["v"].endswith(point) and (4326).to_bytes(4, "little") in row["v"]


# Connectors ------------------------------------------------------------------------------------------------


def test_a_long_value_that_did_not_change_is_left_out_of_the_row(logs: Logs) -> None:
    table, log = postgres_table(), logs()
    after = {"id": 1, "note": "__debezium_unavailable_value"}
    log.take([consumed(table, 0, table.change("u", None, after, **postgresql(5, 5)))])
    path = next(log.folder.glob("*.rows"))
    assert b"__debezium_unavailable_value" not in path.read_bytes()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("array", list(b"__debezium_unavailable_value")),
        ("array", ["f5b8b0c1-0000-3000-8000-000000000000"]),
        ("string", b"__debezium_unavailable_value".hex()),
        ("map", {"__debezium_unavailable_value": "__debezium_unavailable_value"}),
    ],
)
def test_a_value_that_did_not_change_is_known_in_the_form_of_its_column(
    logs: Logs, kind: str, value: Any
) -> None:
    table, log = postgres_table(), logs()
    table.columns = [ID, column("note", kind)]
    log.take([consumed(table, 0, table.change("u", None, {"id": 1, "note": value}, **postgresql(5, 5)))])
    assert log.written("public.orders") == [("update_postimage", {"id": 1})]


def test_a_row_whose_key_has_changed_gets_no_default_for_a_value_that_has_not(logs: Logs) -> None:
    """The message has only the placeholder. The row must be completed at the target, or its table parked."""
    table, log = postgres_table(), logs()
    after = {"id": 2, "note": "__debezium_unavailable_value"}
    log.take([consumed(table, 0, table.change("c", None, after, **postgresql(5, 5)))])
    assert log.written("public.orders") == [("update_postimage", {"id": 2})]


def test_a_key_with_a_field_that_rows_do_not_have_is_part_of_both_images(logs: Logs) -> None:
    """As Debezium's ByLogicalTableRouter makes it."""
    table, log = Table(), logs()

    def change(op: str, before: Any, after: Any, pos: int) -> tuple[bytes, bytes]:
        fields = [ID, column("shard", "string", optional=False)]
        key = {"schema": {"type": "struct", "fields": fields}, "payload": {"id": 1, "shard": "s1"}}
        return json.dumps(key).encode(), table.value(op, before, after, **mysql(pos=pos))

    one, other = {"id": 1, "note": "a"}, {"id": 1, "note": "b"}
    events = [change("c", None, one, 10), change("u", one, other, 20), change("d", other, None, 30)]
    assert log.take(consumed(table, at, pair) for at, pair in enumerate(events)) == []
    assert [row["shard"] for row in log.changes("shop.orders")] == ["s1"] * 4


def test_a_deletion_without_a_schema_and_a_row_drops_no_columns(logs: Logs) -> None:
    table, log = Table(with_schema=False), logs()
    row = {"id": 1, "note": "a"}
    events = [table.change("c", None, row, **mysql(pos=10)),
              (table.key_of(row), table.value("d", None, None, **mysql(pos=20))),
              (table.key_of(row), table.value("d", {"id": 1}, None, **mysql(pos=30)))]  # fmt: skip
    assert log.take(consumed(table, at, pair) for at, pair in enumerate(events)) == []
    assert len(log.statements) == 1


def test_names_with_dots_are_not_mixed_up(logs: Logs) -> None:
    one = Table(connector="postgresql", source={"db": "d", "schema": "a.b", "table": "c"})
    two = Table(connector="postgresql", source={"db": "d", "schema": "a", "table": "b.c"})
    log, row = logs(), {"id": 1, "note": "x"}
    faults = log.take([consumed(one, at, t.change("r", None, row)) for at, t in enumerate((one, two))])
    assert [fault[2] for fault in faults] == [1] and "two tables" in faults[0][3]


def test_a_delete_without_the_row_before_deletes_by_the_key(logs: Logs) -> None:
    table, log = postgres_table(), logs()
    events = [table.change("c", None, {"id": 1, "note": "a"}, **postgresql(5, 5)),
              (table.key_of({"id": 1}), table.value("d", None, None, **postgresql(6, 6)))]  # fmt: skip
    assert log.take(consumed(table, at, pair) for at, pair in enumerate(events)) == []
    assert log.rows("public.orders") == []


def test_documents_of_mongodb_are_rows_with_one_json_column(logs: Logs) -> None:
    source = {"db": "shop", "collection": "orders"}
    columns = [column("id", "string", optional=False)]
    table, log = Table(connector="mongodb", source=source, columns=columns), logs()
    key = table.key_of({"id": '{"$oid": "1"}'})

    def value(op: str, after: str | None, order: int) -> bytes:
        fields = [
            column("before", "string", "io.debezium.data.Json"),
            column("after", "string", "io.debezium.data.Json"),
        ]
        block = {"connector": "mongodb", "name": "p", "ts_ms": 1_700_000_000_000, "ord": order, **source}
        payload = {"before": None, "after": after, "op": op, "source": block}
        return json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": payload}).encode()

    messages = [value("c", '{"_id": 1, "a": 1}', 1), value("u", '{"_id": 1, "a": 2}', 2)]
    assert log.take(consumed(table, at, (key, one)) for at, one in enumerate(messages)) == []
    assert log.rows("shop.orders") == [{"id": '{"$oid": "1"}', "document": '{"_id": 1, "a": 2}'}]
    assert log.take([consumed(table, 2, (key, value("d", None, 3)))]) == []
    assert log.rows("shop.orders") == []
    [(_, _, _, reason)] = log.take([consumed(table, 3, (key, value("u", None, 4)))])
    assert "full documents" in reason


def test_cells_of_cassandra_are_its_columns(logs: Logs) -> None:
    def cell(name: str, kind: str) -> dict[str, Any]:
        parts = [column("value", kind), column("deletion_ts", "int64"), column("set", "boolean")]
        return column(name, "struct", "cell_value", fields=parts)

    table = Table(connector="cassandra", source={"keyspace": "shop", "table": "orders"},
                  columns=[cell("id", "int32"), cell("note", "string")])  # fmt: skip
    log = logs()
    key = json.dumps(
        {"schema": {"type": "struct", "fields": [column("id", "int32")]}, "payload": {"id": 1}}
    ).encode()
    row = {
        "id": {"value": 1, "deletion_ts": None, "set": True},
        "note": {"value": "x", "deletion_ts": None, "set": True},
    }
    assert log.take([consumed(table, 0, (key, table.value("i", None, row)))]) == []
    assert log.rows("shop.orders") == [{"id": 1, "note": "x"}]
    # An update has only the cells that were written, also with null.
    unwritten = {**row, "note": None}
    emptied = {**row, "note": {"value": None, "deletion_ts": 1, "set": True}}
    messages = [consumed(table, at, (key, table.value("u", None, one)))
                for at, one in enumerate((unwritten, emptied), start=1)]  # fmt: skip
    assert log.take(messages) == []
    assert log.written("shop.orders")[1:] == [
        ("update_postimage", {"id": 1}), ("insert", {"id": 1, "note": None}),
    ]  # fmt: skip


# Definitions -----------------------------------------------------------------------------------------------


def test_a_changed_schema_becomes_a_statement_before_its_rows(logs: Logs) -> None:
    table, log = Table(), logs()
    log.take([consumed(table, 0, table.change("c", None, {"id": 1, "note": "a"}, **mysql(pos=10)))])
    table.columns = [column("id", "int64", optional=False), column("n", "int32", optional=False, default=7)]
    log.take([consumed(table, 1, table.change("c", None, {"id": 2, "n": 8}, **mysql(pos=20)))])
    table.columns[1] = column("n", "int64", optional=False, default=7)
    log.take([consumed(table, 2, table.change("c", None, {"id": 3, "n": 2**40}, **mysql(pos=30)))])
    first, second = (json.loads(one) for one in log.statements[1:])
    assert (first["table"], first["values"], first["altered"]["key"]) == ("orders", {"n": 7}, ["id"])
    assert [(one["name"], one["type"]) for one in first["altered"]["columns"]] == [
        ("id", "bigint"),
        ("n", "int"),
    ]
    assert [one["type"] for one in second["altered"]["columns"]] == ["bigint", "bigint"]
    assert second["values"] == {}
    kinds = [(row["id"], row.get("n")) for row in log.changes("shop.orders")]
    assert kinds == [(1, None), (2, 8), (3, 2**40)]


def test_older_rows_of_another_partition_change_no_definition(logs: Logs) -> None:
    table, log = Table(), logs()
    log.translator.set_wide(table.topic)
    old = table.change("c", None, {"id": 1, "note": "old"}, **mysql(pos=10))
    table.columns = [ID, column("n", "int32", optional=False, default=7)]
    new = table.change("c", None, {"id": 2, "n": 8}, **mysql(pos=20))
    assert log.take([consumed(table, 0, new), consumed(table, 0, old, partition=1)]) == []
    assert len(log.statements) == 1 and log.rows("shop.orders") == [{"id": 1, "n": 7}, {"id": 2, "n": 8}]


def test_values_without_a_schema_get_the_types_that_they_show(logs: Logs) -> None:
    table, log = Table(with_schema=False), logs()
    first = {"id": 2**53 + 1, "price": 1.5, "note": None, "open": True, "tags": ["a"]}
    events = [table.change("c", None, first, **mysql(pos=10)),
              table.change("c", None, {**first, "id": 2, "note": "now"}, **mysql(pos=20))]  # fmt: skip
    assert log.take(consumed(table, at, pair) for at, pair in enumerate(events)) == []
    assert log.rows("shop.orders") == [
        {"id": 2, "price": 1.5, "note": "now", "open": 1, "tags": '["a"]'},
        {"id": 2**53 + 1, "price": 1.5, "open": 1, "tags": '["a"]'},
    ]


def test_a_truncation_empties_the_table_unless_its_topic_has_several_partitions(logs: Logs) -> None:
    table, log = Table(), logs()
    row = table.change("c", None, {"id": 1, "note": "a"}, **mysql(pos=10))
    emptied = (None, table.value("t", None, None, **mysql(pos=20)))
    assert log.take([consumed(table, 0, row), consumed(table, 1, emptied)]) == []
    assert json.loads(log.statements[-1]) == {"table": "orders", "emptied": True}
    log.translator.set_wide(table.topic)
    [(_, _, offset, reason)] = log.take(
        [consumed(table, 2, (None, table.value("t", None, None, **mysql(pos=30))))]
    )
    assert offset == 2 and "several partitions" in reason


def test_tables_of_two_databases_never_mix(logs: Logs) -> None:
    one = Table(connector="sqlserver", source={"db": "a", "schema": "dbo", "table": "orders"})
    two = Table(connector="sqlserver", source={"db": "b", "schema": "dbo", "table": "orders"}, topic="other")
    log, row = logs(), {"id": 1, "note": "x"}
    faults = log.take(
        [consumed(one, 0, one.change("r", None, row)), consumed(two, 0, two.change("r", None, row))]
    )
    assert [fault[0] for fault in faults] == ["other"] and "source.table" in faults[0][3]
    named = logs(table="{database}_{schema}.{table}")
    assert named.take([consumed(two, 0, two.change("r", None, row))]) == []
    assert "b_dbo.orders" in named.translator.tables


# Messages that are none ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"{", "not JSON"),
        (b"\x00\x00\x00\x00\x01ab", "in Avro, and the schema 1 is not known"),
        (b"[]", "an object was expected"),
        (b'{"id": 1, "note": "flat"}', "ExtractNewRecordState"),
        (b'{"op": "c", "after": {"id": 1}}', "no `source`"),
        (b'{"op": "x", "source": {"table": "t", "db": "d"}}', "not known"),
        (b'{"op": "c", "source": {"db": "d"}}', "names no table"),
        (b'{"op": "c", "source": {"db": "d", "table": "t"}}', "has no `after`"),
        (b"[" * 100_000, "not JSON"),
        (b'{"a":' * 100_000, "not JSON"),
    ],
)
def test_a_message_that_cannot_be_read_is_named_and_nothing_after_it_is_taken(
    logs: Logs, value: bytes, why: str
) -> None:
    table, log = Table(), logs()
    good = table.change("c", None, {"id": 1, "note": "a"}, **mysql(pos=10))
    late = table.change("c", None, {"id": 2, "note": "b"}, **mysql(pos=20))
    faults = log.take(
        [consumed(table, 0, good), consumed(table, 1, (good[0], value)), consumed(table, 2, late)]
    )
    assert [fault[:3] for fault in faults] == [(table.topic, 0, 1)] and why in faults[0][3]
    assert log.translator.positions == [(table.topic, 0, f"{table.topic}:0", 1)]
    assert [row["id"] for row in log.rows("shop.orders")] == [1]


def test_columns_whose_names_differ_in_case_only_are_named(logs: Logs) -> None:
    table, log = Table(columns=[ID, NOTE, column("NOTE", "string")]), logs()
    row = {"id": 1, "note": "a", "NOTE": "b"}
    [(*_, why)] = log.take([consumed(table, 0, table.change("c", None, row, **mysql(pos=4)))])
    assert "`note` and `NOTE`" in why and "column.exclude.list" in why and log.statements == []


def test_a_message_that_cannot_be_read_can_be_skipped(logs: Logs) -> None:
    table, log = Table(), logs(skips=True)
    good = table.change("c", None, {"id": 1, "note": "a"}, **mysql(pos=10))
    faults = log.take([consumed(table, 0, (None, b"{")), consumed(table, 1, good)])
    assert len(faults) == 1 and log.translator.counts[3] == 1
    assert [row["id"] for row in log.rows("shop.orders")] == [1]


@pytest.mark.parametrize(
    "value",
    [
        b'{"schema": null, "payload": {"ts_ms": 1}}',
        b'{"status": "BEGIN", "id": "7", "event_count": null, "data_collections": null, "ts_ms": 1}',
        b'{"source": {"db": "shop"}, "ddl": "CREATE TABLE t (id INT)", "tableChanges": []}',
        b'{"op": "m", "source": {"db": "shop"}, "message": {"prefix": "p", "content": ""}}',
        b"null",
        b"",
    ],
)
def test_heartbeats_borders_of_transactions_and_statements_are_passed(logs: Logs, value: bytes) -> None:
    table, log = Table(), logs()
    assert log.take([consumed(table, 0, (None, value))]) == []
    assert log.translator.positions == [(table.topic, 0, f"{table.topic}:0", 1)] and log.statements == []


def test_a_value_that_does_not_fit_is_refused_and_its_row_is_not_half_written(logs: Logs) -> None:
    table, log = Table(columns=[ID, NOTE, column("d", "int32", "io.debezium.time.Date")]), logs()
    rows = [{"id": 1, "note": "a", "d": 0}, {"id": 2, "note": "secret", "d": 2**31 - 1}]
    events = [table.change("c", None, row, **mysql(pos=at + 10)) for at, row in enumerate(rows)]
    [(_, _, offset, reason)] = log.take(consumed(table, at, pair) for at, pair in enumerate(events))
    assert offset == 1 and "column `d`" in reason and "secret" not in reason
    assert [row["id"] for row in log.rows("shop.orders")] == [1]


def test_a_topic_whose_first_row_is_refused_leaves_no_transaction(logs: Logs) -> None:
    table, log = Table(columns=[ID, NOTE, column("d", "int32", "io.debezium.time.Date")]), logs()
    event = table.change("c", None, {"id": 1, "note": "a", "d": 2**31 - 1}, **mysql(pos=4))
    assert [fault[2] for fault in log.take([consumed(table, 0, event)])] == [0]
    assert log.rows("shop.orders") == []


def test_a_translator_needs_records_from_a_whole_state_on() -> None:
    with pytest.raises(ValueError, match="whole state"):
        translator(['{"Partition":{"topic":"t","partition":0,"domain":1,"next":1,"seen":{}}}'])
    with pytest.raises(ValueError):
        translator(["{"])
