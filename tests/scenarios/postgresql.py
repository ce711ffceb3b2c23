"""One pipeline on one real PostgreSQL. The judge is the server's own SELECT: each value as the server prints
it, compared with what Spark reads from the target."""

from __future__ import annotations

import datetime
import decimal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import yaml
from psycopg.sql import SQL, Identifier

from penstock.sources.postgresql.log_position import lsn_of
from penstock.testing.running import RunningPipeline
from penstock.testing.scenario import DRAIN_SECONDS_MAX, SHORT_LIVED
from penstock.testing.servers.postgresql import PostgreSqlServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGICAL = {"wal_level": "logical", "max_wal_senders": "20", "max_replication_slots": "20"}


def connected(server: PostgreSqlServer, database: str | None = None) -> psycopg.Connection[Any]:
    """As the superuser, with values printed in one way."""
    return psycopg.connect(
        host=server.host, port=server.port, dbname=database or server.database, user=server.user,
        password=server.password, autocommit=True, options="-c datestyle=ISO -c timezone=UTC",
    )  # fmt: skip


class PgScenario:
    """`name`: of the pipeline, and of its schema, whose tables it captures. Its publication has the schema's
    tables."""

    def __init__(
        self,
        server: PostgreSqlServer,
        name: str,
        folder: Path,
        spark: SparkSession,
        lake_root: Path,
        **options: Any,
    ) -> None:
        self.server, self.name, self.folder, self.spark = server, name, folder, spark
        self.file = folder / "pipeline.yaml"
        self.sql = connected(server)
        self.execute(f'CREATE SCHEMA "{name}"', f'SET search_path = "{name}"')
        self.execute(
            f'CREATE PUBLICATION "penstock_{name}" FOR TABLES IN SCHEMA "{name}" '
            "WITH (publish_via_partition_root = true)"
        )
        document: dict[str, Any] = {
            "name": name,
            "source": {
                "type": "postgresql", "host": server.host, "port": server.port, "database": server.database,
                "user": server.user, "password": server.password,
            },
            "tables": [f"{name}.*"],
            "sink": {"type": "iceberg", "path": str(lake_root / "iceberg"), "namespace": name},
            "state": str(folder / "state"),
            "spark": {"master": "local[2]", "driver_memory": "1g", "conf": SHORT_LIVED},
            "epoch": {"interval": "200ms"},
            **options,
        }  # fmt: skip
        self.file.write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")

    def execute(self, *statements: str) -> None:
        for statement in statements:
            self.sql.execute(statement.encode())

    def running(self) -> RunningPipeline:
        return RunningPipeline(self.file)

    def command(self, name: str, *rest: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "penstock", name, str(self.file), *rest],
            capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def end(self) -> int:
        """Where the server's log ends now."""
        [(text,)] = self.sql.execute("SELECT pg_current_wal_flush_lsn()::text").fetchall()
        return lsn_of(text)

    def drain(self, pipeline: RunningPipeline, *, restart: bool = False) -> dict[str, Any]:
        """Waits until everything committed before the call is at the targets."""
        self.execute("SELECT pg_logical_emit_message(true, 'test', 'x')")  # has its commit in the log
        goal = self.end()
        return pipeline.drained_to(
            lambda place: lsn_of(place) >= goal, str(goal), seconds=DRAIN_SECONDS_MAX, restart=restart
        )

    def source_rows(self, table: str) -> tuple[list[str], Counter[tuple[str | None, ...]]]:
        """The columns, and the rows as the server prints them; moments without the name of their zone."""
        found = self.sql.execute(
            "SELECT attname, atttypid::regtype::text FROM pg_attribute WHERE attrelid = %s::regclass "
            "AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum",
            (f'"{self.name}"."{table}"',),
        ).fetchall()
        names = [name for name, _ in found]
        forms = {
            "timestamp with time zone": "({} AT TIME ZONE 'UTC')::text",
            "time without time zone": "to_char({}, 'HH24:MI:SS.US')",  # targets have all digits
            "character": "CASE WHEN {0} IS NOT NULL THEN format('%s', {0}) END",  # with its spaces
        }
        columns = [SQL(forms.get(kind, "{}::text")).format(Identifier(name)) for name, kind in found]
        shown = SQL(", ").join(columns)
        query = SQL("SELECT {} FROM {}.{}").format(shown, Identifier(self.name), Identifier(table))
        return names, Counter(tuple(row) for row in self.sql.execute(query))

    def assert_equal(self, *tables: str) -> None:
        for table in tables:
            names, wanted = self.source_rows(table)
            self.spark.sql(f"REFRESH TABLE lake.`{self.name}`.`{table}`")
            frame = self.spark.sql(f"SELECT * FROM lake.`{self.name}`.`{table}`")
            rows = frame.select(*[f"`{name}`" for name in names]).toLocalIterator()
            found = Counter(tuple(map(shown, row)) for row in rows)
            missing, extra = wanted - found, found - wanted
            assert not missing and not extra, (table, list(missing)[:5], list(extra)[:5])


def shown(value: Any) -> str | None:
    """A value as the server prints it. Values of floats and arrays are not compared so."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case decimal.Decimal():
            return f"{value:f}"
        case datetime.datetime():
            whole, dot, fraction = value.isoformat(" ").replace("+00:00", "").partition(".")
            return whole + (dot + fraction.rstrip("0") if dot else "")
        case bytes() | bytearray():
            return "\\x" + bytes(value).hex()
    return str(value)


def wait_for_table(
    pipeline: RunningPipeline, table: str, condition: Callable[[dict[str, Any]], bool], what: str
) -> None:
    """Waits for a state of a table in the progress document."""

    def met(status: dict[str, Any]) -> bool:
        return any(one["table"] == table and condition(one) for one in status["tables"])

    pipeline.wait_until(met, what, seconds=DRAIN_SECONDS_MAX)
