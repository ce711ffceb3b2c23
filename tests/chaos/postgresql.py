"""A PostgreSQL server as the source of a seed: its shop, what operators do to it, and its own judge."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.chaos.operations import LOCK_SECONDS, Definitions
from tests.chaos.schedule import Schedule
from tests.scenarios.postgresql import compared, source_rows

from penstock.testing import postgresql_shop
from penstock.testing.postgresql_shop import PostgreSqlWriter, connected, connected_when_ready
from penstock.testing.servers.base import _copy_sparse
from penstock.testing.servers.postgresql import PostgreSqlServer
from penstock.testing.servers.postgresql_standby import PostgreSqlStandby
from penstock.testing.workload import Shop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "public"
SLOT = "penstock_chaos"
LOSES_COMMITS = {"synchronous_commit": "off", "wal_writer_delay": "10s"}
"""A server that loses what it has confirmed, when it is killed; it never tells a reader of its log of it."""


STANDBY = "standby"
"""The slot by which the primary keeps its log for the standby. No receiver gets what the standby lacks."""
FOLLOWING = {
    "primary_slot_name": STANDBY, "hot_standby_feedback": "on", "wal_receiver_status_interval": "1s",
    "wal_retrieve_retry_interval": "200ms", "sync_replication_slots": "on", "synchronized_standby_slots": "",
}  # fmt: skip
COPY_SECONDS = 120.0
"""How long a standby may take until it has a copy of the pipeline's slot."""


