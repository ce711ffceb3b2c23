"""Columns that a destination leaves out are in no image of a row, in any format."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from tests.serve.raw_client import RawClient
from tests.serve.serving import rows_of, serving

from penstock.client import connect
from penstock.errors import ConfigError
from penstock.serve.settings import DestinationSection
from penstock.testing.servers import Database, MySqlServer


def test_rows_have_the_columns_of_their_destination(source: MySqlServer, tmp_path: Path) -> None:
    database = Database(source, "serve_columns")
    database.execute(
        "CREATE TABLE people (id INT PRIMARY KEY, name VARCHAR(20), secret VARCHAR(20))",
        "CREATE TABLE others (id INT PRIMARY KEY, secret VARCHAR(20))",
    )
    people = f"{database.name}.people"
    common: dict[str, Any] = {"filter": rf"{database.name}\..*", "start": "earliest", "ddl": False}
    destinations = {
        "kept": {**common, "columns": {people: ["id", "NAME"]}},
        "left": {**common, "exclude_columns": {people: ["secret"]}},
        "keyless": {**common, "exclude_columns": {people: ["id"]}},
    }
    listen = {"canal": "127.0.0.1:0", "grpc": "127.0.0.1:0"}
    with serving(source, tmp_path, listen=listen, destinations=destinations) as served:
        database.execute(
            "INSERT INTO people VALUES (1, 'a', 'x')", "UPDATE people SET secret = 'y'",
            "ALTER TABLE people ADD age INT FIRST", "UPDATE people SET age = 5, name = 'b'",
            "DELETE FROM people", "INSERT INTO others VALUES (1, 'x')",
        )  # fmt: skip
        for name, old, new in (("kept", {}, {}), ("left", {"age": None}, {"age": "5"})):
            with RawClient(served.address, destination=name) as client:
                client.subscribe()
                found: list[Any] = []
                while len(found) < 5:
                    found += [row[2:] for row in rows_of(client.get(100)[1])]
            a, b = {"id": "1", "name": "a"}, {"id": "1", "name": "b"}
            assert found == [
                ({}, a), (a, a), ({**old, **a}, {**new, **b}), ({**new, **b}, {}),
                ({}, {"id": "1", "secret": "x"}),
            ]  # fmt: skip
        with connect(served.listening["grpc"]) as server:
            stream = chain.from_iterable(batch.changes for batch in server.read("keyless", start="earliest"))
            first, second = next(stream), next(stream)
        assert first["after"] == {"name": "a", "secret": "x"}
        assert second["before"] == {"name": "a", "secret": "x"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": {"people": ["id"]}}, "database.table"),
        ({"columns": {"a.b": ["id"]}, "exclude_columns": {"a.b": ["id"]}}, "one of them"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=message):
        DestinationSection(**options)
