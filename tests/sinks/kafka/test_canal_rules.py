"""Canal's rules for topics and partitions. The judge is Canal's own class, `MQMessageUtils` of version 1.1.7.

Its answers are in `canal_rules.txt`: each line has a question as `bench/peers/java/CanalRules.java` takes it,
a tab, and the answer. The slow test asks the class again.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench import java
from penstock.model.schema import TableId
from penstock.sinks.kafka import canal_rules

ANSWERS = Path(__file__).with_name("canal_rules.txt")

NAMES = [("shop", "orders"), ("shop", "Orders_2"), ("Shop", "events"), ("test", "test"), ("a_b", "ü€𝄞")]
TOPIC_RULES = [
    "shop", "shop.orders", "shop\\.orders", "shop\\..*", ".*\\..*", "all:shop", "all:shop\\.orders_.*",
    "one:shop\\.events;two:shop\\..*;three:test", "a:test,shop\\.orders", "shop.*", "Shop.Events", "t.*,s.*",
    "x.y: shop\\..*", "shop\\.(orders|events)", "shop\\.order", "a_b\\..*;a_b", ".*",
]  # fmt: skip
PARTITION_RULES = [
    "shop.orders", "shop\\..*", "shop.orders:id", "shop.orders:id^name", ".*\\..*:$pk$", "SHOP.ORDERS:$PK$",
    "test.test:id,.*\\..*", ".*\\..*:name;shop\\..*:id", "nothing.here:id", "shop\\.orders:missing",
    ".*:id^name",
]  # fmt: skip
ROWS = [
    {"id": "1", "name": "a"}, {"id": "18446744073709551615", "name": ""}, {"id": "-7", "name": "Müller 𝄞"},
    {"id": "polygenelubricants", "name": "2026-11-25 20:00:00"}, {"id": "", "name": "x" * 30},
]  # fmt: skip


def questions() -> list[str]:
    topics = [f"topic\t{rules}\t{name[0]}\t{name[1]}" for rules in TOPIC_RULES for name in NAMES]
    partitions = [
        "\t".join(["partition", rules, *name, count, hashed, key, *(f"{k}={v}" for k, v in row.items())])
        for rules in PARTITION_RULES
        for name in NAMES
        for row in ROWS
        for count, hashed, key in (("7", "true", "id"), ("12", "false", "id,name"), ("3", "true", ""))
    ]
    return topics + partitions


def answer(question: str) -> str:
    what, rules, database, name, *rest = question.split("\t")
    table = TableId(database, name)
    if what == "topic":
        return canal_rules.dynamic_topic(rules, table) or "-"
    count, hashed, key, *fields = rest
    rule = canal_rules.partition_rule(rules, table)
    if rule is None:
        return "0"
    if rule.columns is None:
        return str(canal_rules.table_partition(table, int(count)))
    row = dict(field.split("=", 1) for field in fields)
    found = canal_rules.java_hash(database) if hashed == "true" else 0
    for column in rule.columns or (key.split(",") if key else ()):
        found ^= canal_rules.java_hash(row.get(column, ""))
    return str(abs(found) % int(count))


def test_topics_and_partitions_are_those_of_canals_own_class() -> None:
    recorded = [line.rpartition("\t") for line in ANSWERS.read_text().splitlines()]
    assert [question for question, _, _ in recorded] == questions()
    assert [answer(question) for question in questions()] == [one for _, _, one in recorded]


@pytest.mark.slow
def test_the_recorded_answers_are_those_that_the_class_gives() -> None:
    command = java.compiled("CanalRules", java.canal_jars())
    asked = "".join(f"{question}\n" for question in questions())
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=True, encoding="utf-8")
    pairs = zip(questions(), done.stdout.splitlines(), strict=True)
    assert [f"{question}\t{found}" for question, found in pairs] == ANSWERS.read_text().splitlines()