class PostgreSqlSource:
    """`dice`: decides whether commits wait for the disk. `replicated`: with a standby."""

    namespace = SCHEMA
    pattern = f"{SCHEMA}.*"

    highest: dict[str, int] = {}  # noqa: RUF012 (only change logs are judged by it)

    def __init__(self, dice: random.Random, *, replicated: bool = False) -> None:
        settings = {**postgresql_shop.SETTINGS, **(LOSES_COMMITS if dice.random() < 0.5 else {})}
        self._stack = ExitStack()
        self.server = self._stack.enter_context(PostgreSqlServer(settings=settings))
        self.standby: PostgreSqlStandby | None = None
        if replicated:
            self._replicate()

    def _replicate(self) -> None:
        self.query(f"SELECT pg_create_physical_replication_slot('{STANDBY}', true)")
        self.standby = self._stack.enter_context(PostgreSqlStandby(self.server, settings=FOLLOWING))
        self.query(f"ALTER SYSTEM SET synchronized_standby_slots = '{STANDBY}'")
        self.query("SELECT pg_reload_conf()")

    def close(self) -> None:
        self._stack.close()

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        with connected_when_ready(self.server) as sql:
            cursor = sql.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def load(self, shop: Shop) -> None:
        postgresql_shop.load(self.server, shop)
        self.query("CREATE TABLE ledger (id int PRIMARY KEY, v varchar(20))")
        self.query("INSERT INTO ledger VALUES (0, 'first')")

    def section(self, port: int) -> dict[str, Any]:
        host: Any = self.server.host
        if self.standby is not None:
            host = [f"{host}:{port}", f"{self.standby.host}:{self.standby.port}"]
        return {
            "type": "postgresql", "host": host, "port": port, "user": self.server.user,
            "password": self.server.password, "database": self.server.database,
            "publication": postgresql_shop.PUBLICATION, "slot": SLOT,
            "connect_timeout": "5s", "reconnect_max": "2s",
        }  # fmt: skip

    def definitions(self, dice: random.Random, *, defaults: bool) -> PostgreSqlDefinitions:
        return PostgreSqlDefinitions(self, dice, defaults=defaults)

    def writer(self, shop: Shop, schedule: Schedule) -> AbstractContextManager[Any]:
        self._writer = PostgreSqlWriter(self.server, shop, rate=schedule.settings.rate, seed=schedule.seed)
        return self._writer

    def insert(self, table: str, rows: list[tuple[int, str]]) -> None:
        """Each row in a transaction of its own."""
        with connected(self.server) as sql:
            for number, text in rows:
                sql.execute(f"INSERT INTO {table} VALUES ({number}, '{text}')".encode())

    def tables(self) -> list[str]:
        found = self.query("SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace "
                           "AND relkind = 'r' ORDER BY 1")  # fmt: skip
        return [str(name) for (name,) in found]

    def end(self) -> int:
        """Where the log ends, with a commit there: only that tells the receiver."""
        self.query("SELECT pg_logical_emit_message(true, 'chaos', '')")
        return int(self.query("SELECT pg_current_wal_insert_lsn() - '0/0'")[0][0])

    def drain(self, service: Any, *, seconds: float) -> None:
        goal = self.end()
        # Commits need not wait for the disk, but the log is sent from there.
        self.query("SET synchronous_commit = on; SELECT pg_logical_emit_message(true, 'chaos', '')")
        reached = partial(postgresql_shop.has_reached, goal=goal)
        service.drained_to(reached, f"LSN {goal:X}", seconds=seconds, restart=True)

    def has_received(self, status: dict[str, Any], goal: int) -> bool:
        return int((status.get("position") or {}).get("position") or 0) >= goal

    def activity(self) -> list[str]:
        columns = "pid, backend_type, state, wait_event_type, wait_event, left(query, 200)"
        return [str(row) for row in self.query(f"SELECT {columns} FROM pg_stat_activity")]

    # its end ------------------------------------------------------------------------------------------------

    def purge(self, write: Callable[[], None]) -> str:
        """`write`: changes rows. What an operator does who wants the disk back."""
        self.query("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
        write()
        return "dropped the slot"

    def copy_to(self, folder: Path) -> None:
        self.server.stop()
        shutil.copytree(self.server.folder / "data", folder, copy_function=_copy_sparse)
        self.server.start()

    def restore(self, folder: Path) -> None:
        self.server.kill9()
        data = self.server.folder / "data"
        shutil.rmtree(data)
        shutil.move(folder, data)
        data.chmod(0o700)
        self.server.start()

    def fail_over(self, until: Callable[[Callable[[], bool], float], bool]) -> bool:
        """The primary dies, and the standby takes its place, with or without the last commits. False: the
        standby got no copy of the slot."""
        standby = self.standby
        assert standby is not None
        copied = f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{SLOT}' AND synced AND NOT temporary"
        with connected(standby) as sql:
            if not until(lambda: sql.execute(copied.encode()).fetchone() is not None, COPY_SECONDS):
                return False
            self.server.kill9()
            sql.execute("SELECT pg_promote()")
        self.server = self._writer.server = standby
        return True

    # the judge ----------------------------------------------------------------------------------------------

    def rows_differ(self, table: str, frame: DataFrame) -> str:
        with connected_when_ready(self.server) as sql:
            columns, wanted = source_rows(sql, SCHEMA, table)
        if lacking := [column.name for column in columns if column.name not in frame.columns]:
            return f"{table}: the target lacks the columns {lacking}"
        found = compared(frame, columns)
        missing, more = sorted(map(str, wanted - found)), sorted(map(str, found - wanted))
        if not missing and not more:
            return ""
        return (
            f"{table}: {len(missing)} rows of the source are missing, such as {missing[:3]}; "
            f"{len(more)} are there that it lacks, such as {more[:3]}"
        )


class PostgreSqlDefinitions(Definitions):
    """With changes that leave no trace in PostgreSQL's log."""

    kinds = (
        "int DEFAULT 7", "varchar(20) DEFAULT 'new'", "numeric(9,2)", "timestamptz DEFAULT now()",
        "float8 DEFAULT random()",
    )  # fmt: skip
    widen = "ALTER TABLE items ALTER comment TYPE varchar({})"
    rename = "ALTER TABLE {} RENAME TO {}"

    def _changes(self) -> tuple[Callable[[], list[str]], ...]:
        return (*super()._changes(), self._rewrite, self._move)

    def _run(self, statements: list[str]) -> None:
        with connected(self._source.server) as sql:
            sql.execute(f"SET lock_timeout = '{LOCK_SECONDS}s'".encode())
            for statement in statements:
                sql.execute(statement.encode())

    def _rewrite(self) -> list[str]:
        """All rows get other values, and none is in the log."""
        return ["ALTER TABLE products ALTER stock TYPE int USING stock + 1"]

    def _move(self) -> list[str]:
        """All rows have other places, and the values that they had."""
        return [f"VACUUM FULL {self._dice.choice(('customers', 'products'))}"]
