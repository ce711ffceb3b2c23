"""One pipeline on one real PostgreSQL. The judge is the server's own SELECT: each value as the server prints
it, compared with what Spark reads from the target."""

from __future__ import annotations

import datetime
import decimal
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
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
    from pyspark.sql import DataFrame, SparkSession

LOGICAL = {"wal_level": "logical", "max_wal_senders": "20", "max_replication_slots": "20"}


def connected(server: PostgreSqlServer, database: str | None = None) -> psycopg.Connection[Any]:
    """As the superuser, with values printed in one way."""
    return psycopg.connect(
        host=server.host, port=server.port, dbname=database or server.database, user=server.user,
        password=server.password, autocommit=True, options="-c datestyle=ISO -c timezone=UTC",
    )  # fmt: skip


@dataclass(frozen=True)
class SourceColumn:
    name: str
    type: str


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
        published = f'TABLES IN SCHEMA "{name}"' if server.version > 14 else "ALL TABLES"
        self.execute(
            f'CREATE PUBLICATION "penstock_{name}" FOR {published} WITH (publish_via_partition_root = true)'
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

    def assert_equal(self, *tables: str) -> None:
        for table in tables:
            columns, wanted = source_rows(self.sql, self.name, table)
            self.spark.sql(f"REFRESH TABLE lake.`{self.name}`.`{table}`")
            found = compared(self.spark.sql(f"SELECT * FROM lake.`{self.name}`.`{table}`"), columns)
            missing, extra = wanted - found, found - wanted
            assert not missing and not extra, (table, list(missing)[:5], list(extra)[:5])


_FORMS = {
    "timestamp with time zone": "({} AT TIME ZONE 'UTC')::text",
    "time without time zone": "to_char({}, 'HH24:MI:SS.US')",  # targets have all digits
    "character": "CASE WHEN {0} IS NOT NULL THEN format('%s', {0}) END",  # with its spaces
    "real": "{}::float8::text",
    "text[]": "to_json({})::text",
}
"""How values are asked for whose target has another form than `::text`; moments are without the name of
their zone."""
_FLOATS = ("real", "double precision")


def source_rows(
    sql: psycopg.Connection[Any], schema: str, table: str
) -> tuple[list[SourceColumn], Counter[tuple[str | None, ...]]]:
    """The columns of a table, and its rows as the server prints them."""
    sql.execute("SET intervalstyle = iso_8601; SET datestyle = ISO; SET timezone = UTC")
    found = sql.execute(
        "SELECT attname, atttypid::regtype::text FROM pg_attribute WHERE attrelid = %s::regclass "
        "AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum",
        (f'"{schema}"."{table}"',),
    ).fetchall()
    columns = [SourceColumn(name, type) for name, type in found]
    asked = SQL(", ").join(
        SQL(_FORMS.get(one.type, "{}::text")).format(Identifier(one.name)) for one in columns
    )
    query = SQL("SELECT {} FROM {}.{}").format(asked, Identifier(schema), Identifier(table))
    return columns, Counter(same_form(columns, row) for row in sql.execute(query))


def compared(frame: DataFrame, columns: list[SourceColumn]) -> Counter[tuple[str | None, ...]]:
    """The rows of a target in the form of `source_rows`."""
    rows = frame.select(*[f"`{one.name}`" for one in columns]).toLocalIterator()
    return Counter(same_form(columns, tuple(map(shown, row))) for row in rows)


def same_form(columns: list[SourceColumn], row: tuple[str | None, ...]) -> tuple[str | None, ...]:
    """Floats and JSON of arrays may be written in more than one way."""
    return tuple(
        text if text is None else repr(float(text)) if one.type in _FLOATS
        else json.dumps(json.loads(text)) if one.type == "text[]" else text
        for one, text in zip(columns, row, strict=True)
    )  # fmt: skip


def shown(value: Any) -> str | None:
    """A value as the server prints it. Values of arrays are not compared so."""
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
