"""What happens to a pipeline under load: each happening of `events.py`, done."""

from __future__ import annotations

import json
import random
import time
from typing import Any

from typing_extensions import assert_never

from bench.soak.events import Happening
from penstock.runtime.pipeline import Pipeline
from penstock.testing.running import RunningPipeline, Victim
from penstock.testing.servers import MySqlServer

ADDED = "added"
"""The database of the tables that are added."""
KILL_SECONDS_MAX = 30.0
"""A receiver that is just being started can be killed so much later."""
LOCK_SECONDS_MAX = 60


class Operator:
    """Says what was done, in words. What is chosen follows from the seed and from what was done before."""

    def __init__(self, server: MySqlServer, pipeline: RunningPipeline, seed: int) -> None:
        self.added: list[str] = []
        self._server = server
        self._pipeline = pipeline
        self._chosen = random.Random(f"operator {seed}")
        self._columns: list[str] = []
        self._columns_made = 0
        self._width = 60

    def does(self, what: Happening) -> str:
        match what:
            case "kill driver":
                return self._kill("driver")
            case "kill receiver":
                return self._kill("receiver")
            case "definition":
                return self._change_definition()
            case "read part":
                return self._read_part()
            case "pause":
                return self._pause()
            case "add table":
                return self._add_table()
        assert_never(what)

    def _kill(self, victim: Victim) -> str:
        deadline = time.monotonic() + KILL_SECONDS_MAX
        while not (killed := self._pipeline.kill(victim)) and time.monotonic() < deadline:
            time.sleep(0.2)  # polls a condition, with a limit
        if victim == "driver":
            self._pipeline.ensure_alive()
        return f"kill -9 of the {victim}" if killed else f"no {victim} to kill"

    def _change_definition(self) -> str:
        """Of tables into which the writer puts no rows as they are columns come and go; others widen."""
        if self._chosen.random() < 0.4:
            self._width += 10
            sql = f"ALTER TABLE shop.items MODIFY COLUMN comment VARCHAR({self._width}) NULL"
        elif self._columns and self._chosen.random() < 0.4:
            sql = f"ALTER TABLE shop.customers DROP COLUMN {self._columns.pop()}"
        else:
            self._columns_made += 1
            self._columns.append(f"soak_{self._columns_made}")
            kind = self._chosen.choice(["INT DEFAULT 7", "VARCHAR(20) DEFAULT 'new'", "DECIMAL(9, 2)"])
            sql = f"ALTER TABLE shop.customers ADD COLUMN {self._columns[-1]} {kind}"
        self._server.execute(f"SET lock_wait_timeout = {LOCK_SECONDS_MAX}", sql)
        return sql

    def _read_part(self) -> str:
        low = self._chosen.randrange(1, 2000)
        high = low + self._chosen.randrange(1, 5000)
        return self._signal(
            "execute-snapshot", {"data-collections": ["shop.orders"], "from": [low], "to": [high]}
        )

    def _pause(self) -> str:
        said = self._signal("pause-snapshot", {})
        time.sleep(self._chosen.uniform(0.5, 3))
        return f"{said}; {self._signal('resume-snapshot', {})}"

    def _add_table(self) -> str:
        """Rows before the signal, and changes after it."""
        name = f"{ADDED}.table_{len(self.added)}"
        self._server.execute(
            f"CREATE DATABASE IF NOT EXISTS {ADDED}",
            f"CREATE TABLE {name} (id INT PRIMARY KEY, v VARCHAR(40))",
            f"INSERT INTO {name} VALUES (1, 'one'), (2, 'two'), (3, 'three')",
        )
        self.added.append(name)
        said = self._signal("add-table", {"tables": [name]})
        self._server.execute(f"INSERT INTO {name} VALUES (4, 'four')", f"DELETE FROM {name} WHERE id = 1")
        return said

    def _signal(self, kind: str, data: dict[str, Any]) -> str:
        Pipeline.load(self._pipeline.file).signal(kind, data)
        return f"signal {kind} {json.dumps(data)}"
