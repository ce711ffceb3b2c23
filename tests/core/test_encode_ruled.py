"""Messages of rows that the caller has changed: `rules` of `LogEncoder`.

The oracles are the messages of the same log without rules, whose rows are dropped here by what they say.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.core import alltypes
from tests.core.logs import log_of, schema_of

from penstock import _core
from penstock.model.schema import DEFAULT_TYPES, EXACT_TYPES, TableSchema
from penstock.testing import servers

FORMATS: dict[str, dict[str, Any]] = {
    "json": {}, "maxwell": {"output_xoffset": True}, "canal": {}, "cloudevents": {}, "canal-entry": {},
    "debezium": {"provide_transaction_metadata": True}, "avro": {"bigint_unsigned_handling_mode": "precise"},
    "protobuf": {"bigint_unsigned_handling_mode": "precise"},
}  # fmt: skip
ROW = "_penstock_row"

Written = tuple[servers.MySqlServer, dict[str, TableSchema]]
Rules = dict[str, tuple[TableSchema, list[tuple[str | None, bool]], list[str], str, bool]]


@pytest.fixture(scope="module")
def written() -> Iterator[Written]:
    with servers.MySqlServer() as server:
        server.execute(
            "SET time_zone = '+00:00', sql_mode = ''",
            "CREATE DATABASE d",
            alltypes.create_table("d.t"),
            "CREATE TABLE d.a (id INT PRIMARY KEY, v INT, w VARCHAR(20))",
            "CREATE TABLE d.b (id INT PRIMARY KEY, v INT)",
            "FLUSH BINARY LOGS",
            *alltypes.inserts("d.t"),
            "UPDATE d.t SET c_int = 5, c_varchar = 'x' WHERE id % 2",
            "DELETE FROM d.t WHERE id % 3 = 1",
        )
        rows = ", ".join(f"({n}, {n % 10}, 'w{n}')" for n in range(1, 101))
        server.execute(
            f"INSERT INTO d.a VALUES {rows}",
            "BEGIN", "INSERT INTO d.b VALUES (1, 1)", "UPDATE d.a SET v = v + 5 WHERE id <= 50",
            "UPDATE d.b SET v = 2", "DELETE FROM d.a WHERE id > 90", "COMMIT",
            "BEGIN", "UPDATE d.a SET v = 3 WHERE id = 1", "SAVEPOINT s", "DELETE FROM d.a", "ROLLBACK TO s",
            "INSERT INTO d.b VALUES (2, 2)", "COMMIT",
            "BEGIN", "INSERT INTO d.b VALUES (3, 3)", "UPDATE d.a SET v = 9 WHERE v = 8", "COMMIT",
            "BEGIN", "UPDATE d.a SET id = id + 1000 WHERE id < 5", "COMMIT",
            "BEGIN", "UPDATE d.a SET v = 1", "UPDATE d.a SET v = 2", "UPDATE d.a SET v = 9", "COMMIT",
        )  # fmt: skip
        yield server, {name: schema_of(server, f"d.{name}") for name in ("t", "a", "b")}


def plain(written: Written, format: str, **options: Any) -> list[Any]:
    encoder = encoder_of(written, format, **options)
    return list(messages_of(encoder))


def encoder_of(written: Written, format: str, **options: Any) -> _core.LogEncoder:
    server, schemas = written
    parts: list[_core.LogPart] = [(log_of(server)[0], 0, 0, None, [])]
    known = [one.to_json() for one in schemas.values()]
    return _core.LogEncoder(
        parts, format, options=json.dumps(FORMATS[format]), schemas=known,
        tables=[("d", name) for name in schemas], **options,
    )  # fmt: skip


def messages_of(encoder: _core.LogEncoder) -> Iterator[Any]:
    while (step := encoder.read(4000)) is not None:
        if isinstance(step, _core.EncodedMessages):
            yield from step.messages()


def ruled(
    written: Written, format: str, rules: Rules, change: Callable[[str, pa.RecordBatch], pa.RecordBatch],
    piece: int, **options: Any,
) -> list[Any]:  # fmt: skip
    given = [("d", name, (schema.to_json(), *others)) for name, (schema, *others) in rules.items()]
    encoder = encoder_of(written, format, rules=given, **options)
    found: list[Any] = []
    while (collected := encoder.collect(piece)) is not None:
        for database, table, rows, lacks in collected:
            assert not lacks
            encoder.apply(database, table, change(table, rows))
        found += messages_of(encoder)
    return found


def untouched(schema: TableSchema, *, drops: bool = False) -> Any:
    origins = [(column.name, False) for column in schema.columns]
    return schema, origins, [], DEFAULT_TYPES.to_json(), drops


def numbers(_: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.select([ROW])


@pytest.mark.parametrize("piece", [1, 30_000, 1 << 22])
@pytest.mark.parametrize("format", FORMATS)
def test_rules_that_change_nothing_give_the_same_bytes(written: Written, format: str, piece: int) -> None:
    rules = {name: untouched(written[1][name], drops=True) for name in ("t", "a")}
    assert ruled(written, format, rules, numbers, piece) == plain(written, format)


@pytest.mark.parametrize("format", ["json", "maxwell", "debezium", "canal"])
def test_values_that_went_through_arrow_give_the_same_bytes(written: Written, format: str) -> None:
    """Rules make all columns, as they were. Labels and JSON are never made under their own type."""
    schema = written[1]["t"]
    kept = ("enum", "set", "json")
    origins: list[tuple[str | None, bool]] = [(one.name, one.type not in kept) for one in schema.columns]
    needed = [column.name for column in schema.columns if column.type not in kept]
    rules: Rules = {"t": (schema, origins, needed, EXACT_TYPES.to_json(), False)}
    assert ruled(written, format, rules, lambda _, rows: rows, 1 << 22) == plain(written, format)


def left_of(format: str, message: Any) -> Any:
    """A message of `json` without the rows that have an odd `v`, or None."""
    value = json.loads(message[2])
    if value["table"] != "a":
        return value
    for image in ("before", "after"):
        if value[image] is not None and value[image]["v"] % 2:
            value[image] = None
    kinds = {(True, True): "u", (True, False): "d", (False, True): "c"}
    value["op"] = kinds.get((value["before"] is not None, value["after"] is not None))
    return value if value["op"] else None


def even(_: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.filter(pc.equal(pc.bit_wise_and(rows.column("v"), 1), 0)).select([ROW])


def rules_for_even(schema: TableSchema) -> Rules:
    origins: list[tuple[str | None, bool]] = [(column.name, False) for column in schema.columns]
    return {"a": (schema, origins, ["v"], DEFAULT_TYPES.to_json(), True)}


@pytest.mark.parametrize("piece", [1, 2_000, 1 << 22])
def test_rows_that_are_left_out_leave_inserts_and_deletes_of_updates(written: Written, piece: int) -> None:
    found = ruled(written, "json", rules_for_even(written[1]["a"]), even, piece)
    left = [left_of("json", one) for one in plain(written, "json")]
    assert [json.loads(one[2]) for one in found] == [one for one in left if one is not None]
    assert {"u", "c", "d"} == {json.loads(one[2])["op"] for one in found}


@pytest.mark.parametrize("piece", [1, 2_000, 1 << 22])
def test_the_last_row_that_is_left_ends_maxwells_transaction(written: Written, piece: int) -> None:
    found = [json.loads(one[2]) for one in ruled(
        written, "maxwell", rules_for_even(written[1]["a"]), even, piece)]  # fmt: skip
    last = {value["xid"]: place for place, value in enumerate(found)}
    for place, value in enumerate(found):
        assert value.get("commit", False) == (last[value["xid"]] == place)
    for xid in last:
        offsets = [value.get("xoffset") for value in found if value["xid"] == xid]
        assert offsets == [*range(len(offsets) - 1), None]
    assert len(last) > 5 and len(found) > 200


@pytest.mark.parametrize("piece", [1, 1 << 22])
def test_debeziums_transactions_count_what_is_sent(written: Written, piece: int) -> None:
    found = [
        (about, None if value is None else json.loads(value))
        for about, _, value, _ in ruled(
            written, "debezium", rules_for_even(written[1]["a"]), even, piece
        )
    ]  # fmt: skip
    counts: dict[str, dict[str, int]] = {}
    ends = 0
    for _, value in found:
        if value is None:
            continue
        if "op" in value:
            of = counts.setdefault(value["transaction"]["id"], {})
            table = f"{value['source']['db']}.{value['source']['table']}"
            of[table] = of.get(table, 0) + 1
            assert value["transaction"]["data_collection_order"] == of[table]
            assert value["transaction"]["total_order"] == sum(of.values())
        elif value["status"] == "END":
            told = {one["data_collection"]: one["event_count"] for one in value["data_collections"]}
            assert told == counts[value["id"]] and value["event_count"] == sum(told.values())
            ends += 1
    assert ends == len(counts) > 5  # a transaction of which nothing is left has no BEGIN and no END


def test_a_transaction_without_rows_that_are_left_has_no_messages(written: Written) -> None:
    rules = {name: untouched(written[1][name], drops=True) for name in ("t", "a", "b")}
    for format in FORMATS:
        assert ruled(written, format, rules, lambda _, rows: rows.select([ROW]).slice(0, 0), 1 << 22) == []


def test_the_name_the_columns_and_the_key_are_those_of_the_messages_table(written: Written) -> None:
    schema = written[1]["a"]
    columns = (
        replace(schema.column("w"), name="text"), replace(schema.column("id"), name="number"),
        replace(schema.column("v"), name="made"),
    )  # fmt: skip
    shown = replace(
        schema, table=replace(schema.table, database="o", table="z"), columns=columns, key=("text",)
    )
    origins: list[tuple[str | None, bool]] = [("w", False), ("id", False), (None, True)]
    rules: Rules = {"a": (shown, origins, ["v"], DEFAULT_TYPES.to_json(), False)}

    def doubled(_: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        made = pc.multiply(rows.column("v"), 2)
        return pa.RecordBatch.from_arrays([made, rows.column(ROW)], ["made", ROW])

    found = ruled(written, "json", rules, doubled, 3_000)
    expected = []
    for about, key, value, sequence in plain(written, "json"):
        values = json.loads(value)
        if values["table"] == "a":
            values |= {"database": "o", "table": "z"}
            for image in ("before", "after"):
                if (one := values[image]) is not None:
                    values[image] = {"text": one["w"], "number": one["id"], "made": 2 * one["v"]}
            key = (
                json.dumps({"text": (values["after"] or values["before"])["text"]}).replace(" ", "").encode()
            )
        expected.append((about, key, values, sequence))
    assert [(about, key, json.loads(value), at) for about, key, value, at in found] == expected
    assert all(list(json.loads(one[2])["after"] or {}) in ([], ["text", "number", "made"])
               for one in found if json.loads(one[2])["table"] == "z")  # fmt: skip


@pytest.mark.parametrize("rows", [[3, 2], [0, 0], [10_000], [-1]])
def test_rows_that_were_not_collected_are_refused(written: Written, rows: list[int]) -> None:
    rules = {"a": untouched(written[1]["a"])}

    def other(_: str, collected: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array(rows, pa.int64())], [ROW])

    with pytest.raises(_core.DecodeError, match="not those that were collected"):
        ruled(written, "json", rules, other, 1 << 22)


def test_rows_that_were_not_transformed_are_an_error(written: Written) -> None:
    given = [("d", "a", (written[1]["a"].to_json(), *untouched(written[1]["a"])[1:]))]
    encoder = encoder_of(written, "json", rules=given)
    assert encoder.collect(1 << 30) is not None
    with pytest.raises(_core.DecodeError, match="not transformed"):
        list(messages_of(encoder))


def test_an_integer_beyond_its_columns_range_is_an_error(written: Written) -> None:
    schema = written[1]["a"]
    small = replace(schema.column("v"), type="tinyint", column_type="tinyint")
    columns = tuple(small if column.name == "v" else column for column in schema.columns)
    origins: list[tuple[str | None, bool]] = [(one.name, one.name == "v") for one in columns]
    rules: Rules = {"a": (replace(schema, columns=columns), origins, [], DEFAULT_TYPES.to_json(), False)}

    def large(_: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [pa.repeat(pa.scalar(128, pa.int32()), rows.num_rows), rows.column(ROW)], ["v", ROW]
        )

    with pytest.raises(_core.DecodeError, match="not one of type tinyint"):
        ruled(written, "json", rules, large, 1 << 22)


def test_an_update_that_moves_a_row_is_two_messages_by_what_messages_show(written: Written) -> None:
    """The partition goes by the made column, so nothing of the hidden one decides it."""
    schema = written[1]["a"]
    origins: list[tuple[str | None, bool]] = [(one.name, one.name == "v") for one in schema.columns]
    rules: Rules = {"a": (schema, origins, [], DEFAULT_TYPES.to_json(), False)}

    def hidden(_: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        same = pa.repeat(pa.scalar(1, pa.int32()), rows.num_rows)
        return pa.RecordBatch.from_arrays([same, rows.column(ROW)], ["v", ROW])

    route: Any = [("d", "a", ("columns", ["v"]))]
    without = ruled(written, "json", rules, hidden, 1 << 22)
    assert ruled(written, "json", rules, hidden, 1 << 22, routes=route) == without
    moved = ruled(written, "json", {"a": untouched(schema)}, numbers, 3_000, routes=route)
    assert moved == plain(written, "json", routes=route) != plain(written, "json")
