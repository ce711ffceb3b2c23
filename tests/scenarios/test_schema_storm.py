"""Many definitions change at once, under writes, while processes are killed."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pymysql
import pytest
from tests.scenarios.schema_changes import assert_history_at_the_target

from penstock.testing.meanwhile import Work, meanwhile
from penstock.testing.running import Victim
from penstock.testing.scenario import Scenario

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

Make = Callable[..., Scenario]
VICTIMS: tuple[Victim, ...] = ("receiver", "driver", "jvm")


class Shape:
    """One table as the storm has made it, so that the next statement fits."""

    def __init__(self, table: str, dice: random.Random) -> None:
        self.table = table
        self.columns = ["a", "b"]
        self._dice = dice
        self._serial = 0

    def change(self) -> str:
        """The next ALTER TABLE."""
        self._serial += 1
        column, new = self._dice.choice(self.columns), f"c{self._serial}"
        kind = self._dice.choice(("add", "add first", "drop", "rename", "swap", "widen", "text", "move"))
        if kind == "drop" and len(self.columns) > 1:
            self.columns.remove(column)
            return self._alter(f"DROP COLUMN {column}")
        if kind == "rename":
            self.columns[self.columns.index(column)] = new
            return self._alter(f"RENAME COLUMN {column} TO {new}")
        if kind == "swap" and len(self.columns) > 1:
            one, two = self._dice.sample(self.columns, 2)
            return self._alter(f"RENAME COLUMN {one} TO {two}, RENAME COLUMN {two} TO {one}")
        if kind == "widen":
            return self._alter(f"MODIFY {column} VARCHAR(60) DEFAULT 'w'")
        if kind == "text":
            return self._alter(f"MODIFY {column} TEXT")
        if kind == "move":
            return self._alter(f"MODIFY {column} VARCHAR(80) {self._dice.choice(('FIRST', 'AFTER id'))}")
        self.columns.append(new)
        place = " FIRST" if kind == "add first" else ""
        return self._alter(f"ADD COLUMN {new} VARCHAR(40) DEFAULT 'd{self._serial}'{place}")

    def _alter(self, what: str) -> str:
        return f"ALTER TABLE {self.table} {what}"


def application(case: Scenario, tables: list[str]) -> Work:
    """Writes that need no column but the key; others come by UPDATE of whatever column is there."""

    def write(ending: threading.Event) -> None:
        dice = random.Random(4711)
        with case.server.connect() as connection, connection.cursor() as cursor:
            while not ending.wait(0.005):  # the pace of the application
                table = dice.choice(tables)
                cursor.execute(f"INSERT IGNORE INTO {table} (id) VALUES ({dice.randrange(500)})")
                cursor.execute(f"DELETE FROM {table} WHERE id = {dice.randrange(500)}")
                cursor.execute(f"SHOW COLUMNS FROM {table}")
                names = [row[0] for row in cursor.fetchall() if row[0] != "id"]
                try:
                    cursor.execute(
                        f"UPDATE {table} SET {dice.choice(names)} = CONCAT('u', id) "
                        f"WHERE id > {dice.randrange(500)} LIMIT 20"
                    )
                except pymysql.err.OperationalError as error:
                    if error.args[0] != 1054:  # the column is gone meanwhile
                        raise

    return write


@pytest.mark.parametrize(("sink", "tables", "changes"), [("iceberg", 10, 100), ("delta", 3, 15)])
def test_a_storm_of_changes_under_writes_and_kill_9_ends_equal(
    scenario: Make, sink: str, tables: int, changes: int
) -> None:
    case = scenario(sink)
    dice = random.Random(1)
    shapes = [Shape(f"t{number}", dice) for number in range(tables)]
    names = [shape.table for shape in shapes]
    for name in names:
        case.server.execute(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, a VARCHAR(40), b VARCHAR(40)) CHARACTER SET utf8mb4",
            f"INSERT INTO {name} VALUES (1, 'x', 'y'), (2, NULL, 'z')",
        )
    with case.running() as pipeline:
        case.drain(pipeline)
        with meanwhile(application(case, names)):
            for number in range(changes):
                case.server.execute(dice.choice(shapes).change())
                if number % (changes // 3) == changes // 6:
                    pipeline.next_epoch(seconds=400, restart=True)
                    pipeline.kill(VICTIMS[number * 3 // changes])
                    pipeline.ensure_alive()
        status = case.drain(pipeline, restart=True)
        assert {table["status"] for table in status["tables"]} == {"live"}
        assert pipeline.stop() == 0
    case.assert_equal(*names)
    assert_history_at_the_target(case)
