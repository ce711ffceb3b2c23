"""The source of the placement model: a binary log, and what becomes visible and executed when.

Transaction i ends at offset i. Transactions that touch the same row, and DDL, wait for each other; all
others become visible, and enter `gtid_executed`, in any order.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
KEYS = 6

Row = tuple[int, int]
"""Value, and the schema version the row was written with."""


@dataclass
class Transaction:
    """Changes of one table: (key before, key after); or a DDL. Stage: 0 in the log, 1 visible, 2 executed."""

    table: str
    changes: list[tuple[int | None, int | None]]
    ddl: str = ""
    stage: int = 0

    @property
    def keys(self) -> set[int]:
        return {key for change in self.changes for key in change if key is not None}


def apply(rows: dict[int, Row], number: int, transaction: Transaction, version: int) -> None:
    """Brings a table's rows on by one transaction; `version` is the schema's after it."""
    if transaction.ddl == "truncate":
        rows.clear()
    if transaction.ddl == "alter":
        for key, row in rows.items():
            rows[key] = (row[0], version)
    for before, after in transaction.changes:
        if before is not None:
            rows.pop(before, None)
        if after is not None:
            rows[after] = (number, version)


class Source:
    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.log: list[Transaction] = []
        self.in_order = dice.random() < 0.3
        self.ddl_share = 0.06

    def state(self, table: str, numbers: range | list[int]) -> dict[int, Row]:
        rows: dict[int, Row] = {}
        version = 1
        for number in numbers:
            transaction = self.log[number - 1]
            if transaction.table == table:
                version += transaction.ddl == "alter"
                apply(rows, number, transaction, version)
        return rows

    def upto(self, table: str, end: int) -> dict[int, Row]:
        return self.state(table, range(1, end + 1))

    def version(self, table: str, end: int) -> int:
        return 1 + sum(item.table == table and item.ddl == "alter" for item in self.log[:end])

    def at_least(self, stage: int) -> list[int]:
        return [number for number, item in enumerate(self.log, 1) if item.stage >= stage]

    def in_ddl(self, table: str) -> bool:
        return any(item.ddl and item.stage == 0 and item.table == table for item in self.log)

    def write(self, table: str) -> None:
        if self.in_ddl(table):
            return
        pending = [item for item in self.log if item.table == table and item.stage == 0]
        if self.dice.random() < self.ddl_share:
            if not pending:  # a DDL waits for the others and excludes them
                self.log.append(Transaction(table, [], self.dice.choice(["truncate", "alter"])))
            return
        rows = set(self.upto(table, len(self.log)))
        free = set(range(KEYS)) - {key for item in pending for key in item.keys}
        changes: list[tuple[int | None, int | None]] = []
        for _ in range(self.dice.choice((1, 1, 2, 3))):
            if not free:
                break
            key = self.dice.choice(sorted(free))
            free.discard(key)
            if key not in rows:
                changes.append((None, key))
                continue
            elsewhere = sorted(free - rows)
            kind = self.dice.random()
            if kind < 0.3:
                changes.append((key, None))
            elif kind < 0.55 and elsewhere:
                other = self.dice.choice(elsewhere)
                free.discard(other)
                changes.append((key, other))
            else:
                changes.append((key, key))
        if changes:
            self.log.append(Transaction(table, changes))

    def truncate(self, table: str) -> None:
        """As soon as nobody writes to it."""
        if not any(item.table == table and item.stage == 0 for item in self.log):
            self.log.append(Transaction(table, [], "truncate"))

    def advance(self, everything: bool = False) -> None:
        """Some transaction becomes visible, or executed."""
        moving = [item for item in self.log if item.stage < 2]
        if everything:
            for item in moving:
                item.stage = 2
        elif moving:
            chosen = moving[0] if self.in_order else self.dice.choice(moving)
            chosen.stage += 1


class Replica:
    """Replicates from the source. What it has received it makes visible, and then executed, in any order that
    keeps transactions of the same row, and DDL, in theirs."""

    def __init__(self, dice: random.Random, source: Source) -> None:
        self.dice = dice
        self.source = source
        self.received: set[int] = set()
        """Since its relay log was emptied last."""
        self.visible: set[int] = set()
        self.executed: set[int] = set()

    def advance(self, everything: bool = False) -> None:
        steps = [self._receive, self._commit, self._execute]
        if everything:
            known = -1
            while known != (known := len(self.received) + len(self.visible) + len(self.executed)):
                for step in steps:
                    step()
        elif self.dice.random() < 0.03:
            self.executed |= self.visible  # the appliers are stopped, then the relay log is emptied
            self.received.clear()
        else:
            self.dice.choice(steps)()

    def _receive(self) -> None:
        missing = set(range(1, len(self.source.log) + 1)) - self.received - self.executed
        if missing:
            self.received.add(min(missing))

    def _commit(self) -> None:
        log = self.source.log
        free = [
            number
            for number in self.received - self.visible
            if not any(
                other not in self.visible and _depend(log[other - 1], log[number - 1])
                for other in range(1, number)
            )
        ]
        if free:
            self.visible.add(self.dice.choice(sorted(free)))

    def _execute(self) -> None:
        if moving := sorted(self.visible - self.executed):
            self.executed.add(self.dice.choice(moving))


def _depend(one: Transaction, other: Transaction) -> bool:
    return one.table == other.table and bool(one.ddl or other.ddl or one.keys & other.keys)


def gtid_set(numbers: list[int]) -> str:
    """As the server prints it."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return UUID + "".join(f":{a}-{b}" if a != b else f":{a}" for a, b in parts) if parts else ""


def parse_gtid_set(text: str) -> set[int]:
    numbers: set[int] = set()
    for part in text.split(":")[1:]:
        first, _, last = part.partition("-")
        numbers |= set(range(int(first), int(last or first) + 1))
    return numbers
