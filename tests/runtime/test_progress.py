"""How far behind a pipeline is, judged by a real source and a real receiver."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.phases import READ
from tests.sources.mysql.receiving import receiving

from penstock import config as configuration
from penstock.commands.screen import screen, summary_line
from penstock.model.offset import Offset
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.table import TableState
from penstock.runtime.progress import collect, paused_by_signal
from penstock.signals.settings import set_paused
from penstock.state import StateStore
from penstock.testing.servers import MySqlServer


def test_the_status_says_which_snapshots_a_signal_has_paused(tmp_path: Path) -> None:
    nothing = {"throttled": None, "paused_by": None}
    with closing(StateStore(tmp_path)) as state:
        for name in ("a", "b"):
            schema = TableSchema(TableId("d", name), (Column("id", "int"),), ("id",))
            state.put_table(TableState(schema, Offset(4), READ))
        set_paused(state, {"*"})
        assert paused_by_signal(state) == nothing, "there is nothing to read"
        table = state.table(TableId("d", "a"))
        assert table is not None
        state.put_table(table.read_again("asked for"))
        found = paused_by_signal(state)
        assert found["paused_by"] == "signal" and "holds up d.a; `penstock signal" in found["throttled"]
        set_paused(state, {"d.b"})
        assert paused_by_signal(state) == nothing


def test_lag_is_the_age_of_the_oldest_transaction_that_is_missing(
    mysql_factory: Callable[..., MySqlServer], tmp_path: Path
) -> None:
    server = mysql_factory()
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
    state = StateStore(tmp_path)
    with receiving(server, tmp_path) as receiver:
        receiver.wait_until_level()
        log, config = receiver.log, configuration.load(receiver.file)

        def lag() -> dict[str, Any]:
            document = collect(config, state, log)
            assert summary_line(document) and screen(document).renderables
            lag: dict[str, Any] = document["lag"]
            assert lag.pop("tables") == 0
            return lag

        state.advance(log.refresh())
        assert lag() == {"bytes": 0, "transactions": 0, "seconds": 0.0}
        before = time.time()
        server.execute("INSERT INTO d.t VALUES (1)")
        committed = time.time()
        server.execute("INSERT INTO d.t VALUES (2)")
        receiver.wait_until_level()
        asked = time.time()
        behind = lag()
        assert behind["bytes"] > 0 and behind["transactions"] == 2
        assert asked - committed - 0.01 <= behind["seconds"] <= time.time() - before + 0.01
        receiver.stop()
        assert lag()["seconds"] >= behind["seconds"]
        state.advance(log.refresh())
        assert lag() == {"bytes": 0, "transactions": 0, "seconds": None}, "nobody looks at the source"
    state.close()
