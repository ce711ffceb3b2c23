"""`scan_span`: the index entry of a part of the log, from its events."""

from __future__ import annotations

import json
from collections.abc import Callable

from penstock import _core
from penstock.testing.servers import MySqlServer


def test_a_span_that_begins_between_two_row_events_of_a_transaction_is_counted(
    mysql_factory: Callable[..., MySqlServer],
) -> None:
    server = mysql_factory(binlog_row_event_max_size=256)
    server.execute(
        "CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, note CHAR(100))", "FLUSH LOGS"
    )
    values = ", ".join(f"({number}, REPEAT('x', 100))" for number in range(20))
    server.execute(f"INSERT INTO shop.t VALUES {values}")
    file, end = server.position()
    events = [
        (str(row[2]), int(row[1]), int(row[4])) for row in server.query(f"SHOW BINLOG EVENTS IN '{file}'")
    ]
    rows = [event for event in events if event[0] == "Write_rows"]
    assert len(rows) > 4
    gtid, table_map = (
        next(event[1] for event in events if event[0] == kind) for kind in ("Gtid", "Table_map")
    )
    middle = rows[2][1]
    path = str(server.binlog_files()[-1])

    entry = json.loads(_core.scan_span(path, 0, middle, end, open=[gtid, table_map]))

    size = sum(stop - start for _, start, stop in rows[2:])
    assert entry["tables"] == {"shop.t": [len(rows) - 2, size]}
    assert (entry["start"], entry["end"], entry["committed"]) == (middle, end, end)
    assert entry["transactions"] == 1
    assert entry["executed"] == f"{server.variable('server_uuid')}:3"
