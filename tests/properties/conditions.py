"""Generated statements with conditions (IF EXISTS, IF NOT EXISTS, OR REPLACE) that are met or not, lists of
tables of which some exist, and statements that fail half-way."""

from __future__ import annotations

import random

TABLES = ("d.t1", "d.t2", "d.t3", "d.m1", "d.m2", "e.t1", "e.m1")
"""Pipelines of the tests capture those with a `t`."""
VIEW = "d.tv"
"""A view that stays."""
_COLUMNS = ("a", "b", "c", "x")
_TYPES = ("INT", "VARCHAR(10)", "DATE", "BIGINT UNSIGNED", "VARCHAR(5) CHARACTER SET latin1", "CHAR(3)")
_KEYS = ("k1", "k2", "k3")
_CHARSETS = ("latin1", "utf8mb4", "ascii")


class Conditions:
    """Writes statements from a seed. A server may refuse some of them."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def statement(self) -> str:
        chance = self._random
        write = chance.choices(
            (
                self._create, self._copy, self._drop, self._rename, self._alter, self._index, self._database,
                self._view, self._sequence, self._partitions, self._truncate,
            ),
            (5, 3, 3, 4, 9, 3, 2, 1, 1, 1, 1),
        )[0]  # fmt: skip
        return write()

    def _table(self) -> str:
        return self._random.choice(TABLES)

    def _maybe(self, words: str) -> str:
        return f" {words}" if self._random.random() < 0.6 else ""

    def _columns(self) -> str:
        chance = self._random
        names = chance.sample(_COLUMNS, chance.randint(1, 4))
        parts = [f"{name} {chance.choice(_TYPES)}" for name in names]
        if chance.random() < 0.6:
            parts[0] += " NOT NULL PRIMARY KEY"
        if chance.random() < 0.3:
            parts.append(f"KEY {chance.choice(_KEYS)} ({chance.choice(names)})")
        return f"({', '.join(parts)})"

    def _head(self) -> str:
        return self._random.choice(
            (
                "CREATE TABLE IF NOT EXISTS",
                "CREATE TABLE IF NOT EXISTS",
                "CREATE OR REPLACE TABLE",
                "CREATE TABLE",
            )
        )

    def _create(self) -> str:
        options = self._random.choice(("", "", " ENGINE=MyISAM", " CHARACTER SET latin1"))
        return f"{self._head()} {self._table()} {self._columns()}{options}"

    def _copy(self) -> str:
        chance = self._random
        head = f"{self._head()} {self._table()}"
        return chance.choice(
            (
                f"{head} LIKE {self._table()}",
                f"{head} SELECT * FROM {self._table()}",
                f"{head} (c INT) SELECT 1 AS z",
                f"{head} (a INT PRIMARY KEY) SELECT 1 AS a UNION ALL SELECT 1",
                f"{head} {self._columns()} SELECT 5 AS a",
            )
        )

    def _drop(self) -> str:
        chance = self._random
        names = chance.sample(TABLES, chance.randint(1, 3))
        return f"DROP TABLE{self._maybe('IF EXISTS')} {', '.join(names)}"

    def _rename(self) -> str:
        chance = self._random
        pairs = []
        for _ in range(chance.randint(1, 3)):
            old, new = chance.sample((*TABLES, "d.tmp"), 2)
            pairs.append(f"{old} TO {new}")
        if chance.random() < 0.25:
            old, new = chance.sample(TABLES, 2)
            pairs = [f"{old} TO d.tmp", f"{new} TO {old}", f"d.tmp TO {new}"]
        return f"RENAME TABLE{self._maybe('IF EXISTS')} {', '.join(pairs)}"

    def _alter(self) -> str:
        actions = [self._action() for _ in range(self._random.choice((1, 1, 2, 3)))]
        return f"ALTER TABLE{self._maybe('IF EXISTS')} {self._table()} {', '.join(actions)}"

    def _action(self) -> str:
        chance = self._random
        column, other, kind = chance.choice(_COLUMNS), chance.choice(_COLUMNS), chance.choice(_TYPES)
        key, key2 = chance.choice(_KEYS), chance.choice(_KEYS)
        known, unknown = self._maybe("IF EXISTS"), self._maybe("IF NOT EXISTS")
        place = chance.choice(("", "", " FIRST", f" AFTER {other}"))
        return chance.choice(
            (
                f"ADD COLUMN{unknown} {column} {kind}{place}",
                f"ADD{unknown} ({column} {kind}, {other} INT)",
                f"DROP COLUMN{known} {column}",
                f"DROP{known} {column}",
                f"CHANGE COLUMN{known} {column} {other} {kind}{place}",
                f"MODIFY{known} {column} {kind}{place}",
                f"ALTER COLUMN{known} {column} SET DEFAULT 5",
                f"ALTER{known} {column} DROP DEFAULT",
                f"RENAME COLUMN{known} {column} TO {other}",
                f"ADD INDEX{unknown} {key} ({column})",
                f"ADD UNIQUE{unknown} {key} ({column})",
                f"ADD UNIQUE{unknown} ({column})",
                f"ADD PRIMARY KEY{unknown} ({column})",
                f"ADD CONSTRAINT{unknown} {key} UNIQUE ({column})",
                f"ADD CONSTRAINT{unknown} c1 CHECK ({column} IS NOT NULL)",
                f"DROP CONSTRAINT{known} {chance.choice((key, 'c1', '`PRIMARY`'))}",
                f"DROP CHECK{known} c1",
                f"DROP INDEX{known} {key}",
                f"DROP KEY{known} {chance.choice((key, '`PRIMARY`'))}",
                f"DROP PRIMARY KEY{known}",
                f"DROP FOREIGN KEY{known} f1",
                f"RENAME INDEX{known} {key} TO {key2}",
                f"RENAME KEY{known} {key} TO {key2}",
                f"RENAME TO {self._table()}",
                "COMMENT 'x'",
            )
        )  # fmt: skip

    def _index(self) -> str:
        chance = self._random
        key, column = chance.choice(_KEYS), chance.choice(_COLUMNS)
        if chance.random() < 0.4:
            return f"DROP INDEX{self._maybe('IF EXISTS')} {key} ON {self._table()}"
        head = chance.choice(("CREATE INDEX IF NOT EXISTS", "CREATE OR REPLACE UNIQUE INDEX", "CREATE INDEX"))
        return f"{head} {key} ON {self._table()} ({column})"

    def _database(self) -> str:
        chance = self._random
        charset = chance.choice(("", *(f" CHARACTER SET {name}" for name in _CHARSETS)))
        return chance.choice(
            (
                f"CREATE DATABASE IF NOT EXISTS e{charset}",
                f"CREATE DATABASE e{charset}",
                f"CREATE OR REPLACE DATABASE e{charset}",
                f"ALTER DATABASE e CHARACTER SET {chance.choice(_CHARSETS)}",
                "DROP DATABASE IF EXISTS e",
                "DROP DATABASE IF EXISTS missing",
            )
        )

    def _view(self) -> str:
        chance = self._random
        return chance.choice(
            (
                f"CREATE TABLE IF NOT EXISTS {VIEW} {self._columns()}",
                f"CREATE TABLE IF NOT EXISTS {VIEW} LIKE {self._table()}",
                f"CREATE OR REPLACE VIEW {VIEW} AS SELECT 2 AS a",
                f"CREATE VIEW IF NOT EXISTS {VIEW} AS SELECT 1 AS a",
                f"DROP TABLE IF EXISTS {VIEW}, {self._table()}",
                f"DROP VIEW IF EXISTS {self._table()}, {self._table()}",
                f"ALTER TABLE IF EXISTS {VIEW} ADD COLUMN z INT",
                f"RENAME TABLE IF EXISTS d.missing TO {VIEW}",
            )
        )

    def _sequence(self) -> str:
        chance = self._random
        return chance.choice(
            (
                f"CREATE SEQUENCE IF NOT EXISTS {self._table()}",
                f"CREATE OR REPLACE SEQUENCE {self._table()}",
                f"DROP SEQUENCE IF EXISTS {self._table()}, {self._table()}",
                f"ALTER SEQUENCE IF EXISTS {self._table()} INCREMENT 2",
            )
        )

    def _partitions(self) -> str:
        chance = self._random
        table = self._table()
        part = "(PARTITION p1 VALUES LESS THAN (20))"
        return chance.choice(
            (
                f"ALTER TABLE {table} PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN (10))",
                f"ALTER TABLE {table} ADD PARTITION{self._maybe('IF NOT EXISTS')} {part}",
                f"ALTER TABLE {table} DROP PARTITION{self._maybe('IF EXISTS')} p1",
                f"ALTER TABLE {table} REMOVE PARTITIONING",
            )
        )

    def _truncate(self) -> str:
        return f"TRUNCATE TABLE {self._table()}"
