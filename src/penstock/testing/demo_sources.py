"""What the demo needs of a source: a loaded shop, a writer, faults of the server, and the end of its log."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol

from typing_extensions import Self

from penstock.sources.postgresql.registration import ensure_package
from penstock.testing import servers, workload
from penstock.testing.running import RunningPipeline
from penstock.testing.workload import Shop
from penstock.testing.writer import Counts, Writer

Say = Callable[[str], None]
STEP_SECONDS_MAX = 300.0
"""How long the pipeline may take to react to a fault: seconds, and minutes on a busy machine."""


class DemoWriter(Protocol):
    counts: Counts

    def stop(self) -> Any: ...


class DemoSource(Protocol):
    """A private server. As a context manager, it closes the server."""

    tables: str
    """The pattern of the shop's tables."""
    verified_while_running: bool
    """Whether `verify` needs the receiver: the log of an idle PostgreSQL grows by itself."""

    @property
    def server(self) -> Any: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def version(self) -> str: ...

    def load(self, shop: Shop) -> None: ...

    def section(self) -> dict[str, Any]:
        """The section `source` of the pipeline's file."""

    def writer(self, shop: Shop, *, seed: int, rate: float) -> AbstractContextManager[DemoWriter]: ...

    def strike(self, pipeline: RunningPipeline, say: Say) -> None:
        """Faults of the server while tables are read."""

    def disturb(self, pipeline: RunningPipeline, say: Say) -> None:
        """What happens at the server after the first read."""

    def drained(self, pipeline: RunningPipeline, *, seconds: float) -> dict[str, Any]:
        """Waits until everything committed is at the targets."""


class _Server:
    def __init__(self, server: Any) -> None:
        self.server = server

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.close()

    def section(self) -> dict[str, Any]:
        return {name: getattr(self.server, name) for name in ("host", "port", "user", "password")}


class MySqlShop(_Server):
    tables = "shop.*"
    verified_while_running = False

    def __init__(self) -> None:
        super().__init__(servers.mysql())

    def version(self) -> str:
        return f"MySQL {self.server.variable('version')}"

    def load(self, shop: Shop) -> None:
        workload.load(self.server, shop)

    def writer(self, shop: Shop, *, seed: int, rate: float) -> Writer:
        return Writer(self.server, shop, seed=seed, rate=rate)

    def strike(self, pipeline: RunningPipeline, say: Say) -> None:
        pass

    def disturb(self, pipeline: RunningPipeline, say: Say) -> None:
        pass

    def drained(self, pipeline: RunningPipeline, *, seconds: float) -> dict[str, Any]:
        return pipeline.drained(*self.server.position(), seconds=seconds, restart=True)


class PostgreSqlShop(_Server):
    tables = "public.*"
    verified_while_running = True

    def __init__(self) -> None:
        ensure_package()
        from penstock.testing import postgresql_shop

        self._shop = postgresql_shop
        super().__init__(servers.postgresql(postgresql_shop.SETTINGS))

    def _query(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a statement. A server that recovers is waited for."""
        with self._shop.connected_when_ready(self.server) as sql:
            cursor = sql.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def version(self) -> str:
        return f"PostgreSQL {self._query('SHOW server_version')[0][0]}"

    def load(self, shop: Shop) -> None:
        self._shop.load(self.server, shop)

    def section(self) -> dict[str, Any]:
        return {"type": "postgresql", **super().section(), "database": self.server.database}

    def writer(self, shop: Shop, *, seed: int, rate: float) -> AbstractContextManager[DemoWriter]:
        return self._shop.PostgreSqlWriter(self.server, shop, seed=seed, rate=rate)

    def strike(self, pipeline: RunningPipeline, say: Say) -> None:
        os.kill(self._walsender(pipeline), signal.SIGKILL)
        pipeline.kills.append("walsender")
        say("killed the server's walsender (kill -9): PostgreSQL ends all sessions, and recovers")

    def disturb(self, pipeline: RunningPipeline, say: Say) -> None:
        for statement in self._shop.SCHEMA_CHANGES:
            self._query(statement)
            say(f"changed a table: {statement}")
        # The last change leaves nothing in the log: it is found in the catalog, and the table is read again.
        pipeline.wait_until(_products_again, "a table that is read again", seconds=STEP_SECONDS_MAX)
        self._query(f"SELECT pg_terminate_backend({self._walsender(pipeline)})")
        pipeline.kills.append("walsender")
        say("ended the walsender's session (pg_terminate_backend)")

    def _walsender(self, pipeline: RunningPipeline) -> int:
        """Its process, once the receiver is connected."""
        found: list[tuple[Any, ...]] = []

        def connected(_: object) -> bool:
            found[:] = self._query("SELECT pid FROM pg_stat_replication")
            return bool(found)

        pipeline.wait_until(connected, "a walsender", seconds=STEP_SECONDS_MAX)
        return int(found[0][0])

    def drained(self, pipeline: RunningPipeline, *, seconds: float) -> dict[str, Any]:
        # Only a commit tells the receiver where the log ends.
        self._query("SELECT pg_logical_emit_message(true, 'demo', '')")
        goal = int(self._query("SELECT pg_current_wal_flush_lsn() - '0/0'")[0][0])

        reached = partial(self._shop.has_reached, goal=goal)
        return pipeline.drained_to(reached, f"LSN {goal:X}", seconds=seconds, restart=True)


def _products_again(status: dict[str, Any]) -> bool:
    products = next(one for one in status["tables"] if one["table"] == "public.products")
    return bool(products["schema_version"] > 1)


SOURCES: dict[str, Callable[[], DemoSource]] = {"mysql": MySqlShop, "postgresql": PostgreSqlShop}
