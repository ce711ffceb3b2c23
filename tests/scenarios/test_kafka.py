"""Pipelines into Kafka. The judges are the server's SELECT, and a consumer that knows nothing but topics."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.core import alltypes

from penstock.testing import oracle, servers, topics
from penstock.testing.memory import peak_bytes
from penstock.testing.scenario import Scenario, refusal, wait_for
from penstock.testing.servers import KafkaCluster

pytestmark = pytest.mark.timeout(900)

Make = Callable[..., Scenario]


def to_topics(scenario: Make, kafka: KafkaCluster, format: str = "json", **options: Any) -> Scenario:
    sections = {name: options.pop(name) for name in ("epoch", "snapshot", "schema") if name in options}
    case = scenario("kafka", **{"epoch": {"interval": "50ms"}, **sections})
    sink = {"type": "kafka", "bootstrap": kafka.bootstrap, "format": format, **options}
    case.options["sink"] = sink
    case.write_file()
    return case


def rebuilt(case: Scenario, kafka: KafkaCluster, *tables: str) -> topics.Rebuilt:
    """Tables as their topics have them, which must be those of the server, without a message twice."""
    names = [f"{case.database}.{table}" for table in tables]
    columns = {name: oracle.columns_of(case.server, name) for name in names}
    found = topics.rebuild(topics.records(kafka.bootstrap, names), columns)
    for name in names:
        oracle.assert_same_rows(oracle.rows_of(case.server, name), found.rows[name])
    assert found.repeated == 0
    return found


def values(case: Scenario, kafka: KafkaCluster, table: str) -> list[dict[str, Any]]:
    found = topics.records(kafka.bootstrap, [f"{case.database}.{table}"])
    return [json.loads(one.value) for one in found if one.value is not None]


@pytest.mark.slow  # tests/sinks/kafka has quick ones of the sink, with kills
def test_tables_are_rebuilt_from_their_topics(scenario: Make, kafka: KafkaCluster) -> None:
    """Snapshot, stream, changed keys and definitions, TRUNCATE, and a kill of the driver."""
    case = to_topics(scenario, kafka, partitions=3)
    case.server.execute(
        "SET time_zone = '+00:00', sql_mode = ''",
        alltypes.create_table("t"),
        *alltypes.inserts("t"),
        "CREATE TABLE pair (x VARCHAR(10), y BIGINT UNSIGNED, v JSON, PRIMARY KEY (x, y))",
        "INSERT INTO pair VALUES ('a', 18446744073709551615, '[1.50]'), ('b', 0, '{}')",
        "CREATE TABLE emptied (id INT PRIMARY KEY)",
        "INSERT INTO emptied VALUES (1), (2)",
    )
    with case.running() as pipeline:
        case.drain(pipeline)
        rebuilt(case, kafka, "t", "pair", "emptied")
        case.server.execute(
            "UPDATE pair SET y = y - 1 WHERE x = 'a'",
            "UPDATE t SET c_int = 7 WHERE id % 2 = 1",
            "DELETE FROM t WHERE id = 3",
            "TRUNCATE TABLE emptied",
            "INSERT INTO emptied VALUES (2), (3)",
            "ALTER TABLE pair ADD COLUMN n INT DEFAULT 5",
            "INSERT INTO pair (x, y) VALUES ('c', 1)",
            "UPDATE pair SET n = 6",
        )
        pipeline.kill("driver")
        pipeline.wait(seconds=60)
        pipeline.start()
        case.server.execute(
            "BEGIN",
            "DELETE FROM emptied WHERE id = 2",
            "INSERT INTO pair (x, y) VALUES ('d', 2)",
            "COMMIT",
        )
        case.drain(pipeline)
        assert pipeline.stop() == 0
    found = rebuilt(case, kafka, "t", "pair", "emptied")
    assert found.messages >= 20
    ops = [one["op"] for one in values(case, kafka, "emptied")]
    assert sorted(ops) == ["c", "c", "d", "r", "r", "t"]


@pytest.mark.slow
def test_a_table_whose_message_is_too_large_is_parked_and_continues_without_loss(
    scenario: Make, kafka: KafkaCluster
) -> None:
    case = to_topics(scenario, kafka, message_bytes_max="100KiB")
    case.server.execute(
        "CREATE TABLE large (id INT PRIMARY KEY, v LONGTEXT)",
        "CREATE TABLE small (id INT PRIMARY KEY)",
        "INSERT INTO small VALUES (1)",
    )
    with case.running() as pipeline:
        case.drain(pipeline)
        case.server.execute(
            "INSERT INTO large VALUES (1, REPEAT('x', 200000))", "INSERT INTO small VALUES (2)"
        )
        case.drain(pipeline)
        assert pipeline.stop() == 0
    rebuilt(case, kafka, "small")
    [parked] = [one for one in case.status()["tables"] if one["status"] == "parked"]
    assert parked["table"] == f"{case.database}.large"
    why = parked["parked"]
    assert "too large for the topic" in why["reason"] and "max.message.bytes" in why["hint"]
    case.options["sink"]["message_bytes_max"] = "900KiB"
    case.write_file()
    with case.running() as pipeline:
        case.drain(pipeline)
        assert case.command("unpark", f"{case.database}.large").returncode == 0
        case.server.execute("INSERT INTO large VALUES (2, 'y')")
        wait_for(lambda: not any(one["parked"] for one in case.status()["tables"]), "the table's return")
        case.drain(pipeline)
        assert pipeline.stop() == 0
    rebuilt(case, kafka, "large", "small")


def told(format: str, value: dict[str, Any]) -> tuple[str, Any]:
    """What a message says: its kind in the format's own words, and the id of its row."""
    match format:
        case "maxwell":
            return value["type"], value["data"].get("id")
        case "canal":
            return value["type"], [row["id"] for row in value["data"] or ()]
        case "cloudevents":
            return value["iodebeziumop"], (value["data"]["after"] or value["data"]["before"])["id"]
    return value["op"], (value["after"] or value["before"] or {}).get("id")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format", "read", "written"),
    [
        (
            "maxwell",
            [("bootstrap-start", None), ("bootstrap-insert", 1), ("bootstrap-insert", 2),
             ("bootstrap-complete", None)],
            [("insert", 3), ("update", 3), ("delete", 1), ("table-truncate", None), ("insert", 4)],
        ),
        ("debezium", [("r", 1), ("r", 2)], [("c", 3), ("u", 3), ("d", 1), ("t", None), ("c", 4)]),
        (
            "canal",
            [("INSERT", ["1", "2"])],
            [("INSERT", ["3"]), ("UPDATE", ["3"]), ("DELETE", ["1"]), ("TRUNCATE", []), ("INSERT", ["4"])],
        ),
        ("cloudevents", [("r", 1), ("r", 2)], [("c", 3), ("u", 3), ("d", 1), ("c", 4)]),
    ],
)  # fmt: skip
def test_each_format_has_snapshot_stream_and_truncate_in_its_own_words(
    scenario: Make, kafka: KafkaCluster, format: str, read: list[Any], written: list[Any]
) -> None:
    case = to_topics(scenario, kafka, format)
    case.server.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    with case.running() as pipeline:
        case.drain(pipeline)
        case.server.execute(
            "INSERT INTO t VALUES (3, 3)",
            "UPDATE t SET v = 4 WHERE id = 3",
            "DELETE FROM t WHERE id = 1",
            "TRUNCATE TABLE t",
            "INSERT INTO t VALUES (4, 4)",
        )
        case.drain(pipeline)
        assert pipeline.stop() == 0
    assert [told(format, one) for one in values(case, kafka, "t")] == [*read, *written]
    done = case.command("verify")
    refusal(done, "cannot be read back")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format", "options", "told_of"),
    [
        ("maxwell", {"output_ddl": True},
         ["table-create n", "insert", "table-alter t", "insert", "table-drop n", "table-create m",
          "table-drop m"]),
        ("canal", {}, ["CREATE n", "INSERT", "ALTER t", "INSERT", "RENAME m", "ERASE m"]),
        ("debezium", {"include.schema.changes": True},
         ["CREATE n", "c", "ALTER t", "c", "DROP n+CREATE m", "DROP m"]),
    ],
)  # fmt: skip
def test_changed_definitions_are_told_once_and_in_their_place(
    scenario: Make, kafka: KafkaCluster, format: str, options: dict[str, Any], told_of: list[str]
) -> None:
    """All messages have one topic here, so that their order is known. The driver is killed meanwhile."""
    case = to_topics(scenario, kafka, format, options=options)
    case.options["sink"] |= {"topic": case.database, "source": case.database}
    case.write_file()
    case.server.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    with case.running() as pipeline:
        case.drain(pipeline)
        case.server.execute(
            "CREATE TABLE n (id INT PRIMARY KEY, v INT)",
            "INSERT INTO n VALUES (1, 1)",
            "ALTER TABLE t ADD COLUMN (c VARCHAR(9) NOT NULL DEFAULT 'x')",
            "INSERT INTO t VALUES (2, 'y')",
        )
        pipeline.kill("driver")
        pipeline.wait(seconds=60)
        pipeline.start()
        case.server.execute("RENAME TABLE n TO m", "CREATE INDEX i ON t (c)", "DROP TABLE m")
        case.drain(pipeline)
        assert pipeline.stop() == 0
    messages = topics.records(kafka.bootstrap, [case.database])
    told_by = [definition(format, json.loads(one.value)) for one in messages if one.value is not None]
    assert told_by[told_by.index(told_of[0]) :] == told_of


