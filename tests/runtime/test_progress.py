"""How far behind a pipeline is, judged by a real source and a real receiver."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.sources.mysql.receiving import receiving

from penstock import config as configuration
from penstock.commands.screen import screen, summary_line
from penstock.runtime.progress import collect
from penstock.state import StateStore
from penstock.testing.servers import MySqlServer


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
