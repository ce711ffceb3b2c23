"""Which partition a row's messages are in. The judges are what was written, and Java's hashes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from tests.core.logs import log_of, schema_of

from penstock._core import EncodedMessages, LogEncoder
from penstock.errors import TableError
from penstock.model.schema import TableId, TableSchema
from penstock.sinks.base import Commit, EncodedBatch
from penstock.sinks.kafka.canal_rules import java_hash
from penstock.sinks.kafka.names import murmur2
from penstock.sinks.kafka.options import KafkaOptions
from penstock.sinks.kafka.sink import KafkaSink
from penstock.testing import servers, topics
from penstock.testing.servers import KafkaCluster

Written = tuple[servers.MySqlServer, TableSchema]


@pytest.fixture(scope="module")
def written() -> Iterator[Written]:
    with servers.MySqlServer({"binlog_row_metadata": "FULL"}) as server:
        database = "shop"
        server.execute(
            f"CREATE DATABASE {database}",
            f"CREATE TABLE {database}.t (id INT PRIMARY KEY, region VARCHAR(20), size ENUM('s','l'), v INT)",
            "FLUSH BINARY LOGS",
            f"INSERT INTO {database}.t VALUES (1, 'nørd', 's', 1), (2, NULL, 'l', 2), (3, 'süd', NULL, 3)",
            f"UPDATE {database}.t SET v = v + 10",
            f"UPDATE {database}.t SET region = 'west' WHERE id < 3",
            f"UPDATE {database}.t SET id = 7 WHERE id = 2",
            f"DELETE FROM {database}.t WHERE id = 3",
        )
        yield server, schema_of(server, f"{database}.t")


def encoded(written: Written, sink: KafkaSink, format: str, options: str = "{}") -> Iterator[EncodedBatch]:
    server, schema = written
    table, route = schema.table, sink.route_of(schema.table)
    encoder = LogEncoder(
        [(log_of(server)[0], 0, 0, None, [])], format, options=options, schemas=[schema.to_json()],
        tables=[(table.database, table.table)],
        routes=[] if route is None else [(table.database, table.table, route)],
    )  # fmt: skip
    while (step := encoder.read()) is not None:
        if isinstance(step, EncodedMessages):
            yield EncodedBatch(step, [TableId(*name) for name in encoder.tables])


def records(
    written: Written, kafka: KafkaCluster, format: str = "json", partitions: int = 7, **options: Any
) -> list[tuple[int, dict[str, Any] | None]]:
    """Partition and message of each change."""
    prefix = uuid.uuid4().hex
    section = {
        "type": "kafka", "bootstrap": kafka.bootstrap, "format": format, "partitions": partitions,
        "topic": prefix + ".{table}", **options,
    }  # fmt: skip
    pipeline = str(uuid.uuid4())
    sink = KafkaSink(KafkaOptions.model_validate(section), pipeline)
    sink.begin(0)
    sink.write_epoch(Commit(pipeline, 1), [written[1]], encoded(written, sink, format, sink.format_options))
    sink.close()
    found = topics.records(kafka.bootstrap, [f"{prefix}.t"])
    return [(one.partition, None if one.value is None else json.loads(one.value)) for one in found]


def changed(found: list[tuple[int, Any]]) -> dict[int, list[tuple[str, int]]]:
    """Operation and id of the changes of each partition, in their order."""
    by_partition: dict[int, list[tuple[str, int]]] = {}
    for partition, value in found:
        row = value["after"] or value["before"]
        by_partition.setdefault(partition, []).append((value["op"], row["id"]))
    return by_partition


def expected(of: dict[str, list[tuple[str, int]]], partitions: int = 7) -> dict[int, list[tuple[str, int]]]:
    """The same, from what the server was told, by the text that decides."""
    assert len({murmur2(text.encode()) % partitions for text in of}) > 1
    found: dict[int, list[tuple[str, int]]] = {}
    for text, changes in of.items():
        found.setdefault(murmur2(text.encode()) % partitions, []).extend(changes)
    return found


def test_columns_decide_and_a_row_that_moves_is_deleted_where_it_was(
    written: Written, kafka: KafkaCluster
) -> None:
    found = changed(records(written, kafka, partition="columns", partition_columns="region", partitions=40))
    assert found == expected({
        "nørd": [("c", 1), ("u", 1), ("d", 1)],
        "": [("c", 2), ("u", 2), ("d", 2)],
        "süd": [("c", 3), ("u", 3), ("d", 3)],
        "west": [("c", 1), ("c", 2), ("u", 7)],
    }, 40)  # fmt: skip


@pytest.mark.parametrize("format", ["json", "maxwell"])
def test_a_changed_key_is_a_deletion_and_an_insertion_in_the_partitions_of_both_keys(
    written: Written, kafka: KafkaCluster, format: str
) -> None:
    found = records(written, kafka, format)
    moved = []
    for partition, value in found:
        assert value is not None
        kind = (
            value["type"]
            if format == "maxwell"
            else {"c": "insert", "d": "delete", "u": "update"}[value["op"]]
        )
        row = value["data"] if format == "maxwell" else value["after"] or value["before"]
        moved += [(kind, row["id"], partition)] if row["id"] in (2, 7) else []
    two, seven = (next(at for _, key, at in moved if key == id) for id in (2, 7))
    assert two != seven
    kinds = ["insert", "update", "update", "delete"]
    assert [kind for kind, key, at in moved if (key, at) == (2, two)] == kinds
    assert [kind for kind, key, at in moved if (key, at) == (7, seven)] == ["insert"]


def test_with_one_partition_a_changed_key_is_what_the_format_makes_of_it(
    written: Written, kafka: KafkaCluster
) -> None:
    found = [value for _, value in records(written, kafka, "maxwell", 1) if value is not None]
    assert [(one["type"], one["old"]) for one in found if one["data"]["id"] == 7] == [("update", {"id": 2})]


def test_messages_without_keys_keep_updates_of_keys_and_are_in_one_partition(
    written: Written, kafka: KafkaCluster
) -> None:
    found = records(written, kafka, "canal")
    kinds = [value["type"] for _, value in found if value is not None]
    assert kinds == ["INSERT", "UPDATE", "UPDATE", "UPDATE", "DELETE"]
    assert len({partition for partition, _ in found}) == 1


@pytest.mark.parametrize("by_database", [True, False])
def test_canals_partition_hash_decides_by_each_row(
    written: Written, kafka: KafkaCluster, by_database: bool
) -> None:
    rules, database = ".*\\..*:region^size", written[1].table.database
    found = records(written, kafka, "canal", partition_hash=rules, database_hash=by_database)
    assert len(found) == 12  # two rows move, and are written twice
    for partition, value in found:
        assert value is not None
        [row] = value["data"]
        size = {"s": "1", "l": "2", None: ""}[row["size"]]  # Canal hashes the ordinal
        hashed = (
            (java_hash(database) if by_database else 0) ^ java_hash(row["region"] or "") ^ java_hash(size)
        )
        assert partition == abs(hashed) % 7


def test_a_transaction_is_in_one_partition(written: Written, kafka: KafkaCluster) -> None:
    places: dict[str, set[int]] = {}
    for partition, value in records(written, kafka, partition="transaction", partitions=40):
        assert value is not None
        places.setdefault(value["gtid"], set()).add(partition)
    assert len(places) == 5 and all(len(partitions) == 1 for partitions in places.values())
    assert len(set.union(*places.values())) > 1


def test_a_column_that_does_not_exist_parks_its_table(written: Written, kafka: KafkaCluster) -> None:
    with pytest.raises(TableError, match="has no column `regoin`, which is to decide the partition"):
        records(written, kafka, partition="columns", partition_columns=["regoin"])


def test_messages_before_a_tables_start_are_left_out(written: Written, kafka: KafkaCluster) -> None:
    pipeline, table = str(uuid.uuid4()), written[1].table
    section = {"type": "kafka", "bootstrap": kafka.bootstrap, "format": "json", "topic": f"{pipeline}.x"}
    sink = KafkaSink(KafkaOptions.model_validate(section), pipeline)
    sink.begin(0)

    def late() -> Iterator[EncodedBatch]:
        for batch in encoded(written, sink, "json"):
            starts = sorted(sequence for _, _, _, sequence in batch.encoded.messages())
            yield EncodedBatch(batch.encoded, batch.tables, {table: starts[-2]})

    sink.write_epoch(Commit(pipeline, 1), [written[1]], late())
    sink.close()
    found = [json.loads(one.value or b"") for one in topics.records(kafka.bootstrap, [f"{pipeline}.x"])]
    assert [one["op"] for one in found] == ["u", "d"]
