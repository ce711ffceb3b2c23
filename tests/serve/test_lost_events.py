"""What a source has lost (INCIDENT in its log) is told to clients, and they go on behind it."""

from __future__ import annotations

import http.client
from pathlib import Path
from typing import Any

import pytest
from tests.serve.listeners.test_pages import events
from tests.serve.raw_client import RawClient
from tests.serve.serving import eventually, rows_of, serving
from tests.sources.mysql.receiving import source_events

from penstock.client import connect
from penstock.testing.servers import MySqlServer

OPTIONS = {"max_binlog_stmt_cache_size": 4096, "binlog_stmt_cache_size": 4096}
INCIDENT = 26
SAID = "-- the source says that events were lost (INCIDENT): rows may have changed that are in no log"


def test_clients_are_told_that_events_were_lost_and_go_on(tmp_path: Path) -> None:
    with MySqlServer(OPTIONS) as server:
        server.execute(
            "CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)",
            "CREATE TABLE shop.m (id INT, b LONGBLOB) ENGINE=MyISAM", "INSERT INTO shop.t VALUES (1)",
        )  # fmt: skip
        with pytest.raises(Exception, match="max_binlog_stmt_cache_size"):
            server.execute("INSERT INTO shop.m VALUES (1, REPEAT('x', 100000))")
        server.execute("INSERT INTO shop.t VALUES (2)")
        assert server.query("SELECT COUNT(*) FROM shop.m") == [(1,)], "a row that is in no log"
        assert [event[4] for event in source_events(server)].count(INCIDENT) == 1
        options: dict[str, Any] = {
            "listen": {"canal": "127.0.0.1:0", "grpc": "127.0.0.1:0"},
            "http": {"listen": "127.0.0.1:0"},
            "destinations": {"example": {"filter": r"shop\..*", "start": "earliest", "ddl": False}},
        }
        with serving(server, tmp_path, **options) as served:
            asked = http.client.HTTPConnection(served.listening["http"], timeout=20)
            asked.request("GET", "/destinations/example/events?start=earliest")
            found = [change for _, change in events(asked.getresponse(), 3)]
            assert [(one["op"], one.get("after", {}).get("id")) for one in found] == [
                ("c", 1), ("statement", None), ("c", 2),
            ]  # fmt: skip
            assert (found[1]["sql"], found[1]["table"]) == (SAID, "")
            with RawClient(served.address) as client:
                client.subscribe()
                found = []
                while len(found) < 3:
                    batch, entries = client.get(100, 1000)
                    found += rows_of(entries)
                    client.acknowledge(batch)
                assert [one[1] for one in found] == ["shop.t", ".", "shop.t"] and found[1][2] == SAID
            with connect(served.listening["grpc"]) as reader:
                typed: list[Any] = []
                for one in reader.subscribe_table("example", "c", "shop.t"):
                    typed += one.rows.column("id").to_pylist()
                    typed += [one.statement["sql"]] if one.statement else []
                    if 2 in typed:
                        break
                assert typed[-3:] == [1, SAID, 2], "behind the statement that made the table"
            eventually(lambda: SAID[3:] in (served.folder / "stderr").read_text(), "a warning in the log")
