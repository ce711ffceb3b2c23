"""What operators and applications do to a pipeline meanwhile: definitions change, signals are sent."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from penstock.runtime.pipeline import Pipeline

LOCK_SECONDS = 20


class Definitions:
    """Changes definitions so that the writer of the shop can go on: columns come and go where it inserts no
    rows, other columns widen, and there is a table beside the shop that anything may happen to.

    `defaults`: new columns may have one. A change log shows it in later changes only (docs/delivery.md), so
    its last state is not the table then."""

    kinds: tuple[str, ...] = ("INT DEFAULT 7", "VARCHAR(20) DEFAULT 'new'", "DECIMAL(9, 2)")
    widen = "ALTER TABLE items MODIFY COLUMN comment VARCHAR({}) NULL"
    rename = "RENAME TABLE {} TO {}"

    def __init__(self, source: Any, dice: random.Random, *, defaults: bool) -> None:
        self._source, self._dice, self._defaults = source, dice, defaults
        self._added: list[str] = []
        self._made = 0
        self._width = 60
        self._other = ""

    def change(self) -> str:
        statements = self._dice.choice(self._changes())()
        self._run(statements)
        return "; ".join(statements)

    def _changes(self) -> tuple[Callable[[], list[str]], ...]:
        return (self._add_column, self._add_column, self._drop_column, self._widen, self._other_table)

    def _run(self, statements: list[str]) -> None:
        with self._source.server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"USE {self._source.namespace}")
            cursor.execute(f"SET lock_wait_timeout = {LOCK_SECONDS}")
            for statement in statements:
                cursor.execute(statement)

    def _add_column(self) -> list[str]:
        self._made += 1
        self._added.append(f"added_{self._made}")
        kind = self._dice.choice(self.kinds)
        kind = kind if self._defaults else kind.partition(" DEFAULT")[0]
        return [f"ALTER TABLE customers ADD COLUMN {self._added[-1]} {kind}"]

    def _drop_column(self) -> list[str]:
        if not self._added:
            return self._add_column()
        return [f"ALTER TABLE customers DROP COLUMN {self._added.pop()}"]

    def _widen(self) -> list[str]:
        self._width += 10
        return [self.widen.format(self._width)]

    def _other_table(self) -> list[str]:
        self._made += 1
        name, old = f"other_{self._made}", self._other
        if old and self._dice.random() < 0.6:
            rows = f"INSERT INTO {old} SELECT id + 100, 'again' FROM {old} WHERE id < 100"
            change = self._dice.choice(
                (f"TRUNCATE TABLE {old}", self.rename.format(old, name), f"DROP TABLE {old}")
            )
            self._other = name if "RENAME" in change else "" if "DROP" in change else old
            return [f"DELETE FROM {old} WHERE id > 100", rows, change]
        self._other = name
        return [
            f"CREATE TABLE {name} (id INT PRIMARY KEY, v VARCHAR(40))",
            f"INSERT INTO {name} VALUES (1, 'one'), (2, 'two'), (3, 'three')",
            f"UPDATE {name} SET v = 'zwei' WHERE id = 2",
            f"DELETE FROM {name} WHERE id = 1",
        ]


class Signals:
    """Sends signals by the state, as `penstock signal` does."""

    def __init__(self, file: Any, database: str, sink: str, dice: random.Random) -> None:
        self._file, self._database, self._dice = file, database, dice
        self._fresh = sink != "parquet"
        self._parked: list[str] = []

    def send(self, kind: str, data: dict[str, Any]) -> str:
        Pipeline.load(self._file).signal(kind, data)
        return f"{kind} {data}"

    def any(self) -> str:
        dice = self._dice
        table = f"{self._database}.{dice.choice(('orders', 'items', 'customers', 'products'))}"
        choice = dice.randrange(6 if self._fresh else 5)
        if choice == 0:
            return self.send("execute-snapshot", {"data-collections": [table]})
        if choice == 1:
            low = dice.randrange(1, 500)
            part = {"data-collections": [f"{self._database}.orders"], "from": [low], "to": [low + 700]}
            return self.send("execute-snapshot", part)
        if choice == 2:
            keys = [[dice.randrange(1, 900)] for _ in range(5)]
            part = {"data-collections": [f"{self._database}.customers"], "keys": keys}
            return self.send("execute-snapshot", part)
        if choice == 3:
            said = self.send("pause-snapshot", {})
            return f"{said}, {self.send('resume-snapshot', {})}"
        if choice == 4:
            return self.send("set-limits", {"parallel": dice.randint(1, 3)})
        return self.send("execute-snapshot", {"data-collections": [table], "target": "recreate"})

    def park(self) -> str:
        table = f"{self._database}.{self._dice.choice(('orders', 'items', 'products'))}"
        self._parked.append(table)
        return self.send("park", {"tables": [table], "reason": "chaos"})

    def unpark(self) -> str:
        return self.send("unpark", {"tables": self._parked})


def pause(dice: random.Random, low: float, high: float) -> None:
    """The pace of a fault that lasts."""
    time.sleep(dice.uniform(low, high))
