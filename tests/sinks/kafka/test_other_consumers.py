"""Consumers of other tools, unchanged, rebuild a table from its topic. The judge is the server's SELECT."""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from tests.core.logs import log_of, schema_of

from bench import java, workload
from penstock._core import EncodedMessages, LogEncoder
from penstock.model.schema import TableSchema
from penstock.sinks.base import Commit, EncodedBatch
from penstock.sinks.kafka.options import KafkaOptions
from penstock.sinks.kafka.sink import KafkaSink
from penstock.testing import servers, topics
from penstock.testing.servers import KafkaCluster

pytestmark = pytest.mark.slow

Written = tuple[servers.MySqlServer, TableSchema]
CHANGES = (
    "INSERT INTO shop.t VALUES (1, 'käse 🧀', 12.50, 9223372036854775807, 20240229, '2024-02-29 1:2:3', 1.5)",
    "INSERT INTO shop.t VALUES (2, NULL, NULL, NULL, NULL, NULL, NULL)",
    "INSERT INTO shop.t VALUES (3, '', -0.01, -1, '1999-12-31', '1999-12-31 00:00:00', -1e300)",
    "INSERT INTO shop.t VALUES (4, 'x', 99999999.99, -9223372036854775808, '1000-01-01', '9999-12-31', 0.1)",
    "INSERT INTO shop.t (id, name) SELECT id + 10, REPEAT('\"\\\\\\n\\t', 50) FROM shop.t",
    "UPDATE shop.t SET name = 'new', price = 3 WHERE id IN (1, 12)",
    "UPDATE shop.t SET id = 20 WHERE id = 2",
    "UPDATE shop.t SET id = 2 WHERE id = 11",
    "DELETE FROM shop.t WHERE id = 3",
    "BEGIN",
    "DELETE FROM shop.t WHERE id = 12",
    "INSERT INTO shop.t (id, name) VALUES (12, 'again')",
    "COMMIT",
)  # fmt: skip


@pytest.fixture(scope="module")
def written() -> Iterator[Written]:
    with servers.MySqlServer({"binlog_row_metadata": "FULL"}) as server:
        server.execute(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id INT PRIMARY KEY, name VARCHAR(300), price DECIMAL(10,2), big BIGINT,"
            " day DATE, at DATETIME, ratio DOUBLE)",
            "FLUSH BINARY LOGS",
            *CHANGES,
        )
        yield server, schema_of(server, "shop.t")


def messages(written: Written, kafka: KafkaCluster, format: str, **options: Any) -> list[topics.Record]:
    """What a `read_committed` consumer gets, each partition in its order."""
    server, schema = written
    pipeline, topic = str(uuid.uuid4()), uuid.uuid4().hex
    section = {
        "type": "kafka", "bootstrap": kafka.bootstrap, "format": format, "options": options, "partitions": 3,
        "topic": topic,
    }  # fmt: skip
    sink = KafkaSink(KafkaOptions.model_validate(section), pipeline)
    sink.begin(0)

    def encoded() -> Iterator[EncodedBatch]:
        route = sink.route_of(schema.table)
        encoder = LogEncoder(
            [(log_of(server)[0], 0, 0, None, [])], format, options=sink.format_options,
            schemas=[schema.to_json()], routes=[] if route is None else [("shop", "t", route)],
        )  # fmt: skip
        while (step := encoder.read()) is not None:
            if isinstance(step, EncodedMessages):
                yield EncodedBatch(step, [schema.table])

    sink.write_epoch(Commit(pipeline, 1), [schema], encoded())
    sink.close()
    return list(topics.records(kafka.bootstrap, [topic]))


FLINK_TYPES = {
    "debezium": ["INT", "STRING", "DECIMAL(10,2)", "BIGINT", "INT", "BIGINT", "DOUBLE"],
    "maxwell": ["INT", "STRING", "DECIMAL(10,2)", "BIGINT", "DATE", "TIMESTAMP(6)", "DOUBLE"],
    "canal": ["INT", "STRING", "DECIMAL(10,2)", "BIGINT", "DATE", "TIMESTAMP(6)", "DOUBLE"],
}
"""Debezium's dates are days since 1970, and its DATETIME milliseconds. Flink reads them as such numbers."""


def value_of(text: str) -> str | None:
    return None if text == "-" else base64.b64decode(text).decode()


@pytest.mark.parametrize(
    ("format", "options"),
    [("debezium", {"decimal.handling.mode": "string"}), ("maxwell", {}), ("canal", {}),
     ("canal", {"single_rows": True})],
)  # fmt: skip
def test_flinks_formats_rebuild_the_table(
    written: Written, kafka: KafkaCluster, format: str, options: dict[str, Any]
) -> None:
    server, schema = written
    columns = [column.name for column in schema.columns]
    types = [text for pair in zip(columns, FLINK_TYPES[format], strict=True) for text in pair]
    command = [*java.compiled("FlinkFormats", java.flink_format_jars()), format, *types]
    found = messages(written, kafka, format, **options)
    lines = "".join(f"{base64.b64encode(one.value or b'').decode()}\n" for one in found)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True, timeout=120)
    rows: dict[Any, list[Any]] = {}
    for line in done.stdout.splitlines():
        kind, *values = line.split("\t")
        row = [value_of(one) for one in values]
        assert kind in ("+I", "+U", "-U", "-D"), line
        if kind.startswith("+"):
            rows[row[0]] = row
        else:
            assert rows.pop(row[0]) is not None, line
    assert rows == selected(server, format)


def selected(server: servers.MySqlServer, format: str) -> dict[Any, list[Any]]:
    """The server's rows, with texts as Java has them."""
    days = "TO_DAYS(day) - TO_DAYS('1970-01-01')"  # Flink's dates are such numbers, too
    at = "DATE_FORMAT(at, '%Y-%m-%dT%H:%i:%s')"
    if format == "debezium":
        at = "TIMESTAMPDIFF(SECOND, '1970-01-01', at) * 1000"
    found = server.query(f"SELECT id, name, price, big, {days}, {at}, ratio FROM shop.t")
    texts = [[None if one is None else str(one) for one in row] for row in found]
    for row in texts:
        row[5] = row[5] and row[5].replace("T00:00:00", "T00:00")
        row[6] = row[6] and row[6].replace("e+", "E").replace("e", "E")
    return {row[0]: row for row in texts}


def test_debeziums_jdbc_sink_rebuilds_the_table(written: Written, kafka: KafkaCluster) -> None:
    """Into the same server. It makes the table itself, from the schemas in the messages."""
    server, _ = written
    found = messages(written, kafka, "debezium", schemas=True)
    target = found[0].topic
    command = java.compiled("JdbcSink", java.jdbc_sink_jars())
    url = f"jdbc:mysql://{server.host}:{server.port}/shop?connectionTimeZone=UTC"
    lines = "".join(f"{target}\t{encoded(one.key)}\t{encoded(one.value)}\n" for one in found)
    account = (workload.PEER_USER, workload.PEER_PASSWORD)
    server.execute(*workload.PEER_ACCOUNT)
    done = subprocess.run(
        [*command, url, *account], input=lines, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.stdout.split() == [str(len(found))], done.stderr[-3000:]
    columns = "id, name, price, big, day, at, ratio"
    select = f"SELECT {columns} FROM shop.{{}} ORDER BY id"
    assert server.query(select.format(f"`{target}`")) == server.query(select.format("t"))


def encoded(data: bytes | None) -> str:
    return "-" if data is None else base64.b64encode(data).decode()
