"""`transforms` in front of sinks of messages. The judges are the server's SELECT with the same expressions,
computed by the server and by Python's `hmac`, and a consumer that knows nothing but topics.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import hashlib
import hmac
import json
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.encode.registry_server import fake_registry
from tests.scenarios.canaries import files_with
from tests.sinks.conformance.brokers import BROKERS

from penstock.testing import topics
from penstock.testing.running import RunningPipeline
from penstock.testing.scenario import Scenario, refusal
from penstock.testing.servers import KafkaCluster
from penstock.testing.topics import Record

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

Make = Callable[..., Scenario]
KEY = "the secret of hashes"
RULES: list[dict[str, Any]] = [
    {
        "tables": "*.customers",
        "where": "state <> 'gone'",
        "columns": {"shout": "upper(name)", "cents": "CAST(amount * 100 AS BIGINT)"},
        "cast": {"joined": "date"},
        "mask": {"card": {"keep_last": 4}, "born": None},
        "hash": ["email"],
        "tokenize": ["phone"],
        "exclude": ["note"],
        "rename": {"id": "customer", "name": "called"},
    },
    {"tables": "*.customers", "to": "{database}.clients"},
    {"tables": "*.keyed", "hash": ["mail"]},
    {"tables": "*.nameless", "exclude": ["id"]},
]
STATES = ["new", "old", "gone"]
HIDDEN = "CANARY7391"
"""Is in every value that rules hide, and in no other."""
HIDDEN_DATE = "1931-07-13"


@pytest.fixture(autouse=True)
def transform_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSFORM_KEY", KEY)


def start(case: Scenario) -> None:
    case.server.execute(
        f"USE {case.database}",
        "CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(40), email VARCHAR(60), phone VARCHAR(40), "
        "card VARCHAR(40), born DATE, joined DATETIME, amount DECIMAL(10,2), state VARCHAR(10), note TEXT, "
        "kind ENUM('a','ä') CHARACTER SET latin1, doc JSON)",
        "CREATE TABLE keyed (mail VARCHAR(60) PRIMARY KEY, v INT)",
        "CREATE TABLE nameless (id VARCHAR(40) PRIMARY KEY, v INT)",
        "CREATE TABLE plain (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO keyed VALUES ('{HIDDEN}1', 1), ('{HIDDEN}2', 2)",
        f"INSERT INTO nameless VALUES ('{HIDDEN}1', 1), ('{HIDDEN}2', 2)",
        "INSERT INTO plain VALUES (1, 1), (2, 2)",
    )


def write(case: Scenario, chance: random.Random, count: int) -> None:
    statements = []
    for _ in range(count):
        key, state = chance.randrange(1, 200), chance.choice(STATES)
        new = (
            f"REPLACE INTO customers VALUES ({key}, 'näme {chance.random()}', '{HIDDEN}a{key % 7}@b.c', "
            f"'{HIDDEN}+{key % 11}', '{HIDDEN}{chance.randrange(10**6):06}', '{HIDDEN_DATE}', "
            f"'2024-02-29 12:34:56', {chance.randrange(10**6)}.25, '{state}', '{HIDDEN} note', 'ä', "
            "'[1.50, {\"a\": null}]')"
        )
        statements.append(
            chance.choice([
                new, new,
                f"UPDATE customers SET state = '{state}', email = NULL WHERE id = {key}",
                f"UPDATE customers SET state = '{state}' WHERE id BETWEEN {key} AND {key + 20}",
                f"UPDATE customers SET card = '{HIDDEN}{key:06}', phone = '{HIDDEN}' WHERE id = {key}",
                f"DELETE FROM customers WHERE id = {key}",
                "UPDATE plain SET v = v + 1",
                f"UPDATE keyed SET mail = '{HIDDEN}{chance.random()}' ORDER BY v LIMIT 1",
                f"UPDATE nameless SET id = '{HIDDEN}{chance.random()}', v = v + 1 ORDER BY v LIMIT 1",
            ])
        )  # fmt: skip
    for begin in range(0, count, 5):
        part = statements[begin : begin + 5]
        case.server.execute(f"USE {case.database}", "BEGIN", *part, "COMMIT")


def hashed(text: str | None) -> str | None:
    return None if text is None else hmac.new(KEY.encode(), text.encode(), hashlib.sha256).hexdigest()


def token(text: str | None) -> str | None:
    if text is None:
        return None
    digest = hmac.new(KEY.encode(), b"\0token\0" + text.encode(), hashlib.sha256).digest()[:16]
    return "tok_" + base64.b32encode(digest).decode().rstrip("=").lower()


COLUMNS = ("customer", "called", "email", "phone", "card", "born", "joined", "amount", "state", "kind", "doc",
           "shout", "cents")  # fmt: skip


def expected(case: Scenario) -> list[tuple[Any, ...]]:
    """The rows of `customers` by the server."""
    rows = case.server.query(
        "SELECT id, name, email, phone, CONCAT(REPEAT('*', CHAR_LENGTH(card) - 4), RIGHT(card, 4)), NULL, "
        "CAST(DATE(joined) AS CHAR), CAST(amount AS CHAR), state, kind, CAST(doc AS CHAR), UPPER(name), "
        f"CAST(amount * 100 AS SIGNED) FROM {case.database}.customers WHERE state <> 'gone' ORDER BY id"
    )
    return [(key, name, hashed(email), token(phone), *rest) for key, name, email, phone, *rest in rows]


def rebuilt(records: Iterable[Record], table: str) -> dict[bytes | None, dict[str, Any]]:
    """The rows of a table by its messages, by their keys. No message comes twice, and each fits the row that
    its key had: an insert finds none, an update and a deletion find one."""
    found: dict[bytes | None, dict[str, Any]] = {}
    seen = set()
    for record in records:
        assert record.value is not None
        value = json.loads(record.value)
        if value["table"] != table:
            continue
        if value["op"] == "t":
            found.clear()
            continue
        seen.add(place := (value["sequence"], value["op"], record.key))
        before, after = value["before"], value["after"]
        if value["op"] == "r":
            pass
        elif before is None:
            assert record.key not in found, place
        elif after is not None and key_of(before) != key_of(after):
            found = {key: row for key, row in found.items() if row != before}
        else:
            assert found.pop(record.key) == before, place
        if after is not None:
            found[record.key] = after
    return found


def key_of(row: dict[str, Any]) -> Any:
    return row.get("customer", row.get("mail"))


def to_kafka(scenario: Make, kafka: KafkaCluster, format: str, **options: Any) -> Scenario:
    case = scenario(
        "kafka", snapshot={"chunk_rows": 50}, transforms=RULES, transform_key="${TRANSFORM_KEY}",
        epoch={"interval": "100ms"},
    )  # fmt: skip
    case.options["sink"] = {"type": "kafka", "bootstrap": kafka.bootstrap, "format": format, **options}
    case.write_file()
    return case


def worked(case: Scenario, *, kills: int = 0) -> Iterator[RunningPipeline]:
    """Snapshot, stream, and kills of the driver in the middle of epochs. Gives the pipeline when everything
    is written."""
    start(case)
    chance = random.Random(11)
    write(case, chance, 150)
    with case.running() as pipeline:
        write(case, chance, 60)
        case.drain(pipeline)
        for _ in range(kills):
            write(case, chance, 60)
            pipeline.kill("driver")
            pipeline.start()
            write(case, chance, 60)
        write(case, chance, 100)
        # A transaction that is larger than a piece.
        case.server.execute(
            f"USE {case.database}",
            "UPDATE customers SET name = CONCAT(name, REPEAT('x', 10)), amount = amount + 1",
        )
        case.drain(pipeline, restart=kills > 0)
        yield pipeline
        assert pipeline.stop() == 0


def all_records(case: Scenario, kafka: KafkaCluster) -> list[Record]:
    names = [name for name in topics.topics(kafka.bootstrap) if case.database in name]
    return list(topics.records(kafka.bootstrap, names))


def assert_rows_are_those_of_the_server(case: Scenario, records: list[Record]) -> None:
    clients = rebuilt(records, "clients")
    rows = sorted(clients.values(), key=lambda row: int(row["customer"]))
    assert [tuple(row) for row in rows[:1]] == [COLUMNS]
    assert [tuple(as_text(value) for value in row.values()) for row in rows] == [
        tuple(None if value is None else str(value) for value in row) for row in expected(case)
    ]
    assert set(clients) == {f'{{"customer":{row["customer"]}}}'.encode() for row in rows}
    mails = {row["mail"]: row["v"] for row in rebuilt(records, "keyed").values()}
    known = case.server.query(f"SELECT mail, v FROM {case.database}.keyed")
    assert mails == {hashed(mail): v for mail, v in known}
    # A table whose key is left out has messages without a key.
    nameless = [one for one in records if json.loads(one.value or b"{}").get("table") == "nameless"]
    assert {one.key for one in nameless} == {None}
    assert all(set(json.loads(one.value or b"")["after"] or {"v": 0}) == {"v"} for one in nameless)
    assert {row["id"]: row["v"] for row in rebuilt(records, "plain").values()} == dict(
        case.server.query(f"SELECT id, v FROM {case.database}.plain")
    )


def as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


def assert_nothing_hidden_is_in(parts: Iterable[bytes | None]) -> int:
    """Also not in other writings of it: Base64, hexadecimal digits, UTF-16, or as days since 1970."""
    plain = HIDDEN.encode()
    codings = [base64.b64encode(b"x" * shift + plain)[4:-4] for shift in range(3)]
    days = (datetime.date.fromisoformat(HIDDEN_DATE) - datetime.date(1970, 1, 1)).days
    wanted = [
        plain,
        plain.hex().encode(),
        HIDDEN.encode("utf-16-le"),
        *codings,
        HIDDEN_DATE.encode(),
        str(days).encode(),
    ]
    count = 0
    for part in parts:
        count += part is not None
        for word in wanted:
            assert word not in (part or b""), part
    return count


def test_the_tables_are_rebuilt_from_topics_over_kills(scenario: Make, kafka: KafkaCluster) -> None:
    case = to_kafka(scenario, kafka, "json", partitions=1)
    for _ in worked(case, kills=3):
        pass
    records = all_records(case, kafka)
    assert_rows_are_those_of_the_server(case, records)
    assert assert_nothing_hidden_is_in(part for one in records for part in (one.key, one.value)) > 200
    assert {one.topic for one in records} == {
        f"{case.database}.{name}" for name in ("clients", "keyed", "nameless", "plain")
    }
    assert files_with(case.folder / "state", KEY) == []
    # Other rules need the rows again.
    case.options["transforms"] = [*RULES, {"tables": "*.plain", "mask": {"v": 0}}]
    case.write_file()
    refusal(case.command("run", "--once"), "penstock resnapshot")
    assert case.command("resnapshot", f"{case.database}.plain").returncode == 0
    assert case.command("run", "--once").returncode == 0
    rows = rebuilt(all_records(case, kafka), "plain").values()
    assert [row["v"] for row in rows] == [0, 0]


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("debezium", {"options": {"provide.transaction.metadata": True, "include.schema.changes": True}}),
        ("debezium", {"options": {"schemas": True}, "partition": "columns", "partition_columns": ["phone"],
                      "topics": [{"match": "*.plain", "partition": "key"},
                                 {"match": "*.keyed", "partition": "key"},
                                 {"match": "*.nameless", "partition": "table"}], "partitions": 3}),
        ("maxwell", {"options": {"output_ddl": True, "output_primary_keys": True}, "partitions": 3}),
        ("canal", {"partition_hash": ".*\\..*:$pk$", "partitions": 3}),
        ("cloudevents", {}),
        ("avro", {}),
        ("protobuf", {}),
    ],
)  # fmt: skip
def test_no_byte_of_a_hidden_value_is_in_any_topic(
    scenario: Make, kafka: KafkaCluster, format: str, options: dict[str, Any]
) -> None:
    with ExitStack() as stack:
        if format in ("avro", "protobuf"):
            registry = stack.enter_context(fake_registry())
            options = {**options, "registry": {"url": registry.url}}
        case = to_kafka(scenario, kafka, format, source="{database}", **options)
        case.options["sink"]["source"] = case.database
        case.write_file()
        for pipeline in worked(case):
            case.server.execute(
                f"USE {case.database}",
                f"ALTER TABLE customers ALTER COLUMN card SET DEFAULT '{HIDDEN}d'",
                f"ALTER TABLE customers ADD COLUMN length INT AS (IF(card = '{HIDDEN}g', 1, 0)) STORED",
                f"INSERT INTO customers (id, state, note) VALUES (1000, 'new', '{HIDDEN}')",
                f"UPDATE customers SET id = 1001, card = '{HIDDEN}77' WHERE id = 1000",
                f"DELETE FROM customers WHERE card LIKE '{HIDDEN}%'",
            )
            case.drain(pipeline)
            parked = [one for one in case.status()["tables"] if one["parked"]]
            assert parked == []
        records = all_records(case, kafka)
        assert assert_nothing_hidden_is_in(part for one in records for part in (one.key, one.value)) > 200
        if format in ("avro", "protobuf"):
            assert_nothing_hidden_is_in([json.dumps(registry.subjects).encode()])
    texts = b"".join(one.value or b"" for one in records)
    assert b"clients" in texts and b"tok_" in texts and b"customers" not in texts


@pytest.mark.parametrize("sink", ["redis-streams", "nats", "rabbitmq-streams"])
def test_streams_of_others_have_transformed_rows(scenario: Make, sink: str) -> None:
    with contextlib.closing(BROKERS[sink]()) as broker:
        case = scenario(
            "streams", snapshot={"chunk_rows": 50}, transforms=RULES, transform_key="${TRANSFORM_KEY}",
            epoch={"interval": "50ms"},
        )  # fmt: skip
        case.options["sink"] = broker.section()
        case.write_file()
        for _ in worked(case, kills=2):
            pass
        records = [
            Record(name, 0, at, key, value)
            for name in (f"{case.database}.{one}" for one in ("clients", "keyed", "nameless", "plain"))
            for at, (key, value) in enumerate(broker.entries(broker.section(), name))
        ]
        assert_rows_are_those_of_the_server(case, records)
        assert assert_nothing_hidden_is_in(part for one in records for part in (one.key, one.value)) > 200
