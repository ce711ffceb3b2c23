"""A table that is rebuilt from messages alone equals its source, on each server, whatever the transactions
were."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import pytest

from penstock import _core
from penstock.model.schema import TableId
from penstock.sources.mysql.catalog import read_table
from penstock.testing.servers import Database, DatabaseServer

Rows = dict[int, tuple[Any, ...]]


def changes(random_: random.Random, table: str) -> Iterable[str]:
    """Statements of a transaction. Keys come back, and change."""
    for _ in range(random_.randrange(1, 6)):
        key, other = random_.randrange(30), random_.randrange(30)
        yield random_.choice(
            (
                f"INSERT IGNORE INTO {table} VALUES ({key}, 'n{other}', {other}), ({other}, NULL, 1.5)",
                f"REPLACE INTO {table} VALUES ({key}, 'r{other}', NULL)",
                f"UPDATE {table} SET note = CONCAT(COALESCE(note, ''), 'ü') WHERE id < {key}",
                f"UPDATE IGNORE {table} SET id = {other} WHERE id = {key}",
                f"DELETE FROM {table} WHERE id = {key}",
            )
        )


def write(server: DatabaseServer, table: str, random_: random.Random) -> None:
    for number in range(60):
        body = list(changes(random_, table))
        end = random_.choice(("COMMIT", "COMMIT", "ROLLBACK"))
        if number % 7 == 3:
            xa = f"'{number}'"
            fate = random_.choice(("COMMIT", "ROLLBACK"))
            server.execute(f"XA START {xa}", *body, f"XA END {xa}", f"XA PREPARE {xa}", f"XA {fate} {xa}")
        elif number % 7 == 5:
            server.execute("BEGIN", *body, "SAVEPOINT s", *changes(random_, table), "ROLLBACK TO s", end)
        else:
            server.execute("BEGIN", *body, end)


def as_row(row: dict[str, Any]) -> tuple[Any, ...]:
    number = row["n"]
    return (row["note"], None if number is None else float(number))


def rebuilt(values: Iterable[tuple[Any, Any]], format: str) -> Rows:
    rows: Rows = {}
    for key, value in values:
        if value is None:
            rows.pop(key["id"], None)
        elif format == "canal":
            for index, row in enumerate(value["data"]):
                old = value["old"][index] if value["old"] else {}
                rows.pop(int(old.get("id", row["id"])), None)
                if value["type"] != "DELETE":
                    rows[int(row["id"])] = as_row(row)
        elif format == "maxwell":
            rows.pop(value.get("old", {}).get("id", value["data"]["id"]), None)
            if value["type"] != "delete":
                rows[value["data"]["id"]] = as_row(value["data"])
        else:
            if value["before"] is not None:
                assert rows.pop(value["before"]["id"]) == as_row(value["before"])
            if value["after"] is not None:
                rows[value["after"]["id"]] = as_row(value["after"])
    return rows


@pytest.mark.parametrize("seed", range(2))
def test_a_table_rebuilt_from_messages_equals_its_source(
    flavor: DatabaseServer, flavor_database: Database, seed: int
) -> None:
    table = f"{flavor_database.name}.t"
    flavor.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, note VARCHAR(200), n DECIMAL(10,2))")
    flavor.execute("FLUSH BINARY LOGS")
    write(flavor, table, random.Random(seed))
    files = [flavor.binlog_files()[-1]]
    expected = {row[0]: (row[1], None if row[2] is None else float(row[2]))
                for row in flavor.query(f"SELECT id, note, n FROM {table}")}  # fmt: skip
    assert expected
    with flavor.connect() as connection:
        schema = read_table(connection, TableId(flavor_database.name, "t"))
    assert schema is not None
    parts: list[_core.LogPart] = [(str(path), 0, 0, None, []) for path in files]
    for format in ("json", "maxwell", "canal", "debezium"):
        options = {"decimal_handling_mode": "string"} if format == "debezium" else {}
        encoder = _core.LogEncoder(
            parts, format, options=json.dumps(options), schemas=[schema.to_json()],
            tables=[(flavor_database.name, "t")],
        )  # fmt: skip
        found = []
        while (step := encoder.read()) is not None:
            if isinstance(step, _core.EncodedMessages):
                found += [(json.loads(key) if key else None, json.loads(value) if value else None)
                          for _, key, value, _ in step.messages()]  # fmt: skip
        assert rebuilt(found, format) == expected
