"""`cascades: apply`: rows that foreign keys change at the source, without row events in its log."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pymysql
import pytest

from penstock.testing import servers
from penstock.testing.running import RunningPipeline
from penstock.testing.scenario import Scenario
from penstock.testing.servers import MySqlClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = ("p", "m", "g", "line", "tree", "leaf")
CREATE = (
    "CREATE TABLE {d}.p (id INT PRIMARY KEY, code VARCHAR(20) NOT NULL, note VARCHAR(20), UNIQUE (code))",
    (
        "CREATE TABLE {d}.m (id INT PRIMARY KEY, p_id INT, note VARCHAR(20),"
        " FOREIGN KEY (p_id) REFERENCES {d}.p (id) ON DELETE CASCADE ON UPDATE CASCADE)"
    ),
    (
        "CREATE TABLE {d}.g (id INT PRIMARY KEY, m_id INT, code VARCHAR(20), note TEXT,"
        " FOREIGN KEY (m_id) REFERENCES {d}.m (id) ON DELETE CASCADE ON UPDATE CASCADE,"
        " FOREIGN KEY (code) REFERENCES {d}.p (code) ON DELETE SET NULL ON UPDATE CASCADE)"
    ),
    (
        "CREATE TABLE {d}.line (p_id INT, number INT, note VARCHAR(20), PRIMARY KEY (p_id, number),"
        " FOREIGN KEY (p_id) REFERENCES {d}.p (id) ON DELETE CASCADE ON UPDATE CASCADE)"
    ),
    (
        "CREATE TABLE {d}.tree (id INT PRIMARY KEY, up INT, p_id INT, m_id INT, note VARCHAR(20),"
        " FOREIGN KEY (up) REFERENCES {d}.tree (id) ON DELETE CASCADE,"
        " FOREIGN KEY (p_id) REFERENCES {d}.p (id) ON DELETE SET NULL ON UPDATE CASCADE,"
        " FOREIGN KEY (m_id) REFERENCES {d}.m (id) ON DELETE CASCADE ON UPDATE CASCADE)"
    ),
    (
        "CREATE TABLE {d}.leaf (id INT PRIMARY KEY, tree_id INT, note VARCHAR(20),"
        " FOREIGN KEY (tree_id) REFERENCES {d}.tree (id) ON DELETE CASCADE)"
    ),
)
EXPECTED = (1048, 1062, 1205, 1213, 1217, 1216, 1451, 1452, 1761, 1762)
"""What a random statement may meet: doubled and missing rows, deadlocks."""


def load(server: MySqlClient, database: str, rows: int) -> None:
    server.execute(*[statement.format(d=database) for statement in CREATE])
    with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
        ids = range(rows)
        at = f"INSERT INTO {database}"
        cursor.executemany(f"{at}.p VALUES (%s, %s, 'loaded')", [(n, f"Code {n}") for n in ids])
        cursor.executemany(f"{at}.m VALUES (%s, %s, 'loaded')", [(n, n // 2) for n in ids])
        cursor.executemany(
            f"{at}.g VALUES (%s, %s, %s, 'loaded')", [(n, n // 2, f"code {n // 3}") for n in ids]
        )
        cursor.executemany(f"{at}.line VALUES (%s, %s, 'loaded')", [(n // 2, n % 2) for n in ids])
        trees = [(n, (n - 1) // 2 if n % 50 else None, n // 2, n // 3, "loaded") for n in ids]
        cursor.executemany(f"{at}.tree VALUES (%s, %s, %s, %s, %s)", trees)
        cursor.executemany(f"{at}.leaf VALUES (%s, %s, 'loaded')", [(n, n // 2) for n in ids])
        connection.commit()


class Statements(threading.Thread):
    """Random statements, most of which foreign keys carry on, until `stop`. `wild`: also keys of p change,
    and with them those of line, and some sessions have no checks."""

    def __init__(self, case: Scenario, rows: int, seed: int, *, wild: bool) -> None:
        super().__init__(daemon=True)
        self._server, self._database, self._rows = case.server, case.database, rows
        self._chance = random.Random(seed)
        self._wild = wild
        self._stopping = threading.Event()
        self._failure: Exception | None = None
        self.done = 0

    def run(self) -> None:
        try:
            with self._server.connect(autocommit=False) as connection, connection.cursor() as cursor:
                while not self._stopping.wait(0.1):
                    for _ in range(self._chance.choice((1, 2, 5))):
                        self._one(cursor)
                    connection.commit() if self._chance.random() < 0.9 else connection.rollback()
        except Exception as error:
            self._failure = error

    def _one(self, cursor: Any) -> None:
        n, o = (self._chance.randrange(self._rows) for _ in range(2))
        new = self._chance.randrange(self._rows, 2 * self._rows)
        at = self._database
        choices = [
            f"DELETE FROM {at}.p WHERE id = {n}",
            f"DELETE FROM {at}.p WHERE id BETWEEN {n} AND {n} + 3",
            f"REPLACE INTO {at}.p VALUES ({n}, 'CODE {n}', 'replaced')",
            f"INSERT INTO {at}.p VALUES ({new}, 'code {new}', 'new')",
            f"INSERT INTO {at}.m VALUES ({new}, {n}, 'new')",
            f"INSERT INTO {at}.g VALUES ({new}, {o}, 'code {n}', 'new')",
            f"INSERT INTO {at}.line VALUES ({n}, {o % 7}, 'new')",
            f"INSERT INTO {at}.tree VALUES ({new}, {o}, {n}, {o}, 'new')",
            f"INSERT INTO {at}.tree VALUES ({new}, {o}, {n}, NULL, 'new'), ({new + 1}, {new}, {n}, NULL, '')",
            f"INSERT INTO {at}.leaf VALUES ({new}, {o}, 'new')",
            f"UPDATE {at}.tree SET note = 'changed' WHERE id BETWEEN {n} AND {n} + 5",
            f"UPDATE {at}.g SET note = 'changed' WHERE id BETWEEN {n} AND {n} + 5",
            f"UPDATE {at}.m SET p_id = {o} WHERE id = {n}",
            f"UPDATE {at}.tree SET up = {min(n, o)} WHERE id = {max(n, o)}",
            f"DELETE FROM {at}.tree WHERE id = {n}",
            f"DELETE FROM {at}.m WHERE id = {n}",
            f"UPDATE {at}.p SET note = 'no key changes' WHERE id < {n % 20}",
            f"UPDATE {at}.p SET code = 'code {new + self._rows}' WHERE id = {n}",
        ]
        if self._wild:
            choices += [
                f"UPDATE {at}.p SET id = {new} WHERE id = {n}",
                f"UPDATE {at}.p SET id = {n} WHERE id = {new}",
            ]
        checks = not self._wild or self._chance.random() < 0.9
        try:
            cursor.execute(f"SET foreign_key_checks = {int(checks)}")
            cursor.execute(self._chance.choice(choices))
            self.done += 1
        except pymysql.MySQLError as error:
            if error.args[0] not in EXPECTED:
                raise

    def stop(self) -> None:
        self._stopping.set()
        self.join(60)
        assert self._failure is None, self._failure
        assert not self.is_alive() and self.done > 20, self.done


@contextmanager
def changing(case: Scenario, rows: int, seed: int, *, wild: bool) -> Iterator[Statements]:
    statements = Statements(case, rows, seed, wild=wild)
    statements.start()
    try:
        yield statements
    finally:
        statements.stop()


def is_equal(case: Scenario) -> None:
    """The targets have the rows of the server, whose indexes are intact: with an index that lacks a row, the
    server leaves that row as it was when its parent changes."""
    tables = ", ".join(f"{case.database}.{table}" for table in TABLES)
    answers = case.server.query(f"CHECK TABLE {tables} EXTENDED")
    assert {answer[3] for answer in answers} == {"OK"}, f"the server itself is damaged: {answers}"
    case.assert_equal(*TABLES)


def none_is_parked(case: Scenario) -> None:
    parked = {table["table"]: table["parked"] for table in case.status()["tables"] if table["parked"]}
    assert not parked, parked


@pytest.mark.slow  # tests/cascades and tests/properties/test_cascades.py have quick ones
def test_what_foreign_keys_change_is_changed_at_the_target(scenario: Callable[..., Scenario]) -> None:
    case = scenario(cascades="apply")
    load(case.server, case.database, 60)
    at = case.database
    with case.running() as pipeline:
        case.drain(pipeline)
        case.server.execute(
            f"DELETE FROM {at}.p WHERE id = 1",  # m and line go, g with m; code becomes NULL in g
            f"UPDATE {at}.p SET id = 100 WHERE id = 5",  # m and line follow, line with its key
            f"UPDATE {at}.line SET note = 'after it moved' WHERE p_id = 100 AND number = 1",
            f"UPDATE {at}.p SET code = 'other' WHERE id = 6",
            f"DELETE FROM {at}.p WHERE id = 8",
            f"INSERT INTO {at}.p VALUES (8, 'code 8', 'again')",
            f"INSERT INTO {at}.m VALUES (16, 8, 'again')",
            f"INSERT INTO {at}.line VALUES (8, 0, 'again')",
            "SET foreign_key_checks = 0",
            f"DELETE FROM {at}.p WHERE id = 9",  # nothing follows
            f"UPDATE {at}.p SET id = 101 WHERE id = 11",
            "SET foreign_key_checks = 1",
            f"DELETE FROM {at}.p WHERE id BETWEEN 15 AND 20",
            f"DELETE FROM {at}.tree WHERE id = 3",  # 7, 8, 15 to 18, 31 to 38 go, with their leaves
            f"INSERT INTO {at}.tree VALUES (3, 2, NULL, NULL, 'again'), (7, 3, 2, NULL, 'again')",
            f"INSERT INTO {at}.tree VALUES (200, 7, NULL, NULL, 'new'), (201, 200, NULL, 50, 'new')",
            f"DELETE FROM {at}.tree WHERE id = 7",
        )
        case.drain(pipeline)
        assert pipeline.stop() == 0
    none_is_parked(case)
    is_equal(case)
    assert not list((case.folder / "state" / "cascades").glob("*")), "folders that nobody needs are left"


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("sink", ["iceberg", "delta"])
@pytest.mark.parametrize("flavor", ["mysql80", "mariadb118"])  # MariaDB 10.11.5 has the bug MDEV-30531
def test_tables_are_read_and_followed_while_foreign_keys_change_them(
    flavor: str, sink: str, spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    rows = 2000
    with servers.FLAVORS[flavor]() as server:
        server.execute("CREATE DATABASE shop")
        options = {"cascades": "apply", "snapshot": {"chunk_rows": 150, "parallel": 1}}
        case = Scenario(server, "shop", tmp_path, spark, lake_root, sink, options)
        load(server, "shop", rows)
        with case.running() as pipeline:
            with changing(case, rows, 1, wild=False), changing(case, rows, 2, wild=False):
                pipeline.wait_until(
                    lambda s: s["snapshot"]["done"] and s["epoch"] > 3, "the snapshot", seconds=600
                )
            with changing(case, rows, 3, wild=True):
                some_epochs(pipeline, 5)
            case.drain(pipeline)
            assert pipeline.stop() == 0
        none_is_parked(case)
        is_equal(case)


def some_epochs(pipeline: RunningPipeline, count: int, *, restart: bool = False) -> None:
    now = pipeline.latest.get("epoch", 0)
    pipeline.wait_until(lambda s: s["epoch"] >= now + count, f"{count} epochs", seconds=900, restart=restart)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_driver_killed_in_the_midst_of_cascades_loses_and_doubles_nothing(
    scenario: Callable[..., Scenario], seed: int
) -> None:
    case = scenario(cascades="apply", snapshot={"chunk_rows": 150})
    chance, rows = random.Random(seed), 1000
    load(case.server, case.database, rows)
    with case.running() as pipeline:
        case.drain(pipeline)
        with changing(case, rows, seed, wild=True):
            for _ in range(5):
                some_epochs(pipeline, 2, restart=True)
                threading.Event().wait(chance.uniform(0, 4))  # the random moment itself
                pipeline.kill(chance.choice(("driver", "jvm")))
        case.drain(pipeline, restart=True)
        assert pipeline.kills
        pipeline.stop()
    none_is_parked(case)
    is_equal(case)


@pytest.mark.slow
def test_a_table_whose_parent_is_not_followed_is_parked_and_says_so(
    scenario: Callable[..., Scenario],
) -> None:
    case = scenario(cascades="apply")
    load(case.server, case.database, 10)
    case.write_file(tables=[f"{case.database}.m"])
    done = case.command("run", "--once")
    assert done.returncode == 4
    assert f"does not follow {case.database}.p" in done.stderr and "resnapshot" in done.stderr


SAKILA = {
    "country": (),
    "city": ("country",),
    "address": ("city",),
    "staff": ("store", "address"),
    "store": ("staff", "address"),
    "customer": ("address", "store"),
    "film": (),
    "inventory": ("film", "store"),
    "rental": ("inventory", "customer", "staff"),
    "payment": ("customer", "staff", "rental"),
}
"""Tables of MySQL's sample database, and the tables that they refer to, in the order in which it has rows for
them. Two of them refer to each other."""


def load_sakila(server: MySqlClient, database: str, rows: int) -> None:
    for table, parents in SAKILA.items():
        columns = "".join(f", {parent}_id INT" for parent in parents)
        keys = "".join(
            f", FOREIGN KEY ({parent}_id) REFERENCES {database}.{parent} (id)"
            " ON DELETE RESTRICT ON UPDATE CASCADE"
            for parent in parents
        )
        ones = ", ".join(f"({n}{f', {n}' * len(parents)})" for n in range(rows))
        server.execute(
            "SET foreign_key_checks = 0",
            f"CREATE TABLE {database}.{table} (id INT PRIMARY KEY{columns}{keys})",
            f"INSERT INTO {database}.{table} VALUES {ones}",
        )


@pytest.mark.slow  # tests/properties/test_waiting.py is quick
def test_tables_behind_a_circle_of_keys_are_parked_and_are_read_once_it_is_undone(
    scenario: Callable[..., Scenario],
) -> None:
    case = scenario(cascades="apply", snapshot={"chunk_rows": 60})
    load_sakila(case.server, case.database, 200)
    behind = {"staff", "store", "customer", "inventory", "rental", "payment"}
    done = case.command("run", "--once")
    assert done.returncode == 4 and "6 of 10 tables are parked; the others are up to date." in done.stderr
    status = case.status()
    states = {one["table"].split(".")[1]: one for one in status["tables"]}
    assert {name for name, one in states.items() if one["status"] == "parked"} == behind
    assert status["lag"]["tables"] == 6 and status["snapshot"]["done"]
    assert states["rental"]["waits_for"]["who"] == "operator" and states["city"]["waits_for"] is None
    case.assert_equal(*(SAKILA.keys() - behind))

    [(name,)] = case.server.query(
        "SELECT CONSTRAINT_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = "
        f"'{case.database}' AND TABLE_NAME = 'store' AND REFERENCED_TABLE_NAME = 'staff'"
    )
    at = f"{case.database}.store"
    case.server.execute(f"ALTER TABLE {at} DROP FOREIGN KEY {name}")
    hint = f"penstock resnapshot FILE {case.database}.staff {at}"
    assert hint in states["store"]["parked"]["hint"]
    assert case.command("resnapshot", *hint.split()[3:]).returncode == 0
    done = case.command("run", "--once")
    assert done.returncode == 0, done.stderr
    assert case.status()["lag"]["tables"] == 0
    case.assert_equal(*SAKILA)
