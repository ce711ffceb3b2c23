"""Arrays of a real PostgreSQL, through a real Debezium and a real broker, are lists in Iceberg and Delta. The
judge is the server's own SELECT."""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow.parquet as pq
import pytest
import yaml
from tests.scenarios.test_debezium_topics import Debezium, running
from tests.sources.debezium.receiving import Topics

from penstock.testing import servers
from penstock.testing.scenario import SHORT_LIVED, wait_for
from penstock.testing.servers.postgresql import PostgreSqlServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

COLUMNS = {
    "ints": "int[]", "words": "text[]", "prices": "numeric(10,2)[]", "moments": "timestamptz[]",
    "times": "timestamp[]", "days": "date[]", "flags": "bool[]", "much": "float8[]", "ids": "uuid[]",
    "raw": "bytea[]", "codes": "varchar(5)[]", "small": "smallint[]",
}  # fmt: skip
FULL = """'{1,NULL,-3}', '{a,NULL,"q\\"x",""}', '{1.50,NULL,-12345678.90}',
    '{"2024-02-29 12:00:00.123456+01",NULL}', '{"2024-02-29 12:00:00.123456",NULL}',
    '{2024-02-29,NULL,0001-01-01}', '{t,NULL,f}', '{1.5,NULL,Infinity}',
    '{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,NULL}', ARRAY['\\x00ff'::bytea,NULL,''], '{ab,NULL}', '{1,NULL}'"""
EMPTY = ", ".join(["'{}'"] * len(COLUMNS))


@pytest.fixture
def server() -> Iterator[PostgreSqlServer]:
    with PostgreSqlServer(settings={"wal_level": "logical"}) as server:
        yield server


@pytest.mark.parametrize("sink", ["iceberg", "delta"])
def test_arrays_of_postgresql_are_lists_in_a_lake(
    server: PostgreSqlServer, spark: SparkSession, lake_root: Path, tmp_path: Path, sink: str
) -> None:
    definition = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    with (
        psycopg.connect(server.url, user=server.user, password=server.password, autocommit=True) as session,
        servers.kafka() as cluster,
    ):
        session.execute(f"CREATE TABLE lists (id int PRIMARY KEY, {definition})")
        session.execute(f"INSERT INTO lists VALUES (1, {FULL}), (2, {EMPTY})")
        session.execute("CREATE TABLE tail (id int PRIMARY KEY)")
        properties = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": server.host, "database.port": server.port, "database.user": server.user,
            "database.password": server.password, "database.dbname": server.database,
            "plugin.name": "pgoutput", "schema.include.list": "public",
        }  # fmt: skip
        connector = Debezium("postgres", properties, cluster.bootstrap, tmp_path, partitions=1)
        file, topics = tmp_path / "pipeline.yaml", Topics(cluster.bootstrap)
        folder = lake_root / sink
        document = {
            "name": "lists", "tables": ["public.*"], "types": {"arrays": "list"},
            "source": {"type": "debezium", "bootstrap": cluster.bootstrap, "topics": "shop.public.*"},
            "sink": {"type": sink, "path": str(folder), "namespace": f"{tmp_path.name}"},
            "state": str(tmp_path / "state"),
            "spark": {"master": "local[2]", "driver_memory": "1g", "conf": SHORT_LIVED},
        }  # fmt: skip
        file.write_text(yaml.safe_dump(document))
        with running(connector):
            wait_for(
                lambda: connector.has_failed() or topics.has_messages("shop.public.lists"),
                "snapshot",
                seconds=300,
            )
            once(file)
            assert found(spark, sink, folder / tmp_path.name) == selected(session)
            session.execute(f"INSERT INTO lists SELECT 10 + n, {FULL} FROM generate_series(1, 50) n")
            session.execute("INSERT INTO lists (id) VALUES (3)")
            session.execute("UPDATE lists SET ints = ints || 7, words = NULL, flags = '{}' WHERE id < 20")
            session.execute("DELETE FROM lists WHERE id = 15")
            session.execute("INSERT INTO tail VALUES (1)")
            wait_for(
                lambda: connector.has_failed() or topics.has_messages("shop.public.tail"),
                "last row",
                seconds=300,
            )
            once(file)
            assert not connector.has_failed(), connector.has_failed()
        assert found(spark, sink, folder / tmp_path.name) == selected(session)
    written = [
        one for one in (folder / tmp_path.name / "lists").rglob("*.parquet") if "delet" not in one.name
    ]
    kinds = {str(pq.read_schema(one).field(1).type) for one in written}
    assert kinds and all(kind.startswith("list<element: int32") for kind in kinds)


def once(file: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "run", str(file), "--once"],
        capture_output=True, text=True, timeout=400, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def selected(session: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    rows = session.execute("SELECT * FROM lists ORDER BY id").fetchall()
    ids = list(COLUMNS).index("ids") + 1
    return [
        (
            *map(plain, row[:ids]),
            row[ids] and [one and str(one) for one in row[ids]],
            *map(plain, row[ids + 1 :]),
        )
        for row in rows
    ]


def found(spark: SparkSession, sink: str, folder: Path) -> list[tuple[Any, ...]]:
    if sink == "iceberg":
        name = f"lake.`{folder.name}`.lists"
        spark.sql(f"REFRESH TABLE {name}")
        frame = spark.sql(f"SELECT * FROM {name}")
    else:
        frame = spark.read.format("delta").load(str(folder / "lists"))
    rows = frame.select("id", *COLUMNS).orderBy("id").collect()
    return [tuple(map(plain, row)) for row in rows]


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    return bytes(value) if isinstance(value, bytearray) else value
