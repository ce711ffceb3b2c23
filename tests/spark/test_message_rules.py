"""Rules over rows that become messages. The judge is the server's SELECT."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.core.logs import log_of, schema_of

from penstock import _core
from penstock.epochs import ruled_log
from penstock.errors import TableError
from penstock.model.chunk import Chunk
from penstock.model.schema import EXACT_TYPES, TableId, TableSchema
from penstock.model.transforms import TransformRule
from penstock.secret import Secret
from penstock.sources.mysql.snapshot.reader import MySqlChunkReader
from penstock.spark.message_rules import MessageRules
from penstock.state.dead_letters import Letters
from penstock.testing import servers

KEY = "k" * 16
HIDDEN = "CANARY7391"
RULE: dict[str, Any] = {
    "where": "state <> 'gone'", "columns": {"shout": "upper(name)", "month": "month(born)"},
    "cast": {"amount": "bigint"}, "mask": {"card": {"keep_last": 4}, "born": None}, "hash": ["email"],
    "tokenize": ["phone"], "exclude": ["note", "raw"], "rename": {"id": "customer"},
}  # fmt: skip
FORMATS = ["json", "maxwell", "debezium", "canal", "cloudevents", "avro", "protobuf"]


def double(batch: pa.RecordBatch) -> pa.RecordBatch:
    place = batch.schema.get_field_index("name")
    names = [None if name is None else name * 2 for name in batch.column("name").to_pylist()]
    return batch.set_column(place, "name", pa.array(names, pa.string()))


@dataclass
class Case:
    server: servers.MySqlServer
    spark: SparkSession
    schema: TableSchema

    def rules(self, *rules: dict[str, Any], target: TableId | None = None) -> MessageRules:
        made = tuple(TransformRule(tables="d.*", **rule) for rule in rules)
        return MessageRules(self.spark, self.schema, target or self.schema.table, made, Secret(KEY))

    def messages(
        self, format: str, rules: MessageRules, letters: Letters | None = None, path: str = "", **options: Any
    ) -> list[Any]:
        """Key and value of the messages of the log."""
        parts: list[_core.LogPart] = [(path or log_of(self.server)[0], 0, 0, None, [])]
        of = {self.schema.table: rules}
        encoder = _core.LogEncoder(
            parts, format, schemas=[self.schema.to_json()], rules=ruled_log.arguments(of),
            tables=[("d", "customers")], options=json.dumps(options),
        )  # fmt: skip
        found = []
        for step in ruled_log.steps(encoder, of, letters or Letters(), 1 << 20):
            if isinstance(step, _core.EncodedMessages):
                found += [(key, value) for _, key, value, _ in step.messages()]
        return found

    def rows(self, rules: MessageRules) -> list[dict[str, Any]]:
        """The rows that are there by the messages of the log."""
        first, found = rules.shown.columns[0].name, dict[int, dict[str, Any]]()
        for key, value in self.messages("json", rules):
            before, after = (json.loads(value)[image] for image in ("before", "after"))
            assert json.loads(key) == {first: (after or before)[first]}
            if before is not None:
                assert found.pop(before[first]) == before
            if after is not None:
                assert found.setdefault(after[first], after) is after
        return [found[id] for id in sorted(found)]

    def snapshot(self, rules: MessageRules) -> list[dict[str, Any]]:
        reader = MySqlChunkReader(self.server.connect(), types=EXACT_TYPES)
        try:
            batches = list(reader.read(self.schema, Chunk(self.schema.table, 0, None, None)))
        finally:
            reader.close()
        encoder = _core.RowEncoder(rules.shown.to_json(), "json")
        found = []
        for batch in batches:
            placed = batch.append_column("_sequence", pa.repeat(pa.scalar(7, pa.int64()), batch.num_rows))
            rows, letters = rules.of_snapshot(placed)
            assert letters == []
            values = [value for _, _, value, _ in encoder.encode(rows, at_us=1).messages()]
            found += [json.loads(value)["after"] for value in values if value is not None]
        return found


@pytest.fixture(scope="module")
def case(spark: SparkSession) -> Iterator[Case]:
    with servers.MySqlServer() as server:
        server.execute(
            "SET time_zone = '+00:00', sql_mode = ''",
            "CREATE DATABASE d",
            "CREATE TABLE d.customers (id INT PRIMARY KEY, name VARCHAR(40), email VARCHAR(60), "
            "phone VARCHAR(40), card VARCHAR(40), born DATE, at TIMESTAMP(3) NULL, amount DECIMAL(10,2), "
            "state VARCHAR(10), note TEXT, raw BLOB, kind ENUM('a','ä') CHARACTER SET latin1, doc JSON, "
            "big BIGINT UNSIGNED, zero DATE)",
            "FLUSH BINARY LOGS",
            *(
                f"INSERT INTO d.customers VALUES ({n}, 'näme{n}', '{HIDDEN}{n % 7}@b.c', '{HIDDEN}+{n}', "
                f"'{HIDDEN}{n:05}', '1999-0{n % 9 + 1}-03', '2024-02-29 12:34:56.789', {n}.75, "
                f"'{('new', 'old', 'gone')[n % 3]}', '{HIDDEN}', x'{HIDDEN.encode().hex()}', 'ä', "
                "'[1.50, {\"a\": null}]', 18446744073709551615, '2024-00-10')"
                for n in range(1, 40)
            ),
            f"UPDATE d.customers SET state = 'gone', card = '{HIDDEN}u' WHERE id % 5 = 0",
            "UPDATE d.customers SET state = 'new', amount = amount + 1 WHERE id % 4 = 0",
            "UPDATE d.customers SET email = NULL, name = NULL WHERE id % 6 = 0",
            "UPDATE d.customers SET doc = JSON_SET(doc, '$[0]', 2) WHERE id % 5 = 1",
            "DELETE FROM d.customers WHERE id % 7 = 0",
            "UPDATE d.customers SET id = id + 100 WHERE id < 4",
        )
        yield Case(server, spark, schema_of(server, "d.customers"))


def hashed(text: str | None) -> str | None:
    return None if text is None else hmac.new(KEY.encode(), text.encode(), hashlib.sha256).hexdigest()


def token(text: str) -> str:
    digest = hmac.new(KEY.encode(), b"\0token\0" + text.encode(), hashlib.sha256).digest()[:16]
    return "tok_" + base64.b32encode(digest).decode().rstrip("=").lower()


def expected(case: Case) -> list[dict[str, Any]]:
    with case.server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00', sql_mode = ''")
        cursor.execute(
            "SELECT id, name, email, phone, CONCAT(REPEAT('*', CHAR_LENGTH(card) - 4), RIGHT(card, 4)), "
            "CAST(at AS CHAR), FLOOR(amount), state, kind, CAST(doc AS CHAR), big, CAST(zero AS CHAR), "
            "UPPER(name), MONTH(born) FROM d.customers WHERE state <> 'gone' ORDER BY id"
        )
        rows = list(cursor.fetchall())
    return [
        {
            "customer": id, "name": name, "email": hashed(email), "phone": token(phone), "card": card,
            "born": None, "at": at, "amount": int(amount), "state": state, "kind": kind, "doc": doc,
            "big": big, "zero": zero, "shout": shout, "month": month,
        }
        for id, name, email, phone, card, at, amount, state, kind, doc, big, zero, shout, month in rows
    ]  # fmt: skip


def test_rows_of_the_log_and_of_the_snapshot_are_those_of_the_servers_select(case: Case) -> None:
    rules, wanted = case.rules(RULE), expected(case)
    assert len(wanted) > 15 and list(wanted[0]) == [one.name for one in rules.shown.columns]
    assert case.rows(rules) == wanted
    assert sorted(case.snapshot(rules), key=lambda row: int(row["customer"])) == wanted


@pytest.mark.parametrize("format", FORMATS)
def test_no_byte_of_a_hidden_value_is_in_messages(case: Case, format: str) -> None:
    options: dict[str, Any] = {}
    if format in ("avro", "protobuf", "debezium"):
        options = {"bigint_unsigned_handling_mode": "precise"}
    found = case.messages(
        format, case.rules(RULE, {"to": "x.clients"}, target=TableId("x", "clients")), **options
    )
    texts = b"\n".join((key or b"") + b" " + (value or b"") for key, value in found)
    assert texts.count(b"tok_") > 30 and b"clients" in texts and b"customers" not in texts
    for shift in range(3):
        assert base64.b64encode(b"x" * shift + HIDDEN.encode())[4:-4] not in texts
    assert HIDDEN.encode() not in texts
    assert b"1999-0" not in texts


def test_a_function_changes_what_it_gives_back_and_all_else_stays(case: Case) -> None:
    rules = case.rules({"python": f"{__name__}:double"}, {"select": ["id", "name", "big", "amount"]})
    rows = {row["id"]: row for row in case.rows(rules)}
    with case.server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id, CONCAT(name, name), big, CAST(amount AS CHAR) FROM d.customers")
        assert {id: tuple(row.values()) for id, row in rows.items()} == {
            row[0]: row for row in cursor.fetchall()
        }
    assert rules.shown.column("big").unsigned and rules.shown.column("name").length == 40


def test_a_key_may_be_hidden_by_a_hash_and_a_table_whose_key_is_left_out_has_none(case: Case) -> None:
    found = case.messages("json", case.rules({"hash": ["id"], "select": ["id", "state"]}))
    for key, value in found:
        change = json.loads(value)
        assert json.loads(key) == {"id": (change["after"] or change["before"])["id"]}
    keys = {json.loads(key)["id"] for key, _ in found}
    assert {hashed(str(n)) for n in [*range(4, 40), 101, 102, 103]} <= keys
    assert {key for key, _ in case.messages("debezium", case.rules({"exclude": ["id"], "select": None}))} == {
        None
    }


def test_rows_that_fail_are_listed_and_all_others_go_on(case: Case) -> None:
    rule = {"columns": {"x": "CAST(IF(id % 8 = 0, 'no number', '1') AS INT)"}, "select": ["id", "x"]}
    with pytest.raises(TableError, match="CAST_INVALID_INPUT") as refused:
        case.messages("json", case.rules(rule))
    assert refused.value.details["table"] == "d.customers"
    letters = Letters()
    rows = case.messages("json", case.rules({**rule, "on_error": "dead_letter"}), letters)
    ids = {(json.loads(value)["after"] or json.loads(value)["before"])["id"] for _, value in rows}
    assert ids and not any(id % 8 == 0 for id in ids)
    [listed] = letters._rows.values()
    assert {one["change"] for one in listed.values()} >= {"insert", "update_preimage", "update_postimage"}
    assert all(one["key"].keys() == {"id"} and one["key"]["id"] % 8 == 0 for one in listed.values())
    places = [(one["offset"], one["change"]) for one in listed.values()]
    assert len(set(places)) == len(places) and HIDDEN not in str(listed)


def test_the_update_that_repairs_a_row_is_an_insertion(case: Case) -> None:
    failing = "name IS NOT NULL AND id IN (6, 12)"
    rule = {"columns": {"x": f"CAST(IF({failing}, 'no number', '1') AS INT)"}, "select": ["id", "x"]}
    letters = Letters()
    found = case.messages("json", case.rules({**rule, "on_error": "dead_letter"}), letters)
    changes = [json.loads(value) for _, value in found]
    images = [(one["before"], one["after"]) for one in changes if 6 in _ids(one)]
    repaired = {"id": 6, "x": 1}
    assert images == [(None, repaired), (repaired, repaired)]
    [listed] = letters._rows.values()
    kinds = [(one["key"]["id"], one["change"]) for one in listed.values() if one["key"]["id"] == 6]
    assert kinds == [(6, "insert"), (6, "update_preimage")]


def _ids(change: dict[str, Any]) -> set[int]:
    return {image["id"] for image in (change["before"], change["after"]) if image is not None}


def test_a_row_that_fails_is_listed_with_its_key_though_no_rule_looks_at_it(case: Case) -> None:
    rule = {"columns": {"x": "CAST(IF(kind = 'ä', 'no number', '1') AS INT)"}, "on_error": "dead_letter"}
    letters = Letters()
    assert case.messages("json", case.rules({**rule, "select": ["id", "x"]}), letters) == []
    [listed] = letters._rows.values()
    assert {one["key"]["id"] for one in listed.values()} == {*range(1, 40), 101, 102, 103}


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"exclude": ["none"]}, "does not have"),
        ({"mask": {"at": {"keep_last": 1}}}, "only a text"),
        ({"where": "rand() > 0.5"}, "depends on more than the row"),
        ({"columns": {"x": "INTERVAL '1' DAY"}}, "no message has"),
    ],
)
def test_rules_that_do_not_fit_are_refused(case: Case, rule: dict[str, Any], why: str) -> None:
    with pytest.raises(TableError, match=why):
        case.rules(rule)


def test_parts_of_rows_can_be_chosen_and_hidden_but_not_computed_with(case: Case) -> None:
    connection = case.server.connect()
    try:
        with connection.cursor() as cursor:
            cursor.execute("FLUSH BINARY LOGS")
            cursor.execute("SET binlog_row_image = 'MINIMAL'")
            cursor.execute(f"UPDATE d.customers SET card = '{HIDDEN}99' WHERE id = 101")
            cursor.execute("UPDATE d.customers SET name = 'other' WHERE id = 101")
        connection.commit()
        path = log_of(case.server)[0]
    finally:
        connection.close()
        case.server.execute("FLUSH BINARY LOGS")
    hiding = case.rules({"mask": {"card": {"keep_last": 2}}, "hash": ["email"], "exclude": ["note"]})
    values = [json.loads(value) for _, value in case.messages("maxwell", hiding, path=path)]
    assert [value["data"] for value in values] == [
        {"id": 101, "card": "*" * 10 + "99"}, {"id": 101, "name": "other"},
    ]  # fmt: skip
    with pytest.raises(TableError, match="only parts of rows"):
        case.messages("maxwell", case.rules(RULE), path=path)
    with pytest.raises(_core.DecodeError, match="binlog_row_image = FULL"):
        case.messages("debezium", hiding, path=path)
