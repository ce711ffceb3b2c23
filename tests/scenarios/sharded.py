"""Four tables in two databases that are one table at the target, who writes to them, and who judges."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pymysql

from penstock.testing import oracle
from penstock.testing.scenario import Scenario
from penstock.testing.servers import MySqlClient

# Each in another shape; keys are the same numbers in all.
TABLES = {
    "_1.orders_1": "id INT PRIMARY KEY, customer VARCHAR(20), amount INT, note TEXT",
    "_1.orders_2": "id BIGINT UNSIGNED PRIMARY KEY, amount BIGINT, Customer VARCHAR(40), `odd.name``d` INT",
    "_2.orders_1": "id INT PRIMARY KEY, customer CHAR(20), amount INT UNSIGNED, price DECIMAL(8,2),"
    " at DATETIME, ratio FLOAT",
    "_2.orders_2": "id MEDIUMINT PRIMARY KEY, customer VARCHAR(20), price DECIMAL(12,4), at DATETIME(6),"
    " ratio DOUBLE, amount TINYINT",
}
ROWS = 300


def shape(case: Scenario, **options: Any) -> None:
    """The tables with their rows, and the pipeline file."""
    for name, columns in TABLES.items():
        database = case.database + name.split(".")[0]
        case.server.execute(
            f"CREATE DATABASE IF NOT EXISTS `{database}`", f"CREATE TABLE {case.database}{name} ({columns})"
        )
        with case.server.connect(autocommit=False) as connection, connection.cursor() as cursor:
            for number in range(ROWS):
                insert(
                    cursor, f"{case.database}{name}", columns_of(case.server, case.database + name), number
                )
            connection.commit()
    rule = {"tables": f"{case.database}_*.orders_*", "into": f"{case.database}.orders"}
    case.options |= {"tables": [f"{case.database}_*.*"], "merge_shards": [rule], **options}
    case.write_file()


def drop(case: Scenario) -> None:
    for number in (1, 2):
        case.server.execute(f"DROP DATABASE IF EXISTS `{case.database}_{number}`")


def columns_of(server: MySqlClient, table: str) -> dict[str, str]:
    return {column.name: column.type for column in oracle.columns_of(server, table)}


def value(name: str, kind: str, number: int) -> Any:
    if name == "id":
        return number
    if kind in ("varchar", "char", "text"):
        return f"{name} {number}"
    if kind in ("datetime",):
        return f"2024-02-29 12:00:{number % 60:02d}.123456"
    if kind in ("float", "double"):
        return number / 8
    return number % 100


def insert(cursor: Any, table: str, columns: dict[str, str], number: int) -> None:
    names = ", ".join("`" + name.replace("`", "``") + "`" for name in columns)
    places = ", ".join(["%s"] * len(columns))
    values = [value(name, kind, number) for name, kind in columns.items()]
    cursor.execute(f"INSERT IGNORE INTO {table} ({names}) VALUES ({places})", values)


EXPECTED = (1049, 1054, 1136, 1146, 1205, 1213, 1412)
"""What a writer may meet while others drop, rename and change tables."""


@contextmanager
def writes(case: Scenario, tables: Callable[[], Iterable[str]], seed: int = 1) -> Iterator[None]:
    """Inserts, updates and deletes in all shards while the block lasts."""
    stop = threading.Event()
    errors: list[BaseException] = []

    def write() -> None:
        chance = random.Random(seed)
        try:
            with case.server.connect() as connection, connection.cursor() as cursor:
                while not stop.wait(0.05):  # the writer's pace
                    table, key = chance.choice(list(tables())), chance.randrange(ROWS + 200)
                    try:
                        act(cursor, case.server, table, key, chance.randrange(4))
                    except (pymysql.err.MySQLError, LookupError) as error:
                        if isinstance(error, pymysql.err.MySQLError) and error.args[0] not in EXPECTED:
                            raise
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not errors, errors


def act(cursor: Any, server: MySqlClient, table: str, key: int, what: int) -> None:
    if what == 0:
        insert(cursor, table, columns_of(server, table), key)
    elif what == 1:
        cursor.execute(f"DELETE FROM {table} WHERE id = {key}")
    else:
        cursor.execute(f"UPDATE {table} SET customer = 'changed {key} {what}' WHERE id >= {key} LIMIT 3")


def difference(case: Scenario, shards: Iterable[str]) -> str:
    """Empty if the target holds just what the server's own SELECT over all `shards` gives: their rows
    with the name of each, NULL for columns that it does not have."""
    frame = case.target("orders")
    names = [name for name in frame.columns if not name.startswith("_")]
    selects = []
    for shard in shards:
        held = {name.lower(): name for name in columns_of(case.server, shard)}
        values = ["NULL" if name.lower() not in held else f"`{name.replace('`', '``')}`" for name in names]
        unknown = held.keys() - {name.lower() for name in names}
        assert not unknown, f"{shard} has {unknown}, the target {names}"
        selects.append(f"SELECT '{shard}', {', '.join(values)} FROM {shard}")
    expected = [plain(row) for select in selects for row in case.server.query(select)]
    quoted = ["`" + name.replace("`", "``") + "`" for name in names]
    found = [plain(tuple(row)) for row in frame.select("_shard", *quoted).collect()]
    return oracle.compare(expected, found)


def plain(row: tuple[Any, ...]) -> Any:
    """Numbers that are equal are the same text, whatever type they have."""
    return tuple(
        format(value.normalize(), "f") if hasattr(value, "normalize")
        else str(int(value)) if isinstance(value, float) and value.is_integer()
        else str(value) if value is not None else None
        for value in row
    )  # fmt: skip


def counts(case: Scenario) -> Counter[str]:
    return Counter(str(row[0]) for row in case.target("orders").select("_shard").collect())