def definition(format: str, value: dict[str, Any]) -> str:
    """What a message says of a definition, or the kind of its change."""
    match format:
        case "maxwell":
            kind: str = value["type"]
            return f"{kind} {value['table']}" if kind.startswith("table-") else kind
        case "canal":
            return f"{value['type']} {value['table']}" if value["isDdl"] else str(value["type"])
    if "tableChanges" not in value:
        return str(value["op"])
    names = [(one["type"], one["id"].split(".")[-1].strip('"')) for one in value["tableChanges"]]
    return "+".join(f"{kind} {name}" for kind, name in names)


@pytest.mark.slow
def test_a_broker_that_is_away_is_waited_for(scenario: Make, tmp_path: Path) -> None:
    with servers.kafka() as cluster:
        case = to_topics(scenario, cluster, request_timeout="3s")
        case.server.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        with case.running() as pipeline:
            case.drain(pipeline)
            cluster.brokers[0].kill9()
            case.server.execute("INSERT INTO t VALUES (2)")
            pipeline.wait_until(lambda status: status["retrying"], "a retry", seconds=120)
            cluster.brokers[0].start()
            case.drain(pipeline)
            assert pipeline.stop() == 0
        rebuilt(case, cluster, "t")


@pytest.mark.slow
def test_a_pipeline_tells_in_topics_how_its_snapshot_went_and_that_it_lives(
    scenario: Make, kafka: KafkaCluster
) -> None:
    case = to_topics(scenario, kafka)
    case.options["notifications"] = {
        "bootstrap": kafka.bootstrap, "topic": f"{case.database}.told", "heartbeat_interval": "200ms",
        "heartbeat_topic": f"{case.database}.alive",
    }  # fmt: skip
    case.write_file()
    case.server.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    with case.running() as pipeline:
        case.drain(pipeline)
        alive = [f"{case.database}.alive"]
        wait_for(lambda: list(topics.records(kafka.bootstrap, alive)), "a heartbeat")
        about = [f"{case.database}.told"]
        wait_for(lambda: len(list(topics.records(kafka.bootstrap, about))) >= 4, "the end of the snapshot")
    told = [json.loads(one.value or b"") for one in topics.records(kafka.bootstrap, about)]
    kinds = [one["type"] for one in told]
    assert kinds == ["STARTED", "IN_PROGRESS", "TABLE_SCAN_COMPLETED", "COMPLETED"]
    assert told[2]["additional_data"]["total_rows_scanned"] == "2"


@pytest.mark.slow
def test_a_large_transaction_among_small_ones_does_not_fill_the_memory(
    scenario: Make, kafka: KafkaCluster
) -> None:
    case = to_topics(scenario, kafka, epoch={"interval": "50ms", "bytes_max": "1GiB"})
    case.server.execute(
        "CREATE TABLE d (n INT PRIMARY KEY)",
        "CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT)",
        "INSERT INTO d VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)",
    )
    with case.running() as pipeline:
        case.drain(pipeline)
        assert pipeline.stop() == 0
    digits = "d a, d b, d c, d e"
    number = "a.n * 1000 + b.n * 100 + c.n * 10 + e.n"
    case.server.execute(
        "INSERT INTO t VALUES (-1, 'before')",
        f"INSERT INTO t SELECT {number}, REPEAT('x', 40000) FROM {digits}",
        "INSERT INTO t VALUES (-2, 'behind')",
    )
    with case.running() as pipeline:
        case.drain(pipeline)
        peak = peak_bytes(pipeline.pid)
        assert pipeline.stop() == 0
    assert peak < 300 * 1024**2, "the transaction has 400 MB"
    found = rebuilt(case, kafka, "t")
    assert found.messages == 10_002
