"""Rows that stand in the source's log and were taken back by their transaction (ROLLBACK, ROLLBACK TO)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.relaylog import xa
from tests.sources.mysql.receiving import log_events, receiving, source_events

from penstock._core import RangeDecoder
from penstock.model.offset import LogRange
from penstock.model.schema import TableId
from penstock.sources.mysql.catalog import read_table
from penstock.testing.servers import MySql57Server

OPTIONS = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}


@pytest.mark.slow
def test_rows_that_were_taken_back_are_not_decoded_and_the_others_are(tmp_path: Path) -> None:
    with MySql57Server(OPTIONS) as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(40))")
        with receiving(server, tmp_path, span_size=2000) as receiver:
            receiver.wait_until_level()
            # MySQL 5.7 cannot take a temporary table back, so it logs the transaction and that it was undone.
            server.execute(
                "SET SESSION binlog_format = MIXED",
                "BEGIN", *(f"INSERT INTO d.t VALUES ({n}, UUID())" for n in range(60)),
                "CREATE TEMPORARY TABLE d.one (id INT)", "ROLLBACK",
                "INSERT INTO d.t VALUES (100, UUID())",
                "BEGIN", "INSERT INTO d.t VALUES (101, UUID())", "SAVEPOINT `A b`",
                "INSERT INTO d.t VALUES (102, UUID())", "CREATE TEMPORARY TABLE d.two (id INT)",
                "ROLLBACK TO `A b`", "INSERT INTO d.t VALUES (103, UUID())", "COMMIT",
                "BEGIN", "UPDATE d.t SET v = UUID() WHERE id = 100", "DROP TEMPORARY TABLE d.two", "ROLLBACK",
            )  # fmt: skip
            receiver.wait_until_level()
            assert receiver.stop() == 0
            receiver.start()  # the last transaction is not compared, or is equal
            server.execute("INSERT INTO d.t VALUES (104, 'row')")
            receiver.wait_until_level()
            assert receiver.stop() == 0
            sent = [event for event in source_events(server) if event[4] in xa.ROWS]
            kept = [event for event in log_events(receiver.log_path) if event[4] in xa.ROWS]
            assert len(sent) >= 60 and len(kept) < 10, "the source logs rows that were rolled back"
            log = receiver.log
            with server.connect() as connection:
                schema = read_table(connection, TableId("d", "t"))
            assert schema is not None
            found: dict[int, str] = {}
            for split in log.splits(LogRange(log.start, log.end), schema.table, bytes_aim=500):
                decoder = RangeDecoder(
                    schema.to_json(), split.path, split.base, split.start, split.end,
                    preamble=split.preamble,
                )  # fmt: skip
                for batch in decoder:
                    for row in batch.to_pylist():
                        if row["_change_type"] in ("insert", "update_postimage"):
                            found[row["id"]] = row["v"]
            assert sorted(found.items()) == sorted(server.query("SELECT id, v FROM d.t"))
